package ledger

import (
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/rdsd/rdsd/internal/test/child"
)

// process is a child process that takes commands on its standard input.
type process struct {
	*child.Process
	in io.WriteCloser
}

// start runs a program in the network.
func (n *network) start(env []string, name string, args ...string) (*process, error) {
	return n.startCommand(env, exec.Command(name, args...))
}

// startCommand is start for a program with attributes of its own.
func (n *network) startCommand(env []string, cmd *exec.Cmd) (*process, error) {
	cmd.Env = child.Env(env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p, err := child.StartBy(cmd, n.do)
	if err != nil {
		return nil, err
	}
	return &process{p, in}, nil
}

// line waits for a line of standard output that begins with prefix.
func (p *process) line(prefix string, limit time.Duration) (found string, ok bool) {
	ok = p.Until(limit, func() bool {
		for l := range strings.Lines(p.Stdout.String()) {
			if strings.HasPrefix(l, prefix) && strings.HasSuffix(l, "\n") {
				found = strings.TrimSuffix(l, "\n")
				return true
			}
		}
		return false
	})
	return found, ok
}

func (p *process) log() string      { return p.Stderr.String() }
func (p *process) tell(line string) { fmt.Fprintln(p.in, line) }

// wait reports whether the process ended in time. If it did not, wait kills it.
func (p *process) wait(limit time.Duration) bool {
	ended := p.Wait(limit)
	p.Kill()
	return ended
}
