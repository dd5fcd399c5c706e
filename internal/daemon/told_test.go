package daemon

import (
	"bytes"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ipc"
	"golang.org/x/sys/unix"
)

// unreading has a process not read its answers until the daemon can send it no more.
func unreading(t *testing.T, d *Daemon) *proc {
	t.Helper()
	p := attached(t, d)
	p.asksUnread(&ipc.Addrs{})
	return p
}

// asksUnread makes requests until the daemon waits to send an answer, and p's own queue is full, too.
func (p *proc) asksUnread(r ipc.Request) {
	p.t.Helper()
	frame := ipc.AppendFrame(nil, 1, r)
	eventually(p.t, "the daemon waits to send an answer", func() error {
		for err := error(nil); err == nil; {
			p.c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
			_, err = p.c.Write(frame)
		}
		if !isIn("(*session).run(", ".WriteMsgUnix(", "[IO wait") {
			return errors.New("it does not yet")
		}
		return nil
	})
}

// isIn reports whether a goroutine has all these in its stack.
func isIn(all ...string) bool {
	stacks := make([]byte, 1<<20)
	for one := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if !slices.ContainsFunc(all, func(s string) bool { return !strings.Contains(one, s) }) {
			return true
		}
	}
	return false
}

// TestToldBeforeFreed: the memory of a process whose session the engine has ended is given back
// after the reason was sent, also if sending takes long.
func TestToldBeforeFreed(t *testing.T) {
	d := startDaemon(t, nil)
	p := unreading(t, d)
	frame := ipc.AppendFrame(nil, 1, &ipc.AddrsOK{})
	for _, c := range d.connections() { // nor is there room for the last frame, which has more
		if err := unix.SetsockoptInt(c.FD(), unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<30); err != nil {
			t.Fatal(err)
		}
		for err := error(nil); err == nil; {
			_, err = unix.SendmsgN(c.FD(), frame, nil, nil, unix.MSG_DONTWAIT)
		}
	}
	header := bytes.Clone(p.maps[0].Mem[:64])
	p.badSend()
	eventually(t, "the engine lets go of the process", func() error {
		if !bytes.Equal(header, p.maps[0].Mem[:64]) {
			t.Fatal("the memory was given back before the process was told why its session ends")
		}
		if !isIn("(*session).free(", ".goodbye(") {
			return errors.New("it has not")
		}
		return nil
	})
	for _, c := range d.connections() {
		c.SetSendTimeout(-1)
	}
	eventually(t, "the memory is given back", func() error {
		if bytes.Equal(header, p.maps[0].Mem[:64]) {
			return errors.New("it is not")
		}
		return nil
	})
}

// TestNotReading: that a process does not read its answers is logged when its session ends for it.
func TestNotReading(t *testing.T) {
	d := startDaemon(t, nil)
	var log lockedLog
	d.summed.log = slog.New(slog.NewTextHandler(&log, nil))
	unreading(t, d)
	for _, c := range d.connections() {
		c.SetSendTimeout(time.Millisecond)
	}
	d.has(t, 0)
	if s := log.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, errAnswersUnread.Error()) {
		t.Errorf("log: %s", s)
	}
}

// lockedLog is a log that several goroutines write to.
type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
