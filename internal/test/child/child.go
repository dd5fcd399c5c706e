// Package child runs other programs, such as the daemons, workers and tools of tests, of
// the bench and of the demo. A child dies with the program that started it. The caller can
// wait for what the child prints.
package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// Process is a child.
type Process struct {
	Cmd            *exec.Cmd
	Stdout, Stderr Output // what it has printed, unless Cmd had writers of its own

	ended chan struct{} // closed when it has ended and its output is complete
	err   error         // of its end; set before ended is closed
}

// starts are run on one thread that never ends. The kernel sends the parent-death signal
// when the thread that started the child ends. The thread exists from the beginning, so
// that tests can count goroutines.
var starts = make(chan func())

//nolint:gochecknoinits // from the beginning, as the comment on starts says
func init() {
	go func() {
		runtime.LockOSThread()
		for f := range starts {
			f()
		}
	}()
}

// Start starts cmd. The child leads a process group, or a session if
// cmd.SysProcAttr says so, so that signals from the terminal do not reach it.
func Start(cmd *exec.Cmd) (*Process, error) {
	return StartBy(cmd, func(start func() error) error {
		done := make(chan error)
		starts <- func() { done <- start() }
		return <-done
	})
}

// StartBy is Start on a thread of the caller's: do runs a function on that thread. The
// child dies with the thread and is in the thread's namespaces. A child with children that
// must not outlive it can have another signal than SIGKILL in cmd.SysProcAttr.Pdeathsig.
func StartBy(cmd *exec.Cmd, do func(func() error) error) (*Process, error) {
	p := &Process{Cmd: cmd, ended: make(chan struct{})}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if cmd.SysProcAttr.Pdeathsig == 0 {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	cmd.SysProcAttr.Setpgid = !cmd.SysProcAttr.Setsid
	if cmd.Stdout == nil {
		cmd.Stdout = &p.Stdout
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &p.Stderr
	}
	if err := do(cmd.Start); err != nil {
		return nil, err
	}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// Env is this program's environment with additions, and without the variables that lead to
// a daemon that is not the caller's.
func Env(more ...string) []string {
	return append(append(os.Environ(), "XDG_RUNTIME_DIR=", "RDSD_SOCKET="), more...)
}

// Pid is the child's process id.
func (p *Process) Pid() int { return p.Cmd.Process.Pid }

// Signal sends s to the child. A child that has ended gets nothing.
func (p *Process) Signal(s os.Signal) { _ = p.Cmd.Process.Signal(s) }

// Ended is closed when the child has ended and its output is complete.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Alive reports that the child has not ended.
func (p *Process) Alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Wait waits at most limit for the child's end, and reports whether it has ended.
func (p *Process) Wait(limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-p.ended:
		return true
	case <-t.C:
		return false
	}
}

// Kill kills the child and its process group, and waits for the child's end.
func (p *Process) Kill() {
	if p.Alive() {
		_ = syscall.Kill(-p.Pid(), syscall.SIGKILL)
	}
	<-p.ended
}

// Err is nil if the child has ended with status 0. The child must have ended.
func (p *Process) Err() error { return p.err }

// Code is the exit status, -1 after a signal. The child must have ended.
func (p *Process) Code() int { return p.Cmd.ProcessState.ExitCode() }

// Pause stops the child. When Pause returns, none of the child's threads runs: the signal
// alone reaches a thread on another CPU some time later.
func (p *Process) Pause() error {
	p.Signal(syscall.SIGSTOP)
	for p.Alive() {
		stands, err := stopped(p.Pid())
		if stands || err != nil {
			return err
		}
		time.Sleep(100 * time.Microsecond) // between two looks
	}
	return fmt.Errorf("pause %v: it has ended", p.Cmd)
}

// stopped reports that all threads of a process are stopped.
func stopped(pid int) (bool, error) {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false, err
	}
	for _, stat := range stats {
		b, err := os.ReadFile(stat)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // a thread that has ended
		}
		if err != nil {
			return false, err
		}
		// The state follows the name. The name may have spaces and parentheses.
		_, state, _ := bytes.Cut(b[bytes.LastIndexByte(b, ')'):], []byte(" "))
		if !bytes.HasPrefix(state, []byte("T")) {
			return false, nil
		}
	}
	return len(stats) > 0, nil
}

// Resume lets a paused child go on.
func (p *Process) Resume() { p.Signal(syscall.SIGCONT) }

// Until waits until done is true, and asks done again whenever the child has printed
// something. It returns false if the child ended or limit passed first.
func (p *Process) Until(limit time.Duration, done func() bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return Until(ctx, p.ended, done, &p.Stdout, &p.Stderr)
}
