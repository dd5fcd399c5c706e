package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/bench/worker"
	"github.com/rdsd/rdsd/internal/child"
)

// process is a child, in a session of its own unless it is asked not to be.
type process struct {
	*child.Process
	name    string
	inOrder bool
	stdin   io.WriteCloser
	lines   *child.Output // what expect reads: standard output, or a daemon's log
	read    int           // bytes of it that expect has looked at
}

// how a process is started.
type how struct {
	daemon  bool       // its log, not its output, is what lines delivers
	inOrder bool       // a daemon that has something to write at its end
	session bool       // it stays in the bench's session
	files   []*os.File // that it inherits
}

// startProcess starts a program.
func startProcess(name string, h how, program string, args ...string) (*process, error) {
	cmd := exec.Command(program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: !h.session}
	cmd.Env = append(os.Environ(), "RDSD_SOCKET=")
	cmd.ExtraFiles = h.files
	p := &process{name: name, inOrder: h.inOrder}
	var err error
	if !h.daemon {
		if p.stdin, err = cmd.StdinPipe(); err != nil {
			return nil, err
		}
	}
	if p.Process, err = child.Start(cmd); err != nil {
		return nil, err
	}
	if p.lines = &p.Stdout; h.daemon {
		p.lines = &p.Stderr
	}
	return p, nil
}

// expect returns the next line with this in it.
func (p *process) expect(ctx context.Context, want string) (line string, err error) {
	found := child.Until(ctx, p.Ended(), func() bool {
		for {
			l, _, whole := strings.Cut(p.lines.String()[p.read:], "\n")
			if !whole {
				return false
			}
			p.read += len(l) + 1
			if strings.Contains(l, want) {
				line = l
				return true
			}
		}
	}, p.lines, p.lines)
	switch {
	case found:
		return line, nil
	case ctx.Err() != nil:
		return "", p.failure(ctx.Err().Error())
	}
	return "", p.failure("ended")
}

// failure is an error with what the process said and how it ended, if it has.
func (p *process) failure(what string) error {
	var end error
	if !p.Alive() {
		end = p.Err()
	}
	return fmt.Errorf("%s: %s: %v\n%s", p.name, what, end, p.Stderr.Tail())
}

// result reads what a worker printed at its end.
func (p *process) result(ctx context.Context) (worker.Result, error) {
	var r worker.Result
	l, err := p.expect(ctx, "{")
	if err == nil {
		err = json.Unmarshal([]byte(l), &r)
	}
	return r, err
}

// stop ends the process: in order first, for good after a while. A daemon is
// killed: it would wait for its peers, and what it leaves lies in the bench's
// directory.
func (p *process) stop() {
	switch {
	case p.stdin != nil:
		p.stdin.Close()
	case p.inOrder:
		p.Signal(syscall.SIGTERM)
	default:
		p.Kill()
	}
	if !p.Wait(3 * time.Second) {
		p.Kill()
	}
}
