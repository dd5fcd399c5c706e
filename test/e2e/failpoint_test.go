package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/rds"
	"golang.org/x/sys/unix"
)

// atStart says how often a start without clients hits each fail point.
var atStart = map[string]int{
	failpoint.ControlSocket: 1, failpoint.StatsFile: 1, failpoint.Device: 1, failpoint.ProtectionDomain: 1,
	failpoint.CompletionQueue: 1, failpoint.ReceiveQueue: 1, failpoint.SendPool: 1, failpoint.ReceivePool: 1,
	failpoint.Listen: 2, failpoint.Epoll: 1, failpoint.Eventfd: 1, failpoint.Watch: 2,
}

// TestFailPoints makes every acquisition fail once. The error must name what failed, nothing may
// be left of the attempt, and the next attempt must succeed.
func TestFailPoints(t *testing.T) {
	isolated(t, func(t *testing.T) {
		peer := newHost(t, withProgram("rdsd-failpoints"))
		for _, name := range failpoint.Names() {
			for n := 1; n <= atStart[name]; n++ {
				failStart(t, fmt.Sprintf("%s:%d", name, n), name)
			}
		}
		d := shm.DefaultParams()
		attach := map[string]int{failpoint.Segment: 1, failpoint.Table: 1, failpoint.DaemonDoorbell: 1, failpoint.ClientDoorbell: 1,
			failpoint.SendWindow: int(d.SendWindows), failpoint.RecvWindow: int(d.RecvWindows), failpoint.RegisterWindow: int(d.SendWindows)}
		done := []string{failpoint.Watch}
		failWork(t, peer, failpoint.Watch, atStart[failpoint.Watch]+1, failAttach)
		for name, hits := range attach {
			done = append(done, name)
			for n := 1; n <= hits; n++ {
				failWork(t, peer, name, n, failAttach)
			}
		}
		failWork(t, peer, failpoint.SendWindow, int(d.SendWindows)+1, failGrow)
		failWork(t, peer, failpoint.RegisterWindow, int(d.SendWindows)+1, failGrow)
		for name, do := range map[string]func(*testing.T, *host, *host){failpoint.Buffer: failAlloc, failpoint.RegisterBuffer: failAlloc, failpoint.Import: failImport,
			failpoint.RegisterRegion: failRegister, failpoint.QueuePair: failConnect} {
			done = append(done, name)
			failWork(t, peer, name, 1, do)
		}
		for _, name := range failpoint.Names() {
			if atStart[name] == 0 && !slices.Contains(done, name) && !slices.Contains(failpoint.InHandover(), name) {
				t.Errorf("no test makes %q fail", name)
			}
		}
	})
}

// failStart checks that a daemon does not start, says why, and leaves nothing behind.
func failStart(t *testing.T, fail, name string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	addrs := []string{newAddress(t).String(), newAddress(t).String()}
	args := []string{"-socket", dir + "/s", "-listen", strings.Join(addrs, ",")}
	p := startProcess(t, []string{"RDSD_FAIL=" + fail}, program("rdsd-failpoints"), args...)
	if code := p.wait(); code != 1 || !strings.Contains(p.log(), fmt.Sprintf("fail point %q: cannot allocate memory", name)) {
		t.Errorf("%s: status %d, %s", fail, code, p.log())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%s: left %v (%v)", fail, left, err)
	}
}

// failWork runs do with a daemon in which the n-th hit of name fails. Then it checks the same
// daemon with a client that uses everything.
func failWork(t *testing.T, peer *host, name string, n int, do func(*testing.T, *host, *host)) {
	t.Helper()
	t.Run(fmt.Sprintf("%s %d", name, n), func(t *testing.T) {
		h := newHost(t, withProgram("rdsd-failpoints"), withEnv(fmt.Sprintf("RDSD_FAIL=%s:%d", name, n)))
		h.expected = []string{"fail point"}
		do(t, h, peer)
		h.settled() // nothing may be left of the attempt
		l := startLoad(t, h, peer, 5000)
		l.progress(50)
		l.finish()
		l.audit.all(t, l.socks[0], l.socks[1])
		if left := h.logged("panic"); left > 0 {
			t.Error("panic in the log")
		}
	})
}

func failed(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, syscall.ENOMEM) || !strings.Contains(err.Error(), "fail point") {
		t.Errorf("%s: %v, want the fail point's ENOMEM", what, err)
	}
}

func failAttach(t *testing.T, h, _ *host) {
	c, err := rds.Open(t.Context(), rds.Options{Socket: h.sock})
	if err == nil {
		c.Close()
	}
	failed(t, "open", err)
}

func failAlloc(t *testing.T, h, _ *host) {
	failBuffer(t, h, func(c *rds.Client) (*rds.Buffer, error) { return c.Alloc(1 << 20) })
}

func failImport(t *testing.T, h, _ *host) {
	fd := ownMemory(t)
	failBuffer(t, h, func(c *rds.Client) (*rds.Buffer, error) { return c.Import(fd, 0, 1<<20) })
}

// ownMemory is a memory file of this process that a daemon takes, of 1 MiB.
func ownMemory(t *testing.T) (fd int) {
	t.Helper()
	fd, err := unix.MemfdCreate("own", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	if err := errors.Join(err, unix.Ftruncate(fd, 1<<20)); err != nil {
		t.Fatal(err)
	}
	return fd
}

// failBuffer has a buffer made twice: the first attempt fails.
func failBuffer(t *testing.T, h *host, makeIt func(*rds.Client) (*rds.Buffer, error)) {
	c := h.open()
	_, err := makeIt(c)
	failed(t, "buffer", err)
	b, err := makeIt(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Free(); err != nil {
		t.Error(err)
	}
	c.Close()
}

func failRegister(t *testing.T, h, _ *host) {
	c := h.open()
	s := h.bind(c, 0)
	b, err := c.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Register(b, 0, 4096, rds.AllowRead)
	failed(t, "register", err)
	if err := b.Free(); err != nil {
		t.Error(err)
	}
	c.Close()
}

// failGrow fills the send arena when there is no more memory for it. Sends must wait, or fail
// with the reason. The client must go on with the memory it has.
func failGrow(t *testing.T, h, peer *host) {
	c := h.open()
	s, dst := h.bind(c, 0), peer.bind(peer.open(), 0)
	if err := s.SetSndBuf(64 << 20); err != nil {
		t.Fatal(err)
	}
	if err := dst.SetRcvBuf(256 << 20); err != nil {
		t.Fatal(err)
	}
	s.SetWriteDeadline(time.Now().Add(patience))
	a := newAudit()
	to := addrPortOf(newAddress(t), 1) // no host is there, so nothing is sent
	buf := make([]byte, rds.MaxMessage)
	for i := range 9 {
		m := rds.Message{Payload: buf, Addr: to}
		if _, err := s.Send(rds.DontWait, &m); err != nil {
			// One destination may use a share of the arena. The rest is for others.
			if i < 4 || !errors.Is(err, syscall.ENOMEM) && !errors.Is(err, rds.ErrWouldBlock) && !errors.Is(err, rds.ErrCongested) {
				t.Errorf("send %d: %v", i, err)
			}
			break
		}
	}
	if err := s.CancelSentTo(to); err != nil {
		t.Error(err)
	}
	done := make(chan struct{})
	go func() { a.take(dst); close(done) }()
	for range 20 {
		if err := a.send(s, dst.LocalAddrPort(), buf); err != nil {
			t.Fatalf("send after the failure: %v", err)
		}
	}
	a.all(t, s)
	dst.Close()
	<-done
	c.Close()
}

// failConnect sends to a peer for which the first queue pair cannot be made. The message must
// arrive by the next queue pair.
func failConnect(t *testing.T, h, peer *host) {
	c := h.open()
	s, dst := h.bind(c, 0), peer.bind(peer.open(), 0)
	a := newAudit()
	if err := a.send(s, dst.LocalAddrPort(), make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { a.take(dst); close(done) }()
	a.all(t, s)
	dst.Close()
	<-done
	c.Close()
}
