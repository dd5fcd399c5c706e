package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/test/child"
)

// stopPatience is how long a process may take to end after SIGTERM.
const stopPatience = 8 * time.Second

// processes are the children of the demo.
type processes struct {
	dir  string
	mu   sync.Mutex // guards live
	live []*process
}

// process is one child, in a session and so a process group of its own.
type process struct {
	*child.Process
	name string
	log  string // path of its standard error
}

func newProcesses(dir string) *processes { return &processes{dir: dir} }

// command is what to run.
type command struct {
	name     string // of the process in messages, and of its log file
	program  string
	args     []string
	terminal *os.File // for its standard error; if nil, a log in the demo's directory
	status   *os.File // its descriptor 3, may be nil
}

// start runs a program.
func (p *processes) start(c command) (*process, error) {
	x := &process{name: c.name}
	cmd := exec.Command(c.program, c.args...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if c.terminal != nil {
		cmd.Stderr = c.terminal
	}
	if c.status != nil {
		cmd.ExtraFiles = []*os.File{c.status}
	}
	if c.terminal == nil {
		x.log = filepath.Join(p.dir, c.name+".log")
		f, err := os.Create(x.log)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		cmd.Stderr = f
	}
	var err error
	if x.Process, err = child.Start(cmd); err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.live = append(p.live, x)
	p.mu.Unlock()
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
	case <-x.Ended():
	case <-ctx.Done():
		_ = x.stop()
		return nil, context.Cause(ctx)
	}
	if x.Err() != nil {
		err = fmt.Errorf("%s: %w%s", c.name, x.Err(), x.lastLine())
	}
	return []byte(x.Stdout.String()), err
}

// signal sends s to the process's group unless the process has ended: its id may belong to
// another process by then.
func (x *process) signal(s unix.Signal) {
	if x.Alive() {
		_ = unix.Kill(-x.Pid(), s)
	}
}

// stop ends a process, with SIGKILL if it does not end after SIGTERM. It returns an error
// if the status is not 0.
func (x *process) stop() error {
	x.signal(unix.SIGTERM)
	x.signal(unix.SIGCONT) // it may be held
	if !x.Wait(stopPatience) {
		x.Kill()
		return fmt.Errorf("%s did not end within %v of SIGTERM and was killed", x.name, stopPatience)
	}
	if x.Err() != nil {
		return fmt.Errorf("%s: %w%s", x.name, x.Err(), x.lastLine())
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
		case <-x.Ended():
			return fmt.Errorf("%s ended: %w%s", x.name, errors.Join(x.Err()), x.lastLine())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// lastLine is the last line that the process printed, for an error message.
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

// stopAll ends the processes that still run, in the reverse order of their start.
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
