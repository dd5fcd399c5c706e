package fabric

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"testing"
	"time"
)

// A program is one that the test talks with, line by line.
type program struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.Writer
	out    *bufio.Scanner
	stderr bytes.Buffer
	ended  bool
}

// talk starts cmd, and ends it with the test.
func talk(t *testing.T, cmd *exec.Cmd) *program {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{t: t, cmd: cmd, in: in, out: bufio.NewScanner(out)}
	cmd.Stderr = &p.stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(patience(t), func() { cmd.Process.Kill() })
	t.Cleanup(func() {
		if !p.ended {
			cmd.Process.Kill()
			p.finish()
		}
		kill.Stop()
	})
	return p
}

func (p *program) say(line string) { fmt.Fprintln(p.in, line) }

// line returns the program's next line. If it has ended the test is over.
func (p *program) line() string {
	p.t.Helper()
	if !p.out.Scan() {
		p.t.FailNow()
	}
	return p.out.Text()
}

// want reads the program's next line, which has to be this one.
func (p *program) want(line string) {
	p.t.Helper()
	if got := p.line(); got != line {
		p.t.Fatalf("the program says %q, want %q", got, line)
	}
}

// finish waits until the program has ended, which has to be well.
func (p *program) finish() {
	p.t.Helper()
	p.ended = true
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("%v: %v\n%s", p.cmd.Args, err, p.stderr.String())
	}
}
