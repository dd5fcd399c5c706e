package vmlab

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// control is the connection to a guest program. The guest answers each command with one line, in
// order. So the late answer to a command that has timed out is not taken for the answer to the
// next one.
type control struct {
	conn net.Conn
	mu   sync.Mutex
	due  []question
	err  error // the error that ended it
}

// question is a command whose answer has not come.
type question struct {
	line string
	to   chan answer
}

// answer is an answer of the guest.
type answer struct {
	text  string
	words []string
	err   error
}

// newControl waits until a guest program connects.
func newControl(t *testing.T, l net.Listener, limit time.Duration) *control {
	t.Helper()
	l.(*net.TCPListener).SetDeadline(time.Now().Add(limit))
	conn, err := l.Accept()
	if err != nil {
		t.Fatalf("the machine did not call back: %v", err)
	}
	in := bufio.NewReader(conn)
	if line, err := in.ReadString('\n'); line != "ok ready\n" {
		t.Fatalf("guest said %q: %v", line, err)
	}
	c := &control{conn: conn}
	go c.read(in)
	return c
}

// read assigns the answers to the questions until the connection ends.
func (c *control) read(in *bufio.Reader) {
	for {
		line, err := in.ReadString('\n')
		c.mu.Lock()
		if err == nil && len(c.due) == 0 {
			err = fmt.Errorf("an answer that nobody has asked for: %q", line)
		}
		if err != nil {
			c.err = fmt.Errorf("the guest program is gone: %w", err)
			for _, q := range c.due {
				q.to <- answer{err: fmt.Errorf("guest, %q: %w", q.line, c.err)}
			}
			c.due = nil
			c.mu.Unlock()
			return
		}
		q := c.due[0]
		c.due = c.due[1:]
		c.mu.Unlock()
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "ok"); ok {
			q.to <- answer{text: strings.TrimSpace(rest), words: strings.Fields(rest)}
		} else {
			q.to <- answer{err: fmt.Errorf("guest, %q: %s", q.line, line)}
		}
	}
}

// start sends a command to the guest. The channel gets the words of its answer without "ok", or
// its error.
func (c *control) start(format string, args ...any) <-chan answer {
	q := question{fmt.Sprintf(format, args...), make(chan answer, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.due = append(c.due, q) // before its answer can come
		c.conn.SetWriteDeadline(time.Now().Add(limit))
		if _, err := fmt.Fprintln(c.conn, q.line); err != nil {
			c.due = c.due[:len(c.due)-1]
			c.err = err
			c.conn.Close()
		}
	}
	if c.err != nil {
		q.to <- answer{err: fmt.Errorf("guest, %q: %w", q.line, c.err)}
	}
	return q.to
}

// ask is start, and waits for the answer.
func (c *control) ask(format string, args ...any) answer {
	to := c.start(format, args...)
	select {
	case a := <-to:
		return a
	case <-time.After(limit):
		return answer{err: fmt.Errorf("guest, %q: no answer within %v", fmt.Sprintf(format, args...), limit)}
	}
}

// well reports whether the guest program is there and has answered everything.
func (c *control) well() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err == nil && len(c.due) == 0
}
