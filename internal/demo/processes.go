package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
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
	mu   sync.Mutex // guards the lists
	live []*process
	all  []*process // also those that have ended
}

// process is one child, in a session and so a process group of its own.
type process struct {
	*child.Process
	name string
}

// command is what to run.
type command struct {
	name     string // of the process in messages
	program  string
	args     []string
	terminal *os.File // for its standard error; if nil, the process keeps it
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
	var err error
	if x.Process, err = child.Start(cmd); err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.live, p.all = append(p.live, x), append(p.all, x)
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
	switch {
	case child.Until(ctx, x.Ended(), func() bool { return x.Stderr.Has(text) }, &x.Stdout, &x.Stderr):
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("%s ended: %w%s", x.name, errors.Join(x.Err()), x.lastLine())
}

// lastLine is the last line that the process printed, for an error message.
func (x *process) lastLine() string {
	text := strings.TrimRight(x.Stderr.String(), "\n")
	if text == "" {
		return ""
	}
	return ": " + text[strings.LastIndexByte(text, '\n')+1:]
}

func (p *processes) forget(x *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live = slices.DeleteFunc(p.live, func(o *process) bool { return o == x })
}

// stopAll ends the processes that still run, in the reverse order of their start.
func (p *processes) stopAll() {
	p.mu.Lock()
	live := p.live
	p.live = nil
	p.mu.Unlock()
	for _, x := range slices.Backward(live) {
		_ = x.stop()
	}
}

// showLogs prints the end of what each process printed.
func (p *processes) showLogs(w io.Writer) {
	for _, x := range p.all {
		if log := x.Stderr.Tail(); log != "" {
			fmt.Fprintf(w, "--- %s\n%s\n", x.name, log)
		}
	}
}
