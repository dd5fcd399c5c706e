package e2e

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/internal/test/child"
)

// process is a child process of a test.
type process struct {
	*child.Process
	t *testing.T
}

// startProcess runs a program. env is added to the environment. The program is killed at the end
// of the test if it still runs.
func startProcess(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	p := spawn(t, env, name, args...)
	t.Cleanup(p.Kill)
	return p
}

// spawn is startProcess without the kill at the end.
func spawn(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = env
	return run(t, cmd, nil)
}

// run starts cmd, as another user unless as is nil. Its environment is added to ours.
func run(t *testing.T, cmd *exec.Cmd, as *syscall.Credential) *process {
	t.Helper()
	cmd.Env = child.Env(cmd.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	p, err := child.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return &process{p, t}
}

func (p *process) stdout() string { return p.Stdout.String() }
func (p *process) log() string    { return p.Stderr.String() }

// saw waits until text was printed on standard output or standard error.
func (p *process) saw(text string) {
	p.t.Helper()
	if p.Until(patience, func() bool { return p.Stdout.Has(text) || p.Stderr.Has(text) }) {
		return
	}
	p.t.Fatalf("%v has not printed %q (it runs: %v):\n%s%s", p.Cmd, text, p.Alive(), p.stdout(), p.log())
}

func (p *process) pause() {
	p.t.Helper()
	if err := p.Pause(); err != nil {
		p.t.Fatal(err)
	}
}

// wait returns the exit status, or -1 for a signal.
func (p *process) wait() int {
	p.t.Helper()
	if !p.Wait(patience) {
		p.t.Fatalf("%v does not end:\n%s%s", p.Cmd, p.stdout(), p.log())
	}
	return p.Code()
}
