package rds

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/krds"
	"github.com/rdsd/rdsd/internal/shm"
)

// TestLane: a lane is fixed once, before anything is sent, and the daemon is
// told with each destination.
func TestLane(t *testing.T) {
	d, a, b := pair(t, Options{})
	if err := a.SetLane(5); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*Socket{"set twice": a, "after a send": b} {
		if s == b {
			mustSend(t, b, "x", a)
		}
		if err := s.SetLane(6); !errors.Is(err, ErrInvalid) || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	mustSend(t, a, "x", b)
	mustRecv(t, b, "x")
	d.do(func() {
		if d.socks[a.handle].lane != 5 || d.socks[b.handle].lane != 0 {
			t.Error("the daemon heard of other lanes")
		}
	})
	c := bindFake(t, a.c, "127.0.0.1:4002")
	if err := errors.Join(c.SetLane(0), c.SetLane(255)); err != nil {
		t.Errorf("not sent yet: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.SetLane(0); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// TestSetAnybody: the choice is made before the first send, and the daemon is told with each
// destination. A daemon that does not know it is named in the error, also after the client has
// opened again.
func TestSetAnybody(t *testing.T) {
	d, a, b := pair(t, Options{})
	if err := errors.Join(a.SetAnybody(false), a.SetAnybody(true)); err != nil {
		t.Fatal(err)
	}
	mustSend(t, a, "x", b)
	mustSend(t, b, "x", a)
	mustRecv(t, b, "x")
	for name, s := range map[string]*Socket{"off": a, "on": b} {
		if err := s.SetAnybody(s == b); !errors.Is(err, ErrInvalid) || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s after a send: %v", name, err)
		}
	}
	d.do(func() {
		if d.socks[a.handle].flags != shm.DestAnybody || d.socks[b.handle].flags != 0 {
			t.Error("the daemon heard of other flags")
		}
	})
	c, e := bindFake(t, a.c, "127.0.0.1:4002"), bindFake(t, a.c, "127.0.0.1:4003")
	if err := c.SetAnybody(true); err != nil {
		t.Fatal(err)
	}
	a.c.tx.mu.Lock()
	a.c.tx.anybody = false
	a.c.tx.mu.Unlock()
	if err := e.SetAnybody(true); !errors.Is(err, syscall.EOPNOTSUPP) || !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "upgrade it") {
		t.Errorf("an older daemon: %v", err)
	}
	if _, err := c.SendTo([]byte("x"), b.LocalAddrPort()); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("a send at an older daemon: %v", err)
	}
	krds.Of(e).PreferAnybody()
	mustSend(t, e, "x", b)
	d.do(func() {
		if d.socks[e.handle].flags != 0 {
			t.Error("an older daemon heard of flags")
		}
	})
	if err := errors.Join(c.SetAnybody(false), c.Close()); err != nil {
		t.Fatal(err)
	}
	if err := c.SetAnybody(true); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// TestExposeInLane: a grant goes in its socket's lane, so the daemon must know
// the lane first.
func TestExposeInLane(t *testing.T) {
	d, a, b := pair(t, Options{})
	region := func(s *Socket) *Region {
		r, err := s.Register(mustAlloc(t, s.c, 64), 0, 64, AllowRead)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if err := a.SetLane(3); err != nil {
		t.Fatal(err)
	}
	ra, rb := region(a), region(b)
	for _, to := range []netip.AddrPort{netip.MustParseAddrPort("10.0.0.9:0"), netip.MustParseAddrPort("10.0.0.8:1")} {
		if err := errors.Join(ra.Expose(bg(), to), rb.Expose(bg(), to)); err != nil {
			t.Fatal(err)
		}
		d.do(func() {
			if s := d.socks[a.handle]; s.lane != 3 || s.dests != 1 {
				t.Errorf("lane %d, %d destinations", s.lane, s.dests)
			}
			if s := d.socks[b.handle]; s.dests != 0 {
				t.Errorf("%d destinations in lane 0", s.dests)
			}
		})
	}
	if err := b.SetLane(1); !errors.Is(err, ErrInvalid) {
		t.Errorf("after a grant in lane 0: %v", err)
	}
}

// TestGiveUp: the limit travels in milliseconds, and what came of it is told.
func TestGiveUp(t *testing.T) {
	d, a, b := pair(t, Options{})
	to := b.LocalAddrPort()
	for _, tt := range []struct {
		d    time.Duration
		want uint32
	}{{0, 0}, {1, 1}, {time.Millisecond, 1}, {time.Millisecond + 1, 2}, {maxGiveUp, 1<<32 - 1}} {
		if got := giveUpMs(tt.d); got != tt.want {
			t.Errorf("%v: %d ms, want %d", tt.d, got, tt.want)
		}
	}
	r, err := b.Register(mustAlloc(t, b.c, 64), 0, 64, AllowWrite)
	if err != nil {
		t.Fatal(err)
	}
	d.do(func() { d.holdSends = true })
	limit := 1500 * time.Microsecond
	for range 2 {
		if _, err := a.Send(context.Background(), &Message{Payload: []byte("late"), Addr: to, GiveUpAfter: limit}); err != nil {
			t.Fatal(err)
		}
	}
	mustSend(t, a, "patient", b)
	op := RDMA{Write: true, Cookie: r.Cookie(), Local: []Segment{{mustAlloc(t, a.c, 8), 0, 8}}, Notify: true}
	id, err := a.Send(context.Background(), &Message{Addr: to, Op: &op, GiveUpAfter: limit})
	if err != nil {
		t.Fatal(err)
	}
	d.do(func() {
		for _, m := range d.held {
			if ms := m.sub.GiveUp; ms != 2 && (ms != 0 || !bytes.Contains(m.data, []byte("patient"))) {
				t.Errorf("%q gives up after %d ms", m.data, ms)
			}
		}
		d.giveUp()
	})
	if c, err := a.WaitOp(bg(), to.Addr(), id); err != nil || !errors.Is(c.Err(), Dropped) {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := a.Wait(bg(), WaitSet{Notice: true}); err != nil {
		t.Fatal(err)
	}
	var n [4]Notice
	if k := a.Notices(n[:]); k != 1 || n[0] != (Notice{GaveUp, to, 2, 0}) || n[0].Kind.Error() != "gave up" {
		t.Errorf("%d notices: %+v", k, n)
	}
	d.do(func() {
		d.holdSends = false
		d.release(func(*fakeMsg) bool { return true }, d.finish)
	})
	mustRecv(t, b, "patient")
}

// TestSetNotices: only the kinds asked for are queued and wake.
func TestSetNotices(t *testing.T) {
	d, a, b := pair(t, Options{})
	mustSend(t, a, "x", b)
	all := []uint8{shm.NoticeLost, shm.NoticeNoSocket, shm.NoticePeerDown, shm.NoticePeerUp, shm.NoticeGaveUp}
	tell := func() (got []NoticeKind) {
		d.do(func() {
			for _, k := range all {
				d.notice(d.slots[0], k, 1)
			}
		})
		var n [8]Notice
		for _, n := range n[:a.Notices(n[:])] {
			got = append(got, n.Kind)
		}
		return got
	}
	if got := tell(); len(got) != len(all) {
		t.Errorf("a new socket is told %v", got)
	}
	a.SetNotices(Lost, PeerUp)
	if got := tell(); len(got) != 2 || got[0] != Lost || got[1] != PeerUp {
		t.Errorf("told %v", got)
	}
	a.SetNotices()
	if got := tell(); len(got) != 0 {
		t.Errorf("told %v", got)
	}
}
