package e2e

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a child. It dies with its parent.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	exited chan struct{} // closed when it ended and its output is complete

	mu   sync.Mutex
	out  bytes.Buffer  // guarded by mu
	errs bytes.Buffer  // guarded by mu
	news chan struct{} // closed and replaced at every line of output; guarded by mu
}

// starts are run on one thread that never ends: the kernel sends the
// parent-death signal when the thread ends that started the child.
var starts = make(chan func())

func startProcesses() {
	runtime.LockOSThread()
	for f := range starts {
		f()
	}
}

// startProcess runs a program with additions to the environment. It is killed
// at the end of the test if it still runs.
func startProcess(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	p := spawn(t, env, name, args...)
	t.Cleanup(p.end)
	return p
}

// spawn is startProcess without the end.
func spawn(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = env
	return run(t, cmd, nil)
}

// run starts cmd, as another user unless as is nil. Its environment is an
// addition to ours.
func run(t *testing.T, cmd *exec.Cmd, as *syscall.Credential) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, exited: make(chan struct{}), news: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), "XDG_RUNTIME_DIR=", "RDSD_SOCKET="), cmd.Env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true, Credential: as}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan error)
	starts <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	readers.Go(func() { p.follow(stdout, &p.out) })
	readers.Go(func() { p.follow(stderr, &p.errs) })
	go func() {
		readers.Wait()
		p.cmd.Wait()
		close(p.exited)
	}()
	return p
}

func (p *process) end() {
	p.signal(syscall.SIGKILL)
	<-p.exited
}

func (p *process) follow(r io.Reader, to *bytes.Buffer) {
	br := bufio.NewReader(r)
	for {
		line, err := br.ReadString('\n')
		p.mu.Lock()
		to.WriteString(line)
		close(p.news)
		p.news = make(chan struct{})
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *process) read(b *bytes.Buffer) (string, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return b.String(), p.news
}

func (p *process) stdout() string { s, _ := p.read(&p.out); return s }
func (p *process) log() string    { s, _ := p.read(&p.errs); return s }

// saw waits until text was printed, on standard output or error.
func (p *process) saw(text string) {
	p.t.Helper()
	timeout := time.After(patience)
	for {
		out, _ := p.read(&p.out)
		errs, news := p.read(&p.errs)
		if strings.Contains(out, text) || strings.Contains(errs, text) {
			return
		}
		select {
		case <-news:
		case <-p.exited:
			if out, errs := p.stdout(), p.log(); !strings.Contains(out+errs, text) {
				p.t.Fatalf("%v ended before it printed %q:\n%s%s", p.cmd, text, out, errs)
			}
			return
		case <-timeout:
			p.t.Fatalf("%v did not print %q:\n%s%s", p.cmd, text, out, errs)
		}
	}
}

func (p *process) signal(s syscall.Signal) { p.cmd.Process.Signal(s) }

func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// wait returns the exit status, -1 for a signal.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.t.Fatalf("%v does not end:\n%s%s", p.cmd, p.stdout(), p.log())
	}
	return p.code()
}

func (p *process) code() int { return p.cmd.ProcessState.ExitCode() }

func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	p.wait()
}
