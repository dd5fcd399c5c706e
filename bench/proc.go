package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/bench/worker"
)

// process is a child, in a session of its own unless it is asked not to be. It
// dies with this program.
type process struct {
	name    string
	inOrder bool
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	lines   chan string // of standard output, or of the daemon's log
	exited  chan struct{}
	err     error

	mu  sync.Mutex
	log bytes.Buffer // standard error; guarded by mu
}

// logLimit bounds what is kept of a child's messages.
const logLimit = 16 << 10

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.log.Len() < logLimit {
		p.log.Write(b)
	}
	return len(b), nil
}

// how a process is started.
type how struct {
	daemon  bool       // its log, not its output, is what lines delivers
	inOrder bool       // a daemon that has something to write at its end
	session bool       // it stays in the bench's session
	files   []*os.File // that it inherits
}

// startProcess starts a program. It must be called from the main goroutine's
// own thread, whose end is the end of the process.
func startProcess(name string, h how, program string, args ...string) (*process, error) {
	p := &process{name: name, inOrder: h.inOrder, cmd: exec.Command(program, args...), lines: make(chan string, 16), exited: make(chan struct{})}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: !h.session, Pdeathsig: syscall.SIGKILL}
	p.cmd.Env = append(os.Environ(), "RDSD_SOCKET=")
	p.cmd.ExtraFiles = h.files
	var out io.Reader
	var err error
	if h.daemon {
		if out, err = p.cmd.StderrPipe(); err == nil {
			out = io.TeeReader(out, p)
		}
	} else {
		p.cmd.Stderr = p
		if p.stdin, err = p.cmd.StdinPipe(); err == nil {
			out, err = p.cmd.StdoutPipe()
		}
	}
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.follow(out)
	return p, nil
}

// follow delivers the lines and collects the exit status.
func (p *process) follow(out io.Reader) {
	sc := bufio.NewScanner(out)
	for sc.Scan() {
		select {
		case p.lines <- sc.Text():
		default: // nobody reads a daemon's log after its start
		}
	}
	close(p.lines)
	p.err = p.cmd.Wait()
	close(p.exited)
}

// expect returns the first line with this in it.
func (p *process) expect(ctx context.Context, want string) (string, error) {
	for {
		select {
		case l, ok := <-p.lines:
			if !ok {
				<-p.exited
				return "", p.failure("ended")
			}
			if strings.Contains(l, want) {
				return l, nil
			}
		case <-ctx.Done():
			return "", p.failure(ctx.Err().Error())
		}
	}
}

func (p *process) failure(what string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Errorf("%s: %s: %v\n%s", p.name, what, p.err, p.log.String())
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
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	default:
		_ = p.cmd.Process.Kill()
	}
	select {
	case <-p.exited:
		return
	case <-time.After(3 * time.Second):
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
}
