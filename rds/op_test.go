package rds

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// rdmaPair is two sockets, a local buffer and an exposed region.
func rdmaPair(t testing.TB, o Options) (d *fakeDaemon, a, b *Socket, local, remote *Buffer, r *Region) {
	d, a, b = pair(t, o)
	local, remote = mustAlloc(t, a.c, 4096), mustAlloc(t, a.c, 4096)
	r, err := b.Register(remote, 0, 4096, AllowRead|AllowWrite)
	if err != nil {
		t.Fatal(err)
	}
	return d, a, b, local, remote, r
}

func mustAlloc(t testing.TB, c *Client, n int) *Buffer {
	t.Helper()
	b, err := c.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRDMA(t *testing.T) {
	_, a, b, local, remote, r := rdmaPair(t, Options{})
	to := b.LocalAddrPort()
	for i := range local.Bytes() {
		local.Bytes()[i] = byte(i)
	}
	id, err := a.Send(context.Background(), &Message{Payload: []byte("wrote"), Addr: to, Op: &RDMA{Write: true, Cookie: r.Cookie(), RemoteOff: 100,
		Local: []Segment{{local, 1, 2}, {local, 10, 3}}, Token: 77, Notify: true}})
	if err != nil || id != 1 {
		t.Fatal(id, err)
	}
	mustRecv(t, b, "wrote")
	if got := remote.Bytes()[100:106]; !bytes.Equal(got, []byte{1, 2, 10, 11, 12, 0}) {
		t.Fatalf("written %v", got)
	}
	if hwm, err := a.Barrier(bg(), to.Addr(), id); hwm != 1 || err != nil || a.HWM(to.Addr()) != 1 {
		t.Fatal(hwm, err)
	}
	got, err := a.WaitOp(bg(), to.Addr(), id)
	if want := (Completion{Token: 77, ID: 1, To: to.Addr()}); got != want || err != nil || got.Err() != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := a.WaitOp(bg(), to.Addr(), id); !errors.Is(err, ErrInvalid) {
		t.Fatalf("a status that was taken: %v", err)
	}

	m := Message{Addr: to, Op: &RDMA{Cookie: r.Cookie(), RemoteOff: 101, Local: []Segment{{local, 0, 4}}, Silent: true}}
	if id, err := a.Send(context.Background(), &m); id != 2 || m.OpID != 2 || err != nil {
		t.Fatal(id, err)
	}
	if _, err := a.Barrier(bg(), to.Addr(), 2); err != nil {
		t.Fatal(err)
	}
	if got := local.Bytes()[:4]; !bytes.Equal(got, []byte{2, 10, 11, 12}) {
		t.Fatalf("read %v", got)
	}
	if _, _, err := tryRecv(b, nil); !errors.Is(err, ErrWouldBlock) {
		t.Fatalf("a silent operation was delivered: %v", err)
	}
	if n := a.Completions(make([]Completion, 4)); n != 0 {
		t.Fatalf("%d completions nobody asked for", n)
	}
}

func TestCookieTravels(t *testing.T) {
	_, a, b, _, _, r := rdmaPair(t, Options{})
	if _, err := b.Send(context.Background(), &Message{Addr: a.LocalAddrPort(), Cookie: r.Cookie()}); err != nil {
		t.Fatal(err)
	}
	var m Received
	if err := a.Recv(context.Background(), &m); err != nil || m.Cookie != r.Cookie() {
		t.Fatalf("%#x, %v", m.Cookie, err)
	}
	if err := r.Expose(bg(), a.LocalAddrPort()); err != nil {
		t.Fatal(err)
	}
	for _, to := range []netip.AddrPort{{}, netip.AddrPortFrom(netip.IPv6Unspecified(), 1), netip.AddrPortFrom(netip.IPv4Unspecified(), 0)} {
		if err := r.Expose(bg(), to); !errors.Is(err, ErrInvalid) {
			t.Fatal(err)
		}
	}
	if err := r.Expose(bg(), all); err != nil {
		t.Fatal(err)
	}
	if err := r.Release(bg()); err != nil {
		t.Fatal(err)
	}
	if err := r.Release(bg()); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if err := r.Expose(bg(), all); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if err := r.Expose(bg(), a.LocalAddrPort()); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if _, err := b.Send(context.Background(), &Message{Addr: a.LocalAddrPort(), Cookie: r.Cookie()}); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("a released cookie: %v", err)
	}
}

// TestStatuses: what the daemon refuses is a status with an errno, and the
// mark passes it.
func TestStatuses(t *testing.T) {
	_, a, b, local, remote, r := rdmaPair(t, Options{})
	readOnly, err := b.Register(remote, 0, 64, AllowRead)
	if err != nil {
		t.Fatal(err)
	}
	to := b.LocalAddrPort()
	for i, tt := range []struct {
		op   RDMA
		want error
	}{
		{RDMA{Write: true, Cookie: 12345}, syscall.EINVAL},
		{RDMA{Write: true, Cookie: readOnly.Cookie()}, syscall.EACCES},
		{RDMA{Cookie: r.Cookie(), RemoteOff: 4095}, syscall.ERANGE},
	} {
		tt.op.Local, tt.op.Notify = []Segment{{local, 0, 8}}, i != 1
		tt.op.Report = i == 1
		id, err := a.Send(context.Background(), &Message{Addr: to, Op: &tt.op})
		if err != nil || id != uint64(i+1) {
			t.Fatal(id, err)
		}
		if _, err := a.Wait(bg(), WaitSet{Completion: true}); err != nil {
			t.Fatal(err)
		}
		var got [2]Completion
		if n := a.Completions(got[:]); n != 1 || !errors.Is(got[0].Err(), RemoteError) || !errors.Is(got[0].Err(), tt.want) {
			t.Fatalf("%d: %+v, want %v", n, got[0], tt.want)
		}
		if hwm, err := a.Barrier(bg(), to.Addr(), id); hwm != id || err != nil {
			t.Fatal(hwm, err)
		}
	}
	for s, errno := range map[Status]syscall.Errno{RemoteError: syscall.EIO, Canceled: syscall.ECANCELED, Dropped: syscall.EPIPE,
		OtherError: syscall.EIO, Unknown: syscall.ETIME} {
		if err := (Completion{Status: s}).Err(); !errors.Is(err, s) || !errors.Is(err, errno) || errors.Is(err, Success) {
			t.Errorf("%v: %v", s, err)
		}
	}
	if err := (Completion{Status: Success}).Err(); err != nil {
		t.Error(err)
	}
}

func TestBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b, local, _, r := rdmaPair(t, noSpin)
		to := b.LocalAddrPort()
		host := to.Addr()
		if hwm, err := a.Barrier(bg(), host, 0); hwm != 0 || err != nil {
			t.Fatal(hwm, err)
		}
		d.do(func() { d.holdOps = true })
		for range 5 {
			write(t, a, to, r, local, true)
		}
		if _, err := a.Barrier(bg(), host, 6); !errors.Is(err, syscall.EINVAL) {
			t.Fatalf("an operation not issued: %v", err)
		}
		if _, err := a.Barrier(timeout(t, time.Second), host, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if _, err := a.WaitOp(timeout(t, time.Second), host, 2); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		var order []uint64
		done := make(chan uint64)
		for _, id := range []uint64{4, 2, 3, 5, 2} {
			go func() {
				hwm, err := a.Barrier(bg(), host, id)
				if err != nil || hwm < id {
					t.Error(hwm, err)
				}
				done <- id
			}()
			synctest.Wait()
		}
		all := make(chan error, 1)
		go func() { all <- a.BarrierAll(bg()) }()
		synctest.Wait()
		for _, step := range []struct {
			finish uint64
			want   []uint64
		}{{2, nil}, {1, []uint64{2, 2}}, {5, nil}, {4, nil}, {3, []uint64{3, 4, 5}}} {
			d.do(func() { d.release(func(m *fakeMsg) bool { return m.ops[0].OpID == step.finish }, d.finish) })
			synctest.Wait()
			order = order[:0]
			for range step.want {
				order = append(order, <-done)
			}
			slices.Sort(order)
			if !slices.Equal(order, step.want) {
				t.Fatalf("after %d: %v, want %v", step.finish, order, step.want)
			}
		}
		if err := <-all; err != nil {
			t.Fatal(err)
		}
		comps := make([]Completion, 10)
		n := a.Completions(comps)
		ids := []uint64{}
		for _, c := range comps[:n] {
			ids = append(ids, c.ID)
		}
		if !slices.Equal(ids, []uint64{2, 1, 5, 4, 3}) {
			t.Fatalf("completions %v, not in the order they settled", ids)
		}
	})
}

// TestReusedCell: the mark of a barrier cell's former socket is not the new
// one's, also before the daemon has heard of the change.
func TestReusedCell(t *testing.T) {
	d, a, b, local, _, r := rdmaPair(t, Options{Params: Params{Cells: 2}})
	to := b.LocalAddrPort()
	for range 2 {
		if _, err := a.Barrier(bg(), to.Addr(), write(t, a, to, r, local, false)); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	s := bindFake(t, a.c, "127.0.0.1:4500")
	d.do(func() { d.holdOps = true })
	resume := d.pause()
	if id := write(t, s, to, r, local, false); id != 1 {
		t.Errorf("the first operation of a socket has id %d", id)
	}
	if hwm := s.HWM(to.Addr()); hwm != 0 {
		t.Errorf("mark %d before anything was done", hwm)
	}
	resume()
	d.do(func() {})
	if hwm := s.HWM(to.Addr()); hwm != 0 {
		t.Errorf("mark %d before anything was done", hwm)
	}
	d.do(func() { d.release(func(*fakeMsg) bool { return true }, d.finish) })
	if hwm, err := s.Barrier(bg(), to.Addr(), 1); hwm != 1 || err != nil {
		t.Error(hwm, err)
	}
}

// write issues a small write.
func write(t testing.TB, a *Socket, to netip.AddrPort, r *Region, local *Buffer, notify bool) uint64 {
	t.Helper()
	id, err := a.Send(context.Background(), &Message{Addr: to, Op: &RDMA{Write: true, Cookie: r.Cookie(), Local: []Segment{{local, 0, 8}}, Notify: notify}})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestWaitOps: Wait for operations, by mark and by status.
func TestWaitOps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b, local, _, r := rdmaPair(t, noSpin)
		to := b.LocalAddrPort()
		d.do(func() { d.holdOps = true })
		ref := func(id uint64) OpRef { return OpRef{to.Addr(), id} }
		for range 3 {
			write(t, a, to, r, local, true)
		}
		if _, err := a.Wait(bg(), WaitSet{Op: []OpRef{ref(9)}}); !errors.Is(err, syscall.EINVAL) {
			t.Fatal(err)
		}
		got := make(chan WaitSet)
		for _, w := range []WaitSet{{Op: []OpRef{ref(3), ref(2)}}, {Status: []OpRef{ref(2), ref(3)}}} {
			go func() {
				ready, err := a.Wait(bg(), w)
				if err != nil {
					t.Error(err)
				}
				got <- ready
			}()
		}
		synctest.Wait()
		finish := func(id uint64) {
			d.do(func() { d.release(func(m *fakeMsg) bool { return m.ops[0].OpID == id }, d.finish) })
		}
		finish(2)
		if w := <-got; !slices.Equal(w.Status, []OpRef{ref(2)}) || w.Op != nil {
			t.Fatalf("%+v", w)
		}
		finish(1)
		if w := <-got; !slices.Equal(w.Op, []OpRef{ref(2)}) {
			t.Fatalf("%+v", w)
		}
		if c, err := a.WaitOp(bg(), to.Addr(), 1); err != nil || c.ID != 1 {
			t.Fatal(c, err)
		}
		waited := make(chan error)
		go func() {
			c, err := a.WaitOp(bg(), to.Addr(), 3)
			if c.Status != Canceled {
				t.Errorf("%+v", c)
			}
			waited <- err
		}()
		synctest.Wait()
		if err := a.CancelSentTo(to); err != nil {
			t.Fatal(err)
		}
		if err := <-waited; err != nil {
			t.Fatal(err)
		}
		if a.HWM(to.Addr()) != 3 {
			t.Error("the mark did not pass the cancelled operation")
		}
	})
}

// TestCompletionLimit: a socket that never takes its completions is stopped,
// and no completion is lost.
func TestCompletionLimit(t *testing.T) {
	_, a, b, local, _, r := rdmaPair(t, Options{Params: Params{MaxMsgs: 16, EventEntries: 4}})
	go func() {
		for {
			if _, _, err := b.RecvFrom(nil); err != nil {
				return
			}
		}
	}()
	to := b.LocalAddrPort()
	var n int
	for {
		id, err := a.Send(context.Background(), &Message{Addr: to, Op: &RDMA{Write: true, Cookie: r.Cookie(), Local: []Segment{{local, 0, 8}}, Notify: true}})
		if errors.Is(err, ErrCompletionsFull) {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Error(err)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
		if _, err := a.Barrier(bg(), to.Addr(), id); err != nil {
			t.Fatal(err)
		}
		if n > 100 {
			t.Fatal("no limit")
		}
	}
	if got := a.Completions(make([]Completion, 100)); got != n || n != 16 {
		t.Fatalf("%d completions of %d operations, want 16", got, n)
	}
	write(t, a, to, r, local, true)
}
