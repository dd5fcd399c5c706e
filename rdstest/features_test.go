package rdstest_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/krds"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

// between runs f between sockets of two hosts, and of one.
func between(t *testing.T, f func(t *testing.T, a, b *rds.Socket, ca, cb *rds.Client)) {
	d := rdstest.StartDaemons(t, 2)
	for name, target := range map[string]*rdstest.Daemon{"two hosts": d[1], "same host": d[0]} {
		t.Run(name, func(t *testing.T) {
			ca, cb := d[0].Open(t), target.Open(t)
			f(t, d[0].Bind(t, ca, 0), target.Bind(t, cb, 0), ca, cb)
		})
	}
}

// grant registers memory of size bytes at b for a.
func grant(t testing.TB, a, b *rds.Socket, cb *rds.Client, size int) (*rds.Buffer, *rds.Region) {
	t.Helper()
	remote := alloc(t, cb, size)
	r, err := b.Register(remote, 0, size, rds.AllowRead|rds.AllowWrite|rds.AllowAtomic)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Send(context.Background(), &rds.Message{Payload: []byte("grant"), Addr: a.LocalAddrPort(), Cookie: r.Cookie()}); err != nil {
		t.Fatal(err)
	}
	receive(t, a, "grant")
	return remote, r
}

func receive(t testing.TB, s *rds.Socket, want string) {
	t.Helper()
	_ = s.SetReadDeadline(time.Now().Add(patience))
	m := rds.Received{Payload: make([]byte, len(want)+1)}
	if err := s.Recv(context.Background(), &m); err != nil || string(m.Payload[:m.N]) != want {
		t.Fatalf("received %q, %v, want %q", m.Payload[:m.N], err, want)
	}
}

// TestAtomics: every addition counts once, and a swap has one winner.
func TestAtomics(t *testing.T) {
	between(t, func(t *testing.T, a, b *rds.Socket, ca, cb *rds.Client) {
		remote, r := grant(t, a, b, cb, 64)
		to := b.LocalAddrPort()
		const workers, each = 4, 50
		var wg sync.WaitGroup
		var mu sync.Mutex
		seen := map[uint64]int{}
		winners := 0
		for w := range workers {
			wg.Go(func() {
				for range each {
					old, err := a.Atomic(soon(t), to, &rds.Atomic{Cookie: r.Cookie(), RemoteOff: 8, Add: 3})
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					seen[old]++
					mu.Unlock()
				}
				old, err := a.Atomic(soon(t), to, &rds.Atomic{CmpSwap: true, Cookie: r.Cookie(), RemoteOff: 16, Swap: uint64(w + 1)})
				if err != nil {
					t.Error(err)
				}
				if old == 0 {
					mu.Lock()
					winners++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if sum := binary.NativeEndian.Uint64(remote.Bytes()[8:]); sum != workers*each*3 || len(seen) != workers*each || winners != 1 {
			t.Errorf("sum %d, %d different old values, %d winners", sum, len(seen), winners)
		}
		// Masked, and with a write in the same message.
		local := alloc(t, ca, 64)
		copy(local.Bytes()[32:], "written ahead")
		m := rds.Message{Payload: []byte("both"), Addr: to,
			Op:     &rds.RDMA{Write: true, Cookie: r.Cookie(), RemoteOff: 32, Local: []rds.Segment{{Buf: local, Off: 32, Len: 13}}, Notify: true},
			Atomic: &rds.Atomic{Cookie: r.Cookie(), RemoteOff: 24, Add: 0x1ff, NoCarry: 0x80, Local: rds.Segment{Buf: local, Off: 8, Len: 8}, Notify: true}}
		for _, want := range []uint64{0x1ff, 0x2fe} { // 0xff + 0xff = 0xfe, nothing carried
			last, err := a.Send(context.Background(), &m)
			if err != nil {
				t.Fatal(err)
			}
			receive(t, b, "both")
			if _, err := a.Barrier(soon(t), to.Addr(), last); err != nil {
				t.Fatal(err)
			}
			for _, id := range []uint64{m.OpID, m.AtomicID} {
				if c, err := a.WaitOp(soon(t), to.Addr(), id); err != nil || c.Err() != nil {
					t.Fatal(c, err)
				}
			}
			if now := binary.NativeEndian.Uint64(remote.Bytes()[24:]); now != want {
				t.Fatalf("%#x, want %#x", now, want)
			}
			if string(remote.Bytes()[32:45]) != "written ahead" {
				t.Fatal("not written")
			}
		}
		old, err := a.Atomic(soon(t), to, &rds.Atomic{CmpSwap: true, Cookie: r.Cookie(), RemoteOff: 24, Masked: true,
			CompareMask: 0xff, Compare: 0xfe, SwapMask: 0xff00, Swap: 0xabcd})
		if now := binary.NativeEndian.Uint64(remote.Bytes()[24:]); err != nil || old != 0x2fe || now != 0xabfe {
			t.Errorf("old %#x, now %#x, %v", old, now, err)
		}
	})
}

// TestSync: what Write wrote Read reads.
func TestSync(t *testing.T) {
	between(t, func(t *testing.T, a, b *rds.Socket, ca, cb *rds.Client) {
		remote, r := grant(t, a, b, cb, 4096)
		local := alloc(t, ca, 4096)
		copy(local.Bytes(), "hello")
		op := rds.RDMA{Cookie: r.Cookie(), RemoteOff: 1001, Local: []rds.Segment{{Buf: local, Off: 0, Len: 5}}}
		if err := a.RDMAWrite(soon(t), b.LocalAddrPort(), &op); err != nil || string(remote.Bytes()[1001:1006]) != "hello" {
			t.Fatal(err)
		}
		op.Local[0].Off = 100
		if err := a.RDMARead(soon(t), b.LocalAddrPort(), &op); err != nil || string(local.Bytes()[100:105]) != "hello" {
			t.Fatal(err)
		}
		op.RemoteOff = 4095
		if err := a.RDMARead(soon(t), b.LocalAddrPort(), &op); !errors.Is(err, rds.RemoteError) || !errors.Is(err, unix.ERANGE) {
			t.Error(err)
		}
	})
}

// TestLanes: sockets in different lanes reach each other's hosts, grants
// included, and order holds in each.
func TestLanes(t *testing.T) {
	between(t, func(t *testing.T, a, b *rds.Socket, ca, cb *rds.Client) {
		for _, lane := range []uint8{0, 1, 255} {
			at := b.LocalAddrPort()
			s := bindLike(t, ca, a.LocalAddrPort().Addr(), lane)
			for i := range 50 {
				if _, err := s.SendTo(fmt.Append(nil, i), at); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 50 {
				receive(t, b, fmt.Sprint(i))
			}
			_, r := grant(t, s, b, cb, 64)
			if _, err := s.Atomic(soon(t), at, &rds.Atomic{Cookie: r.Cookie(), Add: 1}); err != nil {
				t.Errorf("lane %d: %v", lane, err)
			}
			// A region exposed by a socket in that lane.
			mine, err := s.Register(alloc(t, ca, 64), 0, 64, rds.AllowAtomic)
			if err != nil {
				t.Fatal(err)
			}
			if err := mine.Expose(soon(t), b.LocalAddrPort()); err != nil {
				t.Fatal(err)
			}
			if _, err := s.SendTo([]byte("after"), at); err != nil {
				t.Fatal(err)
			}
			receive(t, b, "after")
			if _, err := b.Atomic(soon(t), s.LocalAddrPort(), &rds.Atomic{Cookie: mine.Cookie(), Add: 1}); err != nil {
				t.Errorf("lane %d: exposed: %v", lane, err)
			}
		}
	})
}

// TestCloseWait: all that was sent is there when it returns.
func TestCloseWait(t *testing.T) {
	between(t, func(t *testing.T, a, b *rds.Socket, ca, cb *rds.Client) {
		const n = 300
		for i := range n {
			if _, err := a.SendTo(fmt.Append(nil, i), b.LocalAddrPort()); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.CloseWait(soon(t)); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			receive(t, b, fmt.Sprint(i))
		}
	})
}

// TestPollFD: a poll loop gets every message, and uses no processor time when
// there is none.
func TestPollFD(t *testing.T) {
	between(t, func(t *testing.T, a, b *rds.Socket, ca, cb *rds.Client) {
		fd, err := b.PollFD(rds.WaitSet{Message: true})
		if err != nil {
			t.Fatal(err)
		}
		const n = 200
		go func() {
			for i := range n {
				if _, err := a.SendTo(fmt.Append(nil, i), b.LocalAddrPort()); err != nil {
					t.Error(err)
				}
			}
		}()
		for i := 0; i < n; {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if ready, err := unix.Poll(fds, 20_000); err == unix.EINTR {
				continue
			} else if ready != 1 {
				t.Fatalf("message %d: %v", i, err)
			}
			m := rds.Received{Payload: make([]byte, 10)}
			for b.Recv(rds.DontWait, &m) == nil {
				if string(m.Payload[:m.N]) != fmt.Sprint(i) {
					t.Fatalf("%q, want %d", m.Payload[:m.N], i)
				}
				i++
			}
		}
	})
}

// TestGiveUp: a message whose destination cannot be reached in time is
// withdrawn, and one that can is delivered.
func TestGiveUp(t *testing.T) {
	d := rdstest.StartDaemons(t, 2)
	s, peer := d[0].Bind(t, d[0].Open(t), 0), d[1].Bind(t, d[1].Open(t), 4000)
	to := peer.LocalAddrPort()
	if _, err := s.Send(context.Background(), &rds.Message{Payload: []byte("in time"), Addr: to, GiveUpAfter: time.Minute}); err != nil {
		t.Fatal(err)
	}
	receive(t, peer, "in time")
	if err := d[1].Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Wait(soon(t), rds.WaitSet{Notice: true}); err != nil { // down
		t.Fatal(err)
	}
	s.SetNotices(rds.GaveUp)
	s.Notices(make([]rds.Notice, 10))
	const n = 20
	for range n {
		if _, err := s.Send(context.Background(), &rds.Message{Payload: []byte("late"), Addr: to, GiveUpAfter: 30 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
	}
	for gone := uint64(0); gone < n; {
		if _, err := s.Wait(soon(t), rds.WaitSet{Notice: true}); err != nil {
			t.Fatal(err)
		}
		var ns [4]rds.Notice
		for _, x := range ns[:s.Notices(ns[:])] {
			if x.Kind != rds.GaveUp || x.To != to {
				t.Fatalf("%+v", x)
			}
			gone += x.Count
		}
	}
	d[1].Start(t)
	again := d[1].Bind(t, d[1].Open(t), 4000)
	if _, err := s.SendTo([]byte("after"), to); err != nil {
		t.Fatal(err)
	}
	receive(t, again, "after")
}

// TestFrom: a payload goes out from where it lies, in one piece or many.
func TestFrom(t *testing.T) {
	between(t, func(t *testing.T, a, b *rds.Socket, ca, cb *rds.Client) {
		const size = rds.MaxMessage
		buf := alloc(t, ca, size+1)
		for i := range buf.Bytes() {
			buf.Bytes()[i] = byte(i * 13 >> 3)
		}
		if err := a.SetSndBuf(4 * size); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, size)
		for i, n := range []int{1, 100, 4096, 70_000, size} {
			m := rds.Message{From: rds.Segment{Buf: buf, Off: 1, Len: n}, Addr: b.LocalAddrPort(), ZeroCopy: true, ZeroCopyCookie: uint32(i)}
			if _, err := a.Send(context.Background(), &m); err != nil {
				t.Fatal(err)
			}
			if k, _, err := b.RecvFrom(got); k != n || err != nil || !bytes.Equal(got[:n], buf.Bytes()[1:1+n]) {
				t.Fatalf("%d bytes of %d: %v, or others than were sent", k, n, err)
			}
			if _, err := a.Wait(soon(t), rds.WaitSet{ZeroCopy: true}); err != nil {
				t.Fatal(err)
			}
			var done [2]uint32
			if k := a.ZeroCopyDone(done[:]); k != 1 || done[0] != uint32(i) {
				t.Fatal(k, done)
			}
		}
		if err := buf.Free(); err != nil {
			t.Errorf("free when all are acknowledged: %v", err)
		}
	})
}

// TestRxTrace: the way of a message takes some time, and less than all.
func TestRxTrace(t *testing.T) {
	between(t, func(t *testing.T, a, b *rds.Socket, ca, cb *rds.Client) {
		// The daemon takes the time when a turn begins. It has begun one since began when a
		// message has gone to and fro.
		began := time.Now()
		for _, way := range [][2]*rds.Socket{{a, b}, {b, a}} {
			if _, err := way[0].SendTo(nil, way[1].LocalAddrPort()); err != nil {
				t.Fatal(err)
			}
			if _, _, err := way[1].RecvFrom(nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := a.SendTo(make([]byte, 100_000), b.LocalAddrPort()); err != nil {
			t.Fatal(err)
		}
		m := rds.Received{}
		if _, err := b.Wait(soon(t), rds.WaitSet{Message: true}); err != nil {
			t.Fatal(err)
		}
		assembly, err := krds.Of(b).Recv(&m, false)
		if err != nil {
			t.Fatal(err)
		}
		all, delivered := time.Since(began), time.Since(m.Time)
		if assembly < 0 || delivered <= 0 || assembly+delivered > all {
			t.Errorf("%v and %v of %v", assembly, delivered, all)
		}
	})
}

// TestCongUpdates: a sender that was refused is told once when its receiver has
// room again.
func TestCongUpdates(t *testing.T) {
	between(t, func(t *testing.T, a, b *rds.Socket, ca, cb *rds.Client) {
		if err := b.SetRcvBuf(1000); err != nil {
			t.Fatal(err)
		}
		monitor := krds.Of(a)
		monitor.SetCongMonitor(true)
		bit := uint64(1) << (b.LocalAddrPort().Port() % 64)
		msg := make([]byte, 100)
		for range 3 {
			sent := 0
			for {
				m := rds.Message{Payload: msg, Addr: b.LocalAddrPort()}
				_, err := a.Send(rds.DontWait, &m)
				if errors.Is(err, rds.ErrCongested) {
					break
				} else if err == nil {
					sent++
				} else if !errors.Is(err, rds.ErrWouldBlock) {
					t.Fatal(err)
				}
			}
			for range sent {
				if _, _, err := b.RecvFrom(msg); err != nil {
					t.Fatal(err)
				}
			}
			var told rds.WaitSet
			*krds.Congestion(&told) = true
			if _, err := a.Wait(soon(t), told); err != nil {
				t.Fatal(err)
			}
			if got, again := monitor.CongUpdates(), monitor.CongUpdates(); got != bit || again != 0 {
				t.Fatalf("mask %#x, then %#x, want %#x once", got, again, bit)
			}
		}
	})
}
