package engine

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

const (
	success = int(abi.StatusSuccess)
	refused = int(abi.StatusRemoteError)
)

// openRegion makes a region of 64 bytes at off that everybody may use.
func (s *opSide) openRegion(off uint64, rights abi.Rights) *ipc.RegisterOK {
	s.w.t.Helper()
	return s.must(&ipc.Register{Sock: s.sock, Buffer: s.buf, Off: off, Len: 64, Access: rights | abi.Open}).(*ipc.RegisterOK)
}

// ended waits for the statuses of s and compares them.
func (s *opSide) ended(want ...int) {
	s.w.t.Helper()
	s.w.run()
	if got := s.statuses(); !slices.Equal(got, want) {
		s.w.t.Errorf("statuses %v, want %v", got, want)
	}
}

// TestOpen: whoever shows the cookie of an open region may use it, from this host and others, with a
// question for each host. Other rights, other bounds, other cookies and released regions are refused.
func TestOpen(t *testing.T) {
	for hosts := 1; hosts <= 2; hosts++ {
		w, a, b := opPair(t, hosts)
		other := w.opSide(0, 11)
		other.open(other.sock, 0, 0, hostAddr(hosts-1), 20)
		r, strict := b.openRegion(0, abi.RightWrite), b.register(abi.RightWrite)
		copy(a.mem, "written!")
		a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 8))
		a.submit(shm.Sub{Len: 10})
		a.submit(shm.Sub{}, a.op(abi.OpWrite, strict.Cookie, 8))
		a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie+1<<44, 8))
		a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie^0x100, 8))
		a.submit(shm.Sub{}, a.op(abi.OpRead, r.Cookie, 8))
		a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 60))
		a.ended(success, refused, refused, refused, refused, refused)
		other.submit(shm.Sub{}, other.op(abi.OpWrite, r.Cookie, 16))
		other.ended(success)
		if b.look(); string(b.mem[8:16]) != "written!" || len(b.msgs) != 3 || b.msgs[1].Len != 10 {
			t.Errorf("%d hosts: memory %q, messages %+v", hosts, b.mem[8:16], b.msgs)
		}
		if n := b.e.keys.by[r.Region].exp.Grants(); n != 1 {
			t.Errorf("%d hosts: %d grants", hosts, n)
		}
		if n := len(a.e.peers.hosts); n > 0 {
			if h := a.e.peers.all[0].remote; len(h.asks.of) != 0 {
				t.Errorf("%d questions under way", len(h.asks.of))
			}
		}
		if err := b.release(r.Region); err != nil {
			t.Error(err)
		}
		a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 8))
		a.ended(success, refused, refused, refused, refused, refused, refused)
		if n, _ := b.notGranted(); n != 0 {
			t.Errorf("the owner was told of %d grants", n)
		}
		w.clean(a.raw, b.raw, other.raw)
	}
}

// TestOpenLater: a region becomes open by Expose, and an answer is for what was submitted before its
// question alone. Where keys.strict names the user, it stays as it is.
func TestOpenLater(t *testing.T) {
	w, a, b := opPair(t, 2)
	r := b.register(abi.RightWrite)
	a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	a.ended(refused)
	everybody := &ipc.Expose{Region: r.Region, Addr: netip.IPv6Unspecified()}
	other := w.opSide(0, 11)
	other.open(other.sock, 0, 0, hostAddr(1), 20)
	turn := func() { a.e.Turn(w.net.Now(), Wall(w.net.Now())) }
	a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	turn()
	p := a.e.peers.all[0]
	number := uint32(p.asks.of[r.Cookie].number)
	other.submit(shm.Sub{}, other.op(abi.OpWrite, r.Cookie, 0))
	turn()
	b.must(everybody) // between what the answer says and the other's message
	a.e.keys.told(p, &wire.Ask{Cookie: r.Cookie, Number: number, Says: wire.AskNotOpen})
	a.ended(refused, refused)
	other.ended(success)
	a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	a.ended(refused, refused, success)
	w.clean(a.raw, b.raw, other.raw)

	w = newWorld(t, 2, Config{Policy: &config.Policy{Quotas: config.Quotas{User: config.NoQuota()}, Strict: []config.Who{config.UID(5)}}})
	a, b = w.opSide(0, 10), w.opSideAs(1, 20, 5)
	a.open(a.sock, 0, 0, hostAddr(1), 20)
	r = b.openRegion(0, abi.RightWrite)
	everybody.Region = r.Region
	if _, err := b.call(everybody); !errors.Is(err, unix.EACCES) {
		t.Errorf("exposed to everybody by a strict user: %v", err)
	}
	a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	a.ended(refused)
	w.clean2(a, b)
}

// TestOpenOnce: an open region for one use is used by the host that asks first, once.
func TestOpenOnce(t *testing.T) {
	w := newWorld(t, 3, Config{})
	b, a, c := w.opSide(0, 20), w.opSide(1, 10), w.opSide(2, 10)
	for i, s := range []*opSide{a, c} {
		s.open(s.sock, 0, 0, hostAddr(0), 20)
		b.open(b.sock, uint32(i), uint32(i), hostAddr(1+i), 10)
	}
	r := b.openRegion(0, abi.RightWrite|abi.UseOnce)
	a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	a.ended(success, refused)
	c.submit(shm.Sub{}, c.op(abi.OpWrite, r.Cookie, 0))
	c.ended(refused)
	if b.look(); len(b.msgs) != 1 || b.e.keys.by[r.Region] != nil {
		t.Errorf("messages %+v, region %+v", b.msgs, b.e.keys.by[r.Region])
	}
	w.clean(a.raw, b.raw, c.raw)
}

// TestOpenOnceTogether: of two hosts that ask at the same time one uses it.
func TestOpenOnceTogether(t *testing.T) {
	w := newWorld(t, 3, Config{})
	b, a, c := w.opSide(0, 20), w.opSide(1, 10), w.opSide(2, 10)
	r := b.openRegion(0, abi.RightWrite|abi.UseOnce)
	for _, s := range []*opSide{a, c} {
		s.open(s.sock, 0, 0, hostAddr(0), 20)
		s.submit(shm.Sub{Len: 10})
	}
	w.run()
	for _, s := range []*opSide{a, c} {
		s.submit(shm.Sub{}, s.op(abi.OpWrite, r.Cookie, 0))
	}
	w.run()
	st := []int{a.statuses()[0], c.statuses()[0]}
	slices.Sort(st)
	if b.look(); !slices.Equal(st, []int{success, refused}) || len(b.msgs) != 3 {
		t.Errorf("statuses %v, messages %+v", st, b.msgs)
	}
	w.clean(a.raw, b.raw, c.raw)
}

// TestAskLost: a question whose answer is lost, with the connection or with the peer's daemon, is asked
// again. A message that waits for an answer is withdrawn by its limit, and what is behind it goes on.
func TestAskLost(t *testing.T) {
	w, a, b := opPair(t, 2)
	a.submit(shm.Sub{Len: 10})
	w.run()
	r := b.openRegion(0, abi.RightWrite)
	w.net.Faults.Unreachable = 1e6
	a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	a.e.Turn(w.net.Now(), Wall(w.net.Now()))
	h := a.e.peers.all[0].remote
	if len(h.asks.of) != 1 {
		t.Fatalf("%d questions under way", len(h.asks.of))
	}
	ResetPeers(a.e, hostAddr(1), nil, nil)
	a.submit(shm.Sub{GiveUp: 20}, a.op(abi.OpWrite, r.Cookie, 0))
	a.submit(shm.Sub{Len: 20})
	w.pass(50*ms, w.es...)
	if st := a.statuses(); len(h.asks.of) != 0 || st[0] >= 0 || st[1] != int(abi.StatusDropped) {
		t.Errorf("away: %d questions under way, statuses %v", len(h.asks.of), a.statuses())
	}
	w.net.Faults.Unreachable = 0
	w.pass(3000*ms, w.es...)
	a.ended(success, int(abi.StatusDropped))
	if b.look(); len(b.msgs) != 3 {
		t.Errorf("messages %+v", b.msgs)
	}
	w.clean2(a, b)
}

// TestAskFull: an owner says yes, and this host's table has no room for the GRANT, though it has the key for
// another socket. The operation is refused.
func TestAskFull(t *testing.T) {
	w := newWorld(t, 1, Config{MaxGrants: 1})
	w.es = append(w.es, w.boot(1, 2, Config{})) // takes the other to have more room
	a, other, b := w.opSide(0, 10), w.opSide(0, 11), w.opSide(1, 20)
	a.open(a.sock, 0, 0, hostAddr(1), 20)
	r := b.openRegion(0, abi.RightWrite)
	if err := b.exposeTo(r, 0, other.port); err != nil {
		t.Fatal(err)
	}
	w.run()
	a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	a.ended(refused)
	w.clean(a.raw, b.raw, other.raw)
}

// TestAskAnswers: what an answer says when it is not for a question under way, and what is said when the
// owner can have no more grants.
func TestAskAnswers(t *testing.T) {
	w := quotaWorld(t, 2, func(q *config.Quota) { q[config.Grants] = 1 })
	a, b := w.opSideAs(0, 10, 1000), w.opSideAs(1, 20, 1000)
	a.open(a.sock, 0, 0, hostAddr(1), 20)
	first, second := b.openRegion(0, abi.RightWrite), b.openRegion(64, abi.RightWrite)
	a.submit(shm.Sub{}, a.op(abi.OpWrite, first.Cookie, 0))
	a.submit(shm.Sub{}, a.op(abi.OpWrite, second.Cookie, 0))
	a.ended(success, refused)
	p := a.e.peers.all[0]
	for _, says := range []uint16{wire.AskGranted, wire.AskNoKey, 77} {
		a.e.keys.asked(p, &wire.Ask{Cookie: second.Cookie, Number: 1, Says: says})
	}
	if n := len(p.asks.of); n != 0 {
		t.Errorf("%d questions under way", n)
	}
	w.clean2(a, b)
}

// TestAskMany: a host is asked so many questions at a time. What waits for one more is asked when there
// is room. It waits for its peer, not for its turn.
func TestAskMany(t *testing.T) {
	w, a, b := opPair(t, 2)
	a.submit(shm.Sub{Len: 10})
	w.run()
	r := b.openRegion(0, abi.RightWrite)
	p := a.e.peers.all[0]
	p.asks.of = map[uint64]*ask{}
	for cookie := range uint64(maxAsks) {
		p.asks.of[cookie<<32] = &ask{by: p}
	}
	a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	w.run()
	if says := p.waitsFor(p.paused.Head.Of, true); says != ctl.WaitsForAck || len(p.asks.of) != maxAsks {
		t.Errorf("%d questions, and it waits for: %s", len(p.asks.of), says)
	}
	a.e.keys.told(p, &wire.Ask{Cookie: 1 << 32, Says: wire.AskNoKey})
	a.ended(success)
	w.clean2(a, b)
}
