package rds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdsd/rdsd/internal/attach"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// blockers are one goroutine in each kind of call that waits; what they end
// with comes on the channel.
func blockers(t *testing.T, d *fakeDaemon, a, b *Socket, local *Buffer, r *Region) <-chan error {
	t.Helper()
	d.do(func() { d.holdOps, d.keepIDs = true, true })
	id := write(t, a, b.LocalAddrPort(), r, local, true)
	a.SetSndBuf(1)
	mustSend(t, a, "x", b)
	mustRecv(t, b, "x")
	host := b.LocalAddrPort().Addr()
	errs := make(chan error, 20)
	for _, f := range []func() error{
		func() error { _, _, err := a.RecvFrom(nil); return err },
		func() error { return look(bg(), a, &Received{}) },
		func() error { _, err := a.Send(bg(), &Message{}); return errOr(err, ErrInvalid) },
		func() error { _, err := a.SendTo([]byte("f"), b.LocalAddrPort()); return err },
		func() error { _, err := a.Barrier(bg(), host, id); return err },
		func() error { return a.BarrierAll(bg()) },
		func() error { _, err := a.WaitOp(bg(), host, id); return err },
		func() error { _, err := a.Wait(bg(), WaitSet{Message: true, SendSpace: true}); return err },
		func() error { _, err := a.Wait(bg(), WaitSet{ZeroCopy: true}); return err },
		func() error { _, err := a.Wait(bg(), WaitSet{congestion: true}); return err },
		func() error {
			_, err := a.Atomic(bg(), b.LocalAddrPort(), &Atomic{Cookie: r.Cookie(), Add: 1})
			return err
		},
	} {
		go func() { errs <- f() }()
	}
	synctest.Wait()
	if n := len(errs); n != 1 { // Send without a destination
		t.Fatalf("%d calls did not wait", n)
	}
	<-errs
	return errs
}

func errOr(err, want error) error {
	if errors.Is(err, want) {
		return nil
	}
	return fmt.Errorf("%v, want %v", err, want)
}

// TestEnds: Close of the socket, of the client, and the daemon's end wake
// every kind of waiting call, with the right error.
func TestEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(*fakeDaemon, *Socket)
		want []error
	}{
		"socket closed":    {func(_ *fakeDaemon, a *Socket) { a.Close() }, []error{ErrClosed, net.ErrClosed, syscall.EBADF}},
		"client closed":    {func(_ *fakeDaemon, a *Socket) { a.c.Close() }, []error{ErrClosed, net.ErrClosed}},
		"daemon killed":    {func(d *fakeDaemon, _ *Socket) { d.die(nil) }, []error{ErrDaemonGone, syscall.ECONNRESET}},
		"daemon shut down": {func(d *fakeDaemon, _ *Socket) { d.die(&ipc.SessionError{Text: "shutting down", Ends: true}) }, []error{ErrDaemonGone, syscall.ECONNRESET}},
		"session killed":   {func(d *fakeDaemon, _ *Socket) { d.die(&ipc.SessionError{Text: "because"}) }, []error{ErrSession, syscall.ECONNABORTED}},
		"ring broken": {func(d *fakeDaemon, _ *Socket) {
			d.do(func() { d.seg.SendRetProducer().Put(1 << 20) })
		}, []error{ErrSession}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, b, local, _, r := rdmaPair(t, noSpin)
				errs := blockers(t, d, a, b, local, r)
				tt.end(d, a)
				for range 10 {
					err := <-errs
					for _, want := range tt.want {
						if !errors.Is(err, want) {
							t.Errorf("%v, want %v", err, want)
						}
					}
					var ne net.Error
					if !errors.As(err, &ne) || ne.Timeout() {
						t.Errorf("%v: a timeout, or no net.Error", err)
					}
				}
				if len(d.broken) > 0 {
					t.Error(d.broken)
				}
			})
		})
	}
}

func TestDaemonGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := pair(t, noSpin)
		mustSend(t, a, "one", b)
		mustSend(t, a, "two", b)
		synctest.Wait()
		d.die(&ipc.SessionError{Text: "removed by an operator"})
		<-a.c.Done()
		if err := a.c.Err(); !errors.Is(err, ErrSession) || !strings.Contains(err.Error(), "removed by an operator") {
			t.Fatal(err)
		}
		if _, err := a.SendTo(nil, b.LocalAddrPort()); !errors.Is(err, ErrSession) {
			t.Fatal(err)
		}
		// What was delivered stays readable first.
		mustRecv(t, b, "one")
		mustRecv(t, b, "two")
		for _, ctx := range []context.Context{bg(), DontWait} {
			if err := b.Recv(ctx, &Received{}); !errors.Is(err, ErrSession) {
				t.Fatal(err)
			}
		}
		if _, err := a.c.Bind(netip.MustParseAddrPort("127.0.0.1:99")); !errors.Is(err, ErrSession) {
			t.Fatal(err)
		}
		if _, err := a.c.Alloc(100); !errors.Is(err, ErrSession) {
			t.Fatal(err)
		}
		if err := b.SetRcvBuf(100); !errors.Is(err, ErrSession) {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if err := a.c.Close(); err != nil {
			t.Fatal(err)
		}
		if err := a.c.Close(); !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
	})
}

// TestHalfClosed: while a client is being closed, what its sockets have
// forgotten already is not taken for what never was.
func TestHalfClosed(t *testing.T) {
	_, a, b, local, _, r := rdmaPair(t, Options{})
	to := b.LocalAddrPort()
	id := write(t, a, to, r, local, true)
	a.c.rx.close()
	for name, err := range map[string]error{
		"WaitOp": second(a.WaitOp(bg(), to.Addr(), id)),
		"Wait":   second(a.Wait(bg(), WaitSet{Status: []OpRef{{to.Addr(), id}}})),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUseAfterClose: every method of what is closed fails cleanly.
func TestUseAfterClose(t *testing.T) {
	for _, end := range []string{"socket", "client"} {
		t.Run(end, func(t *testing.T) {
			_, a, b, local, _, r := rdmaPair(t, Options{})
			write(t, a, b.LocalAddrPort(), r, local, true)
			mustSend(t, b, "unread", a)
			c := a.c
			if end == "socket" {
				if err := errors.Join(a.Close(), b.Close()); err != nil {
					t.Fatal(err)
				}
			} else if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			to := b.LocalAddrPort()
			for name, err := range map[string]error{
				"SendTo":      second(a.SendTo(nil, to)),
				"SendBatch":   second(a.SendBatch(context.Background(), make([]Message, 2))),
				"RecvFrom":    a.Recv(context.Background(), &Received{}),
				"Peek":        look(bg(), a, &Received{}),
				"RecvBatch":   second(a.RecvBatch(context.Background(), make([]Received, 2))),
				"Wait":        second(a.Wait(bg(), WaitSet{Message: true, Op: []OpRef{{to.Addr(), 1}}})),
				"Barrier":     second(a.Barrier(bg(), to.Addr(), 1)),
				"BarrierAll":  a.BarrierAll(bg()),
				"WaitOp":      second(a.WaitOp(bg(), to.Addr(), 1)),
				"SetDeadline": a.SetDeadline(time.Now()),
				"SetRcvBuf":   a.SetRcvBuf(5),
				"Cancel":      a.CancelSentTo(to),
				"Register":    second(a.Register(local, 0, 1, AllowRead)),
				"Release":     r.Release(bg()),
				"SetLane":     a.SetLane(1),
				"PollFD":      second(a.PollFD(takeables)),
				"Write":       a.RDMAWrite(bg(), to, &RDMA{Cookie: 1, Local: []Segment{{local, 0, 8}}}),
				"Atomic":      second(a.Atomic(bg(), to, &Atomic{Cookie: 1, Add: 1})),
				"CloseWait":   a.CloseWait(bg()),
				"Expose":      r.Expose(bg(), to),
				"Close":       a.Close(),
			} {
				if !errors.Is(err, ErrClosed) {
					t.Errorf("%s: %v", name, err)
				}
			}
			_ = a.HWM(to.Addr())
			a.SetNotices()
			(kernelSocket{a}).SetCongMonitor(true)
			_, _ = a.ZeroCopyDone(make([]uint32, 1)), (kernelSocket{a}).CongUpdates()
			_ = a.Completions(make([]Completion, 1)) + a.Notices(make([]Notice, 1))
			if end == "client" {
				if _, err := c.Bind(to); !errors.Is(err, ErrClosed) {
					t.Errorf("Bind: %v", err)
				}
				if _, err := c.Alloc(1); !errors.Is(err, ErrClosed) {
					t.Errorf("Alloc: %v", err)
				}
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }

// TestSocketClose: what a closed socket leaves behind is given back, its port
// is free, and its index's next owner gets none of it.
func TestSocketClose(t *testing.T) {
	c, d := openFake(t, Options{})
	a, b := bindFake(t, c, "127.0.0.1:4000"), bindFake(t, c, "127.0.0.1:4001")
	for round := range 20 {
		for range 3 {
			mustSend(t, a, "unread", b)
		}
		d.do(func() {})
		if round%2 == 0 {
			mustRecv(t, b, "unread")
		}
		d.do(func() { d.holdSends = true })
		mustSend(t, b, "unsent", a)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		d.do(func() { d.holdSends = false })
		was := b.handle
		if b = bindFake(t, c, "127.0.0.1:4001"); b.handle == was || shm.SockIndex(b.handle) != shm.SockIndex(was) {
			t.Fatalf("handle %#x behind %#x, want another one of the same index", b.handle, was)
		}
		if n, _, err := tryRecv(b, make([]byte, 10)); !errors.Is(err, ErrWouldBlock) {
			t.Fatalf("the new socket received %d bytes, %v", n, err)
		}
	}
	b.Close()
	c.tx.poll()
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.turn() {
	}
	if n := len(d.rxFree); n != len(d.rx) {
		t.Errorf("%d receive ids not returned", len(d.rx)-n)
	}
	if n := c.tx.arena.InUse(); n != 0 || len(c.tx.free) != len(c.tx.msgs) {
		t.Errorf("%d bytes and %d message ids in use", n, len(c.tx.msgs)-len(c.tx.free))
	}
	if n := d.recv.InUse(); n != 0 {
		t.Errorf("%d bytes of the receive arena in use", n)
	}
}

// TestCloseRaces: closing sockets and the client under load ends every call.
func TestCloseRaces(t *testing.T) {
	for round := range 30 {
		c, _ := openFake(t, Options{})
		socks := []*Socket{bindFake(t, c, "127.0.0.1:4000"), bindFake(t, c, "127.0.0.1:4001"), bindFake(t, c, "127.0.0.1:4002")}
		var wg sync.WaitGroup
		for i, s := range socks {
			to := socks[(i+1)%3].LocalAddrPort()
			p, buf := make([]byte, 100+round*1000), make([]byte, 64<<10)
			for _, f := range []func() error{
				func() error { _, err := s.SendTo(p, to); return err },
				func() error { _, _, err := s.RecvFrom(buf); return err },
				func() error { _, err := s.Wait(bg(), WaitSet{Message: true, Completion: true}); return err },
			} {
				wg.Go(func() {
					for f() == nil {
					}
				})
			}
		}
		time.Sleep(time.Duration(round) * 30 * time.Microsecond)
		wg.Go(func() { _ = socks[0].Close() })
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	missing, dead, garbage := filepath.Join(dir, "missing"), filepath.Join(dir, "dead"), filepath.Join(dir, "garbage")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: dead, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	for _, path := range []string{missing, dead} {
		_, err := Open(bg(), Options{Socket: path})
		if !errors.Is(err, ErrNoDaemon) || !strings.Contains(err.Error(), path) {
			t.Errorf("%v", err)
		}
	}
	t.Setenv("RDSD_SOCKET", missing)
	if _, err := Open(bg(), Options{}); !errors.Is(err, ErrNoDaemon) || !strings.Contains(err.Error(), missing) {
		t.Errorf("%v", err)
	}
	// Somebody who never answers.
	if l, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: garbage, Net: "unixpacket"}); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Open(timeout(t, 20*time.Millisecond), Options{Socket: garbage}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	d := newFakeDaemon(Params{})
	defer d.Close()
	if _, err := Open(attach.Through(bg(), attach.Way{Control: d}), Options{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("%v", err)
	}
	if d = newFakeDaemon(Params{}); d != nil {
		defer d.Close()
	}
	d.callHook = func(any) error { return &ipc.VersionError{Client: 1, Daemon: 2} }
	if _, err := Open(attach.Through(bg(), attach.Way{Control: d, Wake: d.client}), Options{}); !errors.Is(err, ErrVersion) || !errors.Is(err, syscall.EPROTONOSUPPORT) {
		t.Errorf("%v", err)
	}
}

// TestTimeout: only deadlines are timeouts, though syscall.EAGAIN claims to be
// one.
func TestTimeout(t *testing.T) {
	for _, err := range []error{ErrClosed, ErrDaemonGone, ErrSession, ErrNoDaemon, ErrVersion, ErrMessageTooLong, ErrWouldBlock, ErrCongested,
		ErrTooManyDestinations, ErrCompletionsFull, ErrInvalid, RemoteError, Canceled, Dropped, Unknown, OtherError,
		Completion{Status: RemoteError, Errno: syscall.EAGAIN}.Err()} {
		for _, err := range []error{err, opErr("op", netip.AddrPort{}, err)} {
			var ne net.Error
			if errors.As(err, &ne) && ne.Timeout() {
				t.Errorf("%v is a timeout", err)
			}
		}
	}
	for _, err := range []error{os.ErrDeadlineExceeded, context.DeadlineExceeded} {
		var ne net.Error
		if err := opErr("op", netip.AddrPort{}, err); !errors.As(err, &ne) || !ne.Timeout() {
			t.Errorf("%v is no timeout", err)
		}
	}
	if opErr("op", netip.AddrPort{}, nil) != nil {
		t.Error("nil became an error")
	}
}

// TestQueue compares with a slice.
func TestQueue(t *testing.T) {
	var q queue[int]
	var ref []int
	rnd := uint64(1)
	for i := range 100000 {
		rnd = rnd*6364136223846793005 + 1442695040888963407
		switch x := rnd >> 60; {
		case x < 9 || len(ref) == 0:
			q.push(i)
			ref = append(ref, i)
		case x < 15 || i%7 != 0:
			if got := q.pop(); got != ref[0] {
				t.Fatalf("step %d: popped %d, want %d", i, got, ref[0])
			}
			ref = ref[1:]
		default:
			k := int(rnd>>32) % len(ref)
			if got := q.remove(k); got != ref[k] {
				t.Fatalf("step %d: removed %d, want %d", i, got, ref[k])
			}
			ref = append(ref[:k:k], ref[k+1:]...)
		}
		if q.len() != len(ref) || len(ref) > 0 && *q.at(len(ref) - 1) != ref[len(ref)-1] {
			t.Fatalf("step %d: %d elements, want %d", i, q.len(), len(ref))
		}
	}
}
