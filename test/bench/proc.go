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

	"github.com/rdsd/rdsd/internal/test/child"
	"github.com/rdsd/rdsd/test/bench/worker"
)

// process is a child process. It has a session of its own, unless how says otherwise.
type process struct {
	*child.Process
	name    string
	inOrder bool
	stdin   io.WriteCloser
	lines   *child.Output // what expect reads: standard output, or a daemon's log
	read    int           // how many bytes expect has looked at
}

// how says how a process is started.
type how struct {
	daemon  bool       // expect reads the daemon's log, not its output
	inOrder bool       // stop ends the daemon in an orderly way, because it writes something at its end
	session bool       // the process stays in the bench's session
	files   []*os.File // inherited files
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

// expect waits for the next line that contains want.
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

// failure returns an error with the output of the process and how it ended, if it has.
func (p *process) failure(what string) error {
	var end error
	if !p.Alive() {
		end = p.Err()
	}
	return fmt.Errorf("%s: %s: %v\n%s", p.name, what, end, p.Stderr.Tail())
}

// result waits for the result that a worker prints at its end.
func (p *process) result(ctx context.Context) (worker.Result, error) {
	var r worker.Result
	l, err := p.expect(ctx, "{")
	if err == nil {
		err = json.Unmarshal([]byte(l), &r)
	}
	return r, err
}

// stop ends a worker by closing its input, a daemon with inOrder by SIGTERM, and any other by
// SIGKILL. A process that has not ended after 3 s gets SIGKILL. A daemon needs no orderly end:
// it would wait for its peers, and its files are in the bench's directory.
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
