package ledger

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a child.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	exited chan struct{}

	mu    sync.Mutex
	lines []string      // of standard output; guarded by mu
	errs  bytes.Buffer  // guarded by mu
	news  chan struct{} // closed and replaced at every line; guarded by mu
}

// start runs a program in the network.
func (n *network) start(env []string, name string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(name, args...), exited: make(chan struct{}), news: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), "XDG_RUNTIME_DIR=", "RDSD_SOCKET="), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	errs, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := n.do(p.cmd.Start); err != nil {
		return nil, err
	}
	var readers sync.WaitGroup
	readers.Go(func() { p.follow(out, func(s string) { p.lines = append(p.lines, s) }) })
	readers.Go(func() { p.follow(errs, func(s string) { p.errs.WriteString(s + "\n") }) })
	go func() {
		readers.Wait()
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

func (p *process) follow(r io.Reader, take func(string)) {
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		p.mu.Lock()
		take(in.Text())
		close(p.news)
		p.news = make(chan struct{})
		p.mu.Unlock()
	}
}

// until waits until done says so of the output, and reports whether it did
// before the process ended or the time.
func (p *process) until(limit time.Duration, done func(lines []string, errs string) bool) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	for ended := false; ; {
		p.mu.Lock()
		ok, news := done(p.lines, p.errs.String()), p.news
		p.mu.Unlock()
		if ok || ended {
			return ok
		}
		select {
		case <-news:
		case <-p.exited:
			ended = true
		case <-t.C:
			return false
		}
	}
}

// line waits for a line of standard output that begins so.
func (p *process) line(prefix string, limit time.Duration) (found string, ok bool) {
	ok = p.until(limit, func(lines []string, _ string) bool {
		for _, l := range lines {
			if strings.HasPrefix(l, prefix) {
				found = l
				return true
			}
		}
		return false
	})
	return found, ok
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.errs.String()
}

func (p *process) tell(line string)        { fmt.Fprintln(p.in, line) }
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }
func (p *process) pid() int                { return p.cmd.Process.Pid }

// wait reports whether the process ended in time; if not it is killed.
func (p *process) wait(limit time.Duration) bool {
	select {
	case <-p.exited:
		return true
	case <-time.After(limit):
		p.signal(syscall.SIGKILL)
		<-p.exited
		return false
	}
}

func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}
