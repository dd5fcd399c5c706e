package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/ipc"
	"golang.org/x/sys/unix"
)

// has waits until d has so many connections.
func (d *Daemon) has(t testing.TB, connections int) {
	t.Helper()
	eventually(t, "the daemon has its connections", func() error {
		d.admission.mu.Lock()
		defer d.admission.mu.Unlock()
		if n := len(d.admission.open); n != connections {
			return fmt.Errorf("%d, not %d", n, connections)
		}
		return nil
	})
}

// names returns the names of the processes.
func (d *Daemon) names() (all []string) {
	d.admission.mu.Lock()
	defer d.admission.mu.Unlock()
	for _, s := range d.admission.open {
		if s.cl != nil {
			all = append(all, s.name)
		}
	}
	slices.Sort(all)
	return all
}

// TestSessionsHandedOver: processes that send requests while a daemon takes over are
// answered by it, in order, once. They keep their memory, their sockets, what they may do
// and the requests that wait.
func TestSessionsHandedOver(t *testing.T) {
	d := startDaemon(t, nil)
	addr := d.config().Listen[0]
	p, imp, tool, early := attached(t, d), importing(t, d), rdsctlOf(t, d), dialRaw(t, d)
	buf := p.call(&ipc.Alloc{Size: 1 << 16}).Body.(*ipc.AllocOK).Buffer
	region := p.call(&ipc.Register{Sock: p.sock, Buffer: buf, Len: 1 << 16, Access: abi.RightRead}).Body.(*ipc.RegisterOK).Region
	p.send(&ipc.Free{Buffer: buf, Wait: 1})
	free := p.id
	p.call(&ipc.Addrs{}) // the Free has begun
	own := filledMemory(t, 1<<20, unix.F_SEAL_SHRINK)
	imp.send(&ipc.Import{Len: 1 << 16}, own)
	imp.hears(imp.id, &ipc.ImportOK{})
	for range 3 {
		d.has(t, 4)
		x := part(t, d)
		p.send(&ipc.Bind{Addr: addr})
		p.send(&ipc.Alloc{Size: 1 << 16})
		imp.send(&ipc.Import{Len: 1 << 16, Off: 1 << 16}, own)
		imp.send(&ipc.Addrs{})
		tool.send(ctlRequest(t, ctl.Request{Kind: ctl.KindSockets}))
		early.send(&ipc.Hello{Role: ipc.RoleCtl})
		users := d.admission.clientsOf()[config.UserAccount(uint32(os.Getuid()))]
		memory := d.engine.Memory().Sum()
		names := d.names()
		d = x.succeed()
		if now := d.names(); !slices.Equal(now, names) || names[len(names)-1] == "" {
			t.Errorf("processes %q, not %q", now, names)
		}
		p.hears(p.id-1, &ipc.BindOK{})
		p.hears(p.id, &ipc.AllocOK{})
		imp.hears(imp.id-1, &ipc.ImportOK{})
		imp.hears(imp.id, &ipc.AddrsOK{})
		tool.hears(tool.id, &ipc.CtlPart{})
		early.hears(early.id, &ipc.HelloOK{})
		for _, q := range []*proc{p, imp, tool, early} {
			q.hearsNothing()
		}
		if err := p.ping(); err != nil {
			t.Error(err)
		}
		if n := d.admission.clientsOf()[config.UserAccount(uint32(os.Getuid()))]; n != users {
			t.Errorf("%d processes, not %d", n, users)
		}
		memory.Registered += 2 << 16
		if now := d.engine.Memory().Sum(); now.Registered != memory.Registered || now.Shared != memory.Shared {
			t.Errorf("memory %+v, not %+v", now, memory)
		}
		early.close()
		d.has(t, 3)
		early = dialRaw(t, d)
	}
	p.send(&ipc.Release{Region: region})
	answers := map[uint32]ipc.Type{}
	for range 2 {
		p.ctl.SetReadDeadline(time.Now().Add(patience))
		m, err := p.ctl.Recv()
		if err != nil {
			t.Fatal(err)
		}
		answers[m.ID] = m.Body.Type()
	}
	if answers[free] != ipc.TypeOK || answers[p.id] != ipc.TypeOK {
		t.Errorf("%v", answers)
	}
	for _, q := range []*proc{p, imp, tool, early} {
		q.close()
	}
	eventually(t, "all of it is given back", func() error {
		if s := d.engine.Memory().Sum(); s.Registered != 0 || s.Shared != 0 {
			return fmt.Errorf("%+v", s)
		}
		if left := d.leftovers(); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
}

// TestSessionsEndBetween: a process that ends while nobody serves is detached by the daemon
// that takes over. One that has sealed its memory in that time keeps nobody from taking over:
// it is told why it ends. A trace ends with a reason.
func TestSessionsEndBetween(t *testing.T) {
	d := startDaemon(t, nil)
	gone, stays, sealed, tracer := attached(t, d), attached(t, d), importing(t, d), rdsctlOf(t, d)
	own := filledMemory(t, 1<<20, unix.F_SEAL_SHRINK)
	sealed.send(&ipc.Import{Len: 1 << 16}, own)
	sealed.hears(sealed.id, &ipc.ImportOK{})
	tracer.send(ctlRequest(t, ctl.Request{Kind: ctl.KindTrace, Do: ctl.DoBegin, Trace: &ctl.TraceSpec{Duration: time.Hour}}))
	tracer.hears(tracer.id, &ipc.CtlPart{})
	takesTurn(t, d, uint32(os.Getuid())) // so that a request is broken off, with its descriptor
	again := filledMemory(t, 1<<20, unix.F_SEAL_SHRINK)
	sealed.send(&ipc.Import{Len: 1 << 16}, again)
	waitsIn(t, "enter")
	x := part(t, d)
	gone.close()
	if _, err := unix.FcntlInt(uintptr(own), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE); err != nil {
		t.Fatal(err)
	}
	next := x.succeed()
	eventually(t, "the one that has ended is detached", func() error {
		if n := next.admission.clientsOf()[config.UserAccount(uint32(os.Getuid()))]; n != 1 {
			return fmt.Errorf("%d processes", n)
		}
		return nil
	})
	if s := sealed.reason(); !strings.Contains(s, "F_SEAL_FUTURE_WRITE") {
		t.Error(s)
	}
	eventually(t, "the descriptor of its request is closed", func() error {
		if n := opened(t, again); n != 1 {
			return fmt.Errorf("%d descriptors, one is the test's", n)
		}
		return nil
	})
	if s := tracer.reason(); !strings.Contains(s, errReplaced.Error()) {
		t.Error(s)
	}
	stays.call(&ipc.Addrs{})
	if err := stays.ping(); err != nil {
		t.Error(err)
	}
}

// opened is how many descriptors of the file of fd this process has.
func opened(t *testing.T, fd int) (n int) {
	t.Helper()
	var want unix.Stat_t
	if err := unix.Fstat(fd, &want); err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		var s unix.Stat_t
		if unix.Stat("/proc/self/fd/"+e.Name(), &s) == nil && s.Dev == want.Dev && s.Ino == want.Ino {
			n++
		}
	}
	return n
}

// TestSessionsRefused: a state that was cut, or whose descriptors are others, is refused. The
// processes notice nothing, and the daemon before serves on.
func TestSessionsRefused(t *testing.T) {
	d := startDaemon(t, nil)
	p, tool := attached(t, d), rdsctlOf(t, d)
	p.call(&ipc.Alloc{Size: 1 << 16})
	x := part(t, d)
	p.send(&ipc.Addrs{})
	refuse := func(what string, state []byte, f *handover.Files) {
		t.Helper()
		next := x.next()
		defer next.closeAll()
		if _, err := x.adopt(next, state, f); !errors.Is(err, handover.ErrFormat) {
			t.Errorf("%s: %v", what, err)
		}
		if n, m := len(next.admission.open), next.engine.Memory().Sum(); n != 0 || m.Registered+m.Shared != 0 {
			t.Errorf("%s: %d connections, %+v", what, n, m)
		}
		next.admission.served.Wait()
	}
	for n := 12; n < len(x.state); n += 1 + n/3 {
		refuse(fmt.Sprintf("%d bytes", n), x.state[:n], x.copies())
	}
	for i := range x.files.All {
		f := x.copies()
		unix.Close(f.All[i])
		null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.All[i] = null
		refuse(fmt.Sprintf("another file %d", i), x.state, f)
	}
	f := x.copies()
	unix.Close(f.All[len(f.All)-1])
	f.All = f.All[:len(f.All)-1]
	refuse("a file too few", x.state, f)
	x.resume()
	p.hears(p.id, &ipc.AddrsOK{})
	tool.send(ctlRequest(t, ctl.Request{Kind: ctl.KindSockets}))
	tool.hears(tool.id, &ipc.CtlPart{})
	if err := p.ping(); err != nil {
		t.Error(err)
	}
}

// TestSessionsUnwatched: if the daemon that takes over lacks something for a process, the reason
// is the error.
func TestSessionsUnwatched(t *testing.T) {
	d := startDaemon(t, nil)
	p := attached(t, d)
	x := part(t, d)
	next := x.next()
	defer next.closeAll()
	ep := next.loop.ep
	next.loop.ep = -1
	if _, err := x.adopt(next, x.state, x.copies()); err == nil || !strings.Contains(err.Error(), "client 0: epoll add: bad file descriptor") {
		t.Error(err)
	}
	next.loop.ep = ep
	x.resume()
	if err := p.ping(); err != nil {
		t.Error(err)
	}
}

// TestSessionsIncomplete: what the sessions and the engine know has to be the same.
func TestSessionsIncomplete(t *testing.T) {
	d := startDaemon(t, nil)
	attached(t, d)
	x := part(t, d)
	d.admission.mu.Lock()
	for _, s := range d.admission.open {
		s.waits[engine.Awaited{Number: 77}] = 5
	}
	d.admission.mu.Unlock()
	w := handover.Write(handover.Newest)
	x.files = handover.Files{}
	h := d.sessionsToHand()
	h.handOver(w, &x.files)
	if err := d.engine.Encode(w, h.number()); err != nil {
		t.Fatal(err)
	}
	next := x.next()
	defer next.closeAll()
	if _, err := x.adopt(next, w.Bytes(), x.copies()); err == nil || !strings.Contains(err.Error(), "1 requests wait") {
		t.Error(err)
	}
	x.resume()
}

// TestLeaveSocket: a connection that is left stays open for whoever else has it. One that is
// closed does not.
func TestLeaveSocket(t *testing.T) {
	d := startDaemon(t, nil)
	for _, leaves := range []bool{true, false} {
		p := dialRaw(t, d)
		var c *connection
		d.has(t, 1)
		d.admission.mu.Lock()
		for c = range d.admission.open {
		}
		d.admission.mu.Unlock()
		own, err := unix.FcntlInt(uintptr(c.FD()), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if leaves {
			c.leave()
		} else {
			c.end()
		}
		p.ctl.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := p.ctl.Recv(); leaves != errors.Is(err, os.ErrDeadlineExceeded) || leaves == errors.Is(err, io.EOF) {
			t.Errorf("left %v: %v", leaves, err)
		}
		unix.Close(own)
		d.has(t, 0)
	}
}
