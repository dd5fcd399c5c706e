package rds

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ipc"
)

// TestReopenInFlight: what was in flight when the daemon went away has its status, its
// cookie and its count before the event, and the same handles go on with ids that do not
// start again.
func TestReopenInFlight(t *testing.T) {
	l := openLives(t, Options{})
	d := l.daemons[0]
	a, b := bindFake(t, l.c, "127.0.0.1:4000"), bindFake(t, l.c, "127.0.0.1:4001")
	to := b.LocalAddrPort()
	buf, region := target(t, l.c, b)
	write := func(token uint64, notify, report bool) uint64 {
		t.Helper()
		id, err := a.Send(context.Background(), &Message{Addr: to, Op: &RDMA{Write: true, Cookie: region.Cookie(), Local: []Segment{{buf, 0, 8}}, Token: token, Notify: notify, Report: report}})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	done := write(1, true, false)
	if _, err := a.WaitOp(soon(t), to.Addr(), done); err != nil {
		t.Fatal(err)
	}
	reported := write(2, false, true)
	if _, err := a.Barrier(soon(t), to.Addr(), reported); err != nil {
		t.Fatal(err)
	}
	for !a.idsFree() { // its message has come back: no status is owed
		time.Sleep(100 * time.Microsecond)
	}
	d.set(func() { d.holdOps, d.holdSends = true, true })
	notify, report := write(3, true, false), write(4, false, true)
	write(5, false, false)
	if _, err := a.Send(context.Background(), &Message{Addr: to, Payload: make([]byte, 5000), ZeroCopy: true, ZeroCopyCookie: 7}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := a.SendTo([]byte("x"), to); err != nil {
			t.Fatal(err)
		}
	}
	waits := make(chan error, 1)
	go func() {
		_, err := a.Barrier(soon(t), to.Addr(), notify)
		waits <- err
	}()
	l.away(d)
	if _, err := a.Send(DontWait, &Message{Addr: to}); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("send without a daemon: %v", err)
	}
	l.next(nil)
	r := l.event()
	if err := <-waits; err != nil {
		t.Errorf("Barrier across the outage: %v", err)
	}
	if len(r.Sockets) != 2 || !errors.Is(r.Cause, ErrDaemonGone) || len(r.Buffers) != 1 || len(r.Regions) != 1 {
		t.Fatalf("%+v", r)
	}
	i := slices.IndexFunc(r.Sockets, func(s SocketLoss) bool { return s.Socket == a })
	if s := r.Sockets[i]; s.Err != nil || s.Unknown != 2 || !maps.Equal(s.Unacked, map[netip.AddrPort]int{to: 7}) {
		t.Errorf("%+v", s)
	}
	comps := make([]Completion, 4)
	if n := a.Completions(comps); n != 2 || comps[0] != (Completion{Token: 3, ID: notify, To: to.Addr(), Status: Unknown}) ||
		comps[1] != (Completion{Token: 4, ID: report, To: to.Addr(), Status: Unknown}) {
		t.Errorf("%+v", comps[:n])
	}
	cookies := make([]uint32, 2)
	if n := a.ZeroCopyDone(cookies); n != 1 || cookies[0] != 7 {
		t.Errorf("zero-copy cookies %v", cookies[:n])
	}
	if hwm := a.HWM(to.Addr()); hwm != report+1 {
		t.Errorf("high-water mark %d, want %d", hwm, report+1)
	}
	if region.Cookie() != 0 || buf.Bytes() != nil { // the fake daemon's memory has no descriptor
		t.Error("buffer and region go on")
	}
	buf, region = target(t, l.c, b)
	if id := write(6, true, false); id != report+2 {
		t.Errorf("operation %d, want %d", id, report+2)
	} else if wrong := l.daemons[1].complaints(); wrong != nil {
		t.Fatal(wrong)
	} else if c, err := a.WaitOp(soon(t), to.Addr(), id); err != nil || c.Status != Success || c.Token != 6 {
		t.Errorf("%+v, %v", c, err)
	} else if hwm, err := a.Barrier(soon(t), to.Addr(), id); hwm != id || err != nil {
		t.Errorf("mark %d, %v", hwm, err)
	}
}

// complaints returns what the client has done wrong.
func (d *fakeDaemon) complaints() (broken []string) {
	d.do(func() { broken = slices.Clone(d.broken) })
	return broken
}

// idsFree reports that all messages of the client have come back.
func (s *Socket) idsFree() bool {
	t := &s.c.tx
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reap()
	return len(t.free) == len(t.msgs)
}

// target makes a buffer and a region of all of it.
func target(t testing.TB, c *Client, s *Socket) (*Buffer, *Region) {
	t.Helper()
	b, err := c.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Register(b, 0, 4096, AllowWrite)
	if err != nil {
		t.Fatal(err)
	}
	return b, r
}

// TestReopenUnread: what was delivered and not received is received after the daemons
// have changed, in order and ahead of what comes then. Two daemons go away.
func TestReopenUnread(t *testing.T) {
	l := openLives(t, Options{})
	a, b := bindFake(t, l.c, "127.0.0.1:4000"), bindFake(t, l.c, "127.0.0.1:4001")
	size := func(i int) int { return []int{3, 9000, 0, 100, 50000, 7}[i%6] }
	trace := func(i int) string { return []string{"", traceText, traceText, "", ""}[i%5] }
	sent, got := 0, 0
	send := func(n int) {
		t.Helper()
		ms := make([]Message, n)
		for i := range ms {
			ms[i] = Message{Addr: b.LocalAddrPort(), Payload: fmt.Appendf(make([]byte, size(sent)), "%d", sent), Traceparent: trace(sent)}
			sent++
		}
		if _, err := a.SendBatch(context.Background(), ms); err != nil {
			t.Fatal(err)
		}
		for !a.idsFree() {
			time.Sleep(100 * time.Microsecond)
		}
	}
	receive := func(n int) {
		t.Helper()
		for range n {
			m := Received{Payload: make([]byte, 60000)}
			if err := b.Recv(soon(t), &m); err != nil {
				t.Fatal(err)
			}
			want := fmt.Appendf(make([]byte, size(got)), "%d", got)
			if got++; string(m.Payload[:m.N]) != string(want) || m.Traceparent != trace(got-1) || m.Addr != a.LocalAddrPort() {
				t.Fatalf("message %d: %d bytes from %v, want %d", got-1, m.N, m.Addr, len(want))
			}
		}
	}
	for range 3 {
		send(14)
		receive(2) // in the middle of a run
		l.away(l.daemons[len(l.daemons)-1])
		receive(1) // while there is no daemon
		l.next(nil)
		if r := l.event(); r.Sockets[0].Unacked != nil {
			t.Errorf("%+v", r.Sockets)
		}
		receive(1)
	}
	send(5)
	receive(sent - got)
	if b.c.rx.mu.Lock(); len(b.c.rx.kept) > 0 || b.c.rx.waiting != 0 {
		t.Errorf("%d messages are kept, %d wait", len(b.c.rx.kept), b.c.rx.waiting)
	}
	b.c.rx.mu.Unlock()
}

// TestReopenBesideClose: what is closed and freed while the next daemon is asked for it
// is not left behind there, and Close and Free do not wait.
func TestReopenBesideClose(t *testing.T) {
	l := openLives(t, Options{})
	a, b := bindFake(t, l.c, "127.0.0.1:4000"), bindFake(t, l.c, "127.0.0.1:4001")
	buf, region := target(t, l.c, b)
	l.away(l.daemons[0])
	if err := region.Release(soon(t)); err != nil {
		t.Error(err)
	}
	if err := buf.Free(); err != nil {
		t.Error(err)
	}
	binds := 0
	d := l.next(func(req any) error {
		if _, is := req.(*ipc.Bind); is {
			if binds++; binds == 2 {
				return a.Close()
			}
		}
		return nil
	})
	if r := l.event(); len(r.Sockets) != 1 || r.Sockets[0].Socket != b || len(r.Regions)+len(r.Buffers) != 0 {
		t.Errorf("%+v", r)
	}
	d.callHook = nil
	bindFake(t, l.c, "127.0.0.1:4000")
}

// TestReopenPortTaken: a socket whose port is another's then ends, and the others go on.
func TestReopenPortTaken(t *testing.T) {
	l := openLives(t, Options{})
	a, b := bindFake(t, l.c, "127.0.0.1:4000"), bindFake(t, l.c, "127.0.0.1:4001")
	overrun := bindFake(t, l.c, "127.0.0.1:4002")
	overrun.end.Store(&ErrOverrun)
	_, region := target(t, l.c, a)
	if _, err := b.SendTo([]byte("before"), a.LocalAddrPort()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Wait(soon(t), WaitSet{Message: true}); err != nil {
		t.Fatal(err)
	}
	told := WaitSet{Completion: true, Notice: true, ZeroCopy: true}
	waited := make(chan error, 2)
	for _, s := range []*Socket{a, overrun} {
		go func() { waited <- second(s.Wait(soon(t), told)) }()
	}
	l.away(l.daemons[0])
	d := l.next(func(req any) error {
		if q, is := req.(*ipc.Bind); is && q.Port == 4000 {
			return &ipc.Err{Errno: uint32(syscall.EADDRINUSE), Text: "of user 7"}
		}
		return nil
	})
	r := l.event()
	for _, s := range r.Sockets {
		if (s.Socket == a) != errors.Is(s.Err, syscall.EADDRINUSE) || (s.Socket == b) != (s.Err == nil) {
			t.Errorf("%+v", s)
		}
	}
	if !errors.Is(r.Regions[region], syscall.EADDRINUSE) {
		t.Errorf("%+v", r.Regions)
	}
	p := make([]byte, 10)
	if n, _, err := a.RecvFrom(p); err != nil || string(p[:n]) != "before" {
		t.Errorf("%q, %v", p[:n], err)
	}
	if err := second(a.Wait(DontWait, told)); !errors.Is(err, ErrDaemonGone) {
		t.Fatalf("a wait for what does not come: %v", err)
	}
	for range 2 {
		if err := <-waited; !errors.Is(err, ErrDaemonGone) && !errors.Is(err, ErrOverrun) {
			t.Errorf("a wait that had begun: %v", err)
		}
	}
	_, _, recv := a.RecvFrom(p)
	_, send := a.SendTo(p, b.LocalAddrPort())
	_, register := a.Register(must(l.c.Alloc(10)), 0, 10, AllowRead)
	for what, err := range map[string]error{"receive": recv, "send": send, "SetRcvBuf": a.SetRcvBuf(9), "Register": register} {
		if !errors.Is(err, ErrDaemonGone) || !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%s at the socket that has ended: %v", what, err)
		}
	}
	d.die(nil)
	l.next(nil)
	if r := l.event(); len(r.Sockets) != 1 {
		t.Errorf("a socket that has ended is bound again: %+v", r.Sockets)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	bindFake(t, l.c, "127.0.0.1:4000")
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
