package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// stopPatience is how long a process may take to end when told to.
const stopPatience = 8 * time.Second

// processes are the children of the demo. They are all started from one thread
// that lives as long as the demo: the kernel sends the parent-death signal when
// the starting thread ends, not the process.
type processes struct {
	dir    string
	starts chan func()
	mu     sync.Mutex // guards live
	live   []*process
}

// process is one child, in a session and so a process group of its own.
type process struct {
	name   string
	cmd    *exec.Cmd
	log    string // path of its standard error
	stdout bytes.Buffer
	ended  chan struct{} // closed when err is set
	err    error
}

func newProcesses(dir string) *processes {
	p := &processes{dir: dir, starts: make(chan func())}
	go func() {
		runtime.LockOSThread()
		for start := range p.starts {
			start()
		}
	}()
	return p
}

// command is what to run.
type command struct {
	name     string // in messages, and of the log
	program  string
	args     []string
	terminal *os.File // for its standard error; nil: a log in the demo's directory
	status   *os.File // its descriptor 3, may be nil
}

// start runs a program.
func (p *processes) start(c command) (*process, error) {
	x := &process{name: c.name, cmd: exec.Command(c.program, c.args...), ended: make(chan struct{})}
	x.cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	x.cmd.Stdout = &x.stdout
	x.cmd.Stderr = c.terminal
	if c.status != nil {
		x.cmd.ExtraFiles = []*os.File{c.status}
	}
	if c.terminal == nil {
		x.log = filepath.Join(p.dir, c.name+".log")
		f, err := os.Create(x.log)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		x.cmd.Stderr = f
	}
	started := make(chan error)
	p.starts <- func() { started <- x.cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.live = append(p.live, x)
	p.mu.Unlock()
	go func() {
		x.err = x.cmd.Wait()
		close(x.ended)
	}()
	return x, nil
}

// run runs a program to its end and returns its standard output.
func (p *processes) run(ctx context.Context, c command) ([]byte, error) {
	x, err := p.start(c)
	if err != nil {
		return nil, err
	}
	defer p.forget(x)
	select {
	case <-x.ended:
	case <-ctx.Done():
		_ = x.stop()
		return nil, context.Cause(ctx)
	}
	if x.err != nil {
		return x.stdout.Bytes(), fmt.Errorf("%s: %w%s", c.name, x.err, x.lastLine())
	}
	return x.stdout.Bytes(), nil
}

// signal sends s to the process's group unless it has ended: its id may be
// another's by then.
func (x *process) signal(s unix.Signal) {
	select {
	case <-x.ended:
	default:
		_ = unix.Kill(-x.cmd.Process.Pid, s)
	}
}

// stop ends a process: asked first, then not asked. The error says that it
// ended otherwise than with status 0.
func (x *process) stop() error {
	x.signal(unix.SIGTERM)
	x.signal(unix.SIGCONT) // it may be held
	select {
	case <-x.ended:
	case <-time.After(stopPatience):
		x.signal(unix.SIGKILL)
		<-x.ended
		return fmt.Errorf("%s did not end within %v of SIGTERM and was killed", x.name, stopPatience)
	}
	if x.err != nil {
		return fmt.Errorf("%s: %w%s", x.name, x.err, x.lastLine())
	}
	return nil
}

// waitFor waits until the process has printed a line that contains text.
func (x *process) waitFor(ctx context.Context, text string) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		b, err := os.ReadFile(x.log)
		if err != nil {
			return err
		}
		if strings.Contains(string(b), text) {
			return nil
		}
		select {
		case <-tick.C:
		case <-x.ended:
			return fmt.Errorf("%s ended: %w%s", x.name, errors.Join(x.err), x.lastLine())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// lastLine is what the process said last, for an error message.
func (x *process) lastLine() string {
	f, err := os.Open(x.log)
	if err != nil {
		return ""
	}
	defer f.Close()
	last := ""
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if sc.Text() != "" {
			last = ": " + sc.Text()
		}
	}
	return last
}

func (p *processes) forget(x *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.live {
		if p.live[i] == x {
			p.live = append(p.live[:i], p.live[i+1:]...)
			return
		}
	}
}

// stopAll ends what still runs, the last started first.
func (p *processes) stopAll() {
	p.mu.Lock()
	live := p.live
	p.live = nil
	p.mu.Unlock()
	for i := len(live) - 1; i >= 0; i-- {
		_ = live[i].stop()
	}
}

// showLogs prints the end of every log.
func (p *processes) showLogs(w io.Writer) {
	logs, _ := filepath.Glob(filepath.Join(p.dir, "*.log"))
	for _, path := range logs {
		b, err := os.ReadFile(path)
		if err != nil || len(b) == 0 {
			continue
		}
		const most = 4 << 10
		fmt.Fprintf(w, "--- %s\n%s\n", filepath.Base(path), b[max(0, len(b)-most):])
	}
}
