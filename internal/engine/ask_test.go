package engine

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/chores"
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
			if h := a.e.peers.all[0].remote; h.asks.under != 0 || len(h.asks.of) != 2 {
				t.Errorf("%d questions under way, %d remembered", h.asks.under, len(h.asks.of))
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
	b.must(everybody)
	a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	a.ended(refused, success)
	w.clean2(a, b)

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
	if h.asks.under != 1 {
		t.Fatalf("%d questions under way", h.asks.under)
	}
	ResetPeers(a.e, hostAddr(1), nil)
	a.submit(shm.Sub{GiveUp: 20}, a.op(abi.OpWrite, r.Cookie, 0))
	a.submit(shm.Sub{Len: 20})
	w.pass(50*ms, w.es...)
	if st := a.statuses(); h.asks.under != 0 || st[0] >= 0 || st[1] != int(abi.StatusDropped) {
		t.Errorf("away: %d questions under way, statuses %v", h.asks.under, a.statuses())
	}
	w.net.Faults.Unreachable = 0
	w.pass(3000*ms, w.es...)
	a.ended(success, int(abi.StatusDropped))
	if b.look(); len(b.msgs) != 3 {
		t.Errorf("messages %+v", b.msgs)
	}
	w.clean2(a, b)
}

// TestGuesses: whoever shows wrong cookies without end has no more of them asked for. Another user has.
func TestGuesses(t *testing.T) {
	for hosts := 1; hosts <= 2; hosts++ {
		testGuesses(t, hosts)
	}
}

func testGuesses(t *testing.T, hosts int) {
	w := newWorld(t, hosts, Config{})
	evil, good, b := w.opSideAs(0, 10, 1000), w.opSideAs(0, 11, 1001), w.opSide(hosts-1, 20)
	r := b.openRegion(0, abi.RightWrite)
	for _, s := range []*opSide{evil, good} {
		s.open(s.sock, 0, 0, hostAddr(hosts-1), 20)
	}
	acct := evil.cl.acct
	good.submit(shm.Sub{}, good.op(abi.OpWrite, r.Cookie, 0)) // so that nobody has to ask any more
	good.ended(success)
	evil.submit(shm.Sub{}, evil.op(abi.OpWrite, r.Cookie^0x100, 0))
	if evil.ended(refused); acct.wrong != 1 {
		t.Errorf("%d wrong keys are counted", acct.wrong)
	}
	for range maxWrong {
		acct.guessed(w.net.Now())
	}
	evil.submit(shm.Sub{}, evil.op(abi.OpWrite, r.Cookie, 0))
	evil.ended(refused, refused)
	good.submit(shm.Sub{}, good.op(abi.OpWrite, r.Cookie, 0))
	good.ended(success, success)
	w.pass(wrongNs, w.es...)
	evil.submit(shm.Sub{}, evil.op(abi.OpWrite, r.Cookie, 0))
	evil.ended(refused, refused, success)
	w.clean(evil.raw, good.raw, b.raw)
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
	if p.asks.under != 0 {
		t.Errorf("%d questions under way", p.asks.under)
	}
	for cookie := range uint64(3 * maxAsks) {
		p.asks.sweep()
		p.asks.of[cookie<<32] = &ask{}
	}
	if n := len(p.asks.of); n > maxAsks+1 {
		t.Errorf("%d answers are kept", n)
	}
	w.clean2(a, b)
}

// TestAskMany: an answer is one for who asked though it is forgotten before he looks, for those of many
// others. Otherwise many that wait would have each other ask for ever. What waits for a key does not wait
// for its turn.
func TestAskMany(t *testing.T) {
	w, a, b := opPair(t, 2)
	a.submit(shm.Sub{Len: 10})
	w.run()
	wrong := b.openRegion(0, abi.RightWrite).Cookie ^ 0x100
	a.submit(shm.Sub{}, a.op(abi.OpWrite, wrong, 0))
	a.e.Turn(w.net.Now(), Wall(w.net.Now()))
	p := a.e.peers.all[0]
	if says := p.waitsFor(p.paused.Head.Of, true); says != ctl.WaitsForAck {
		t.Errorf("it waits for: %s", says)
	}
	a.e.chores.Spend(2 * chores.Budget) // nobody looks in this turn
	a.e.keys.told(p, &wire.Ask{Cookie: wrong, Number: uint32(p.asks.of[wrong].number), Says: wire.AskNoKey})
	for cookie := range uint64(2 * maxAsks) {
		p.asks.sweep()
		p.asks.of[cookie<<32] = &ask{}
	}
	if p.asks.of[wrong] != nil {
		t.Fatal("the answer is not forgotten")
	}
	a.e.Turn(w.net.Now(), Wall(w.net.Now()))
	if n := p.asks.under; n != 0 || a.statuses()[0] != refused {
		t.Errorf("%d questions under way, statuses %v", n, a.statuses())
	}
	w.run()
	w.clean2(a, b)
}
