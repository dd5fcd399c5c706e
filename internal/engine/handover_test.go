package engine

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/chores"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/verbs"
)

// handedOver is a host whose engine stands still with something of all that a state has of
// users and processes.
type handedOver struct {
	*world
	all   []*opSide
	cfg   Config
	later Awaited // by a request of the first

	version uint16 // of the state; 0: handover.Newest
}

// handOver makes one.
func handOver(t *testing.T) *handedOver {
	q := config.NoQuota()
	q[config.Destinations] = 1
	cfg := Config{HardCap: 1, MaxSend: 1 << 10, SendBufs: 4, RecvBufs: 16, MaxPeers: 8, OverflowBytes: 1 << 20,
		Policy: &config.Policy{Quotas: config.Quotas{User: q}, Owner: 500}}
	h := &handedOver{world: newWorld(t, 1, cfg), cfg: cfg}
	a, b, few := h.opSide(0, 10), h.opSide(0, 20), h.opSideAs(0, 30, 1000)
	h.all = []*opSide{a, b, few}
	h.delivered(a, b)
	h.waiting(a, b)
	h.places(few)
	h.buffers(a, b)
	h.pending(a, b)
	e := h.es[0]
	e.drains.setDrain(netip.MustParseAddr("10.9.9.9"), true)
	for _, s := range h.all {
		s.alive(true)
	}
	e.Halt()
	for n := 0; !e.Halted(); n++ {
		if e.Turn(h.net.Now(), Wall(h.net.Now())); n > 1000 {
			t.Fatal("the engine does not stand still")
		}
	}
	return h
}

// delivered leaves b with a run of which it has given parts back, a with an operation that
// is done, and both with a socket handle that was used before.
func (h *handedOver) delivered(a, b *opSide) {
	for _, s := range []*opSide{a, b} {
		s.must(&ipc.CloseSock{Sock: s.bind(s.port + 1)})
	}
	a.open(a.sock, 0, 0, b.e.addrs.all[0].addr, b.port)
	a.submitRun(500, 500, 500, 500)
	r := b.expose(0, 64, abi.RightWrite, a)
	a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	h.run()
	b.look()
	b.gaveBack(b.msgs[0].RxID | shm.RxStep)
	h.run()
	if len(b.msgs) != 2 || a.hwm() != 1 {
		h.t.Fatalf("%d messages, mark %d", len(b.msgs), a.hwm())
	}
}

// waiting leaves b full, with messages in overflow and others that were refused: a long one
// with a limit, a run, an operation that is done up to its message, one that is not begun,
// and one from a buffer, whose status is wanted and that belongs to a trace, as does one in
// overflow. Another socket of a has another lane.
func (h *handedOver) waiting(a, b *opSide) {
	addr := b.e.addrs.all[0].addr
	b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 4000})
	for b.e.clients.all[1].ev.Free() > 0 { // b reads no events
		*b.cl.ev.Reserve() = shm.Entry{}
	}
	b.cl.ev.Publish()
	a.submit(shm.Sub{Len: 1000})
	a.traced(shm.Sub{Len: 1500, Chunk: 1})
	h.run()
	a.open(a.sock, 1, 0, addr, b.port)
	a.open(a.sock, 2, 0, addr, b.port)
	h.run()
	r := b.expose(64, 64, abi.RightWrite|abi.RightRead|abi.UseOnce, a)
	op := a.op(abi.OpWrite, r.Cookie, 0)
	a.submit(shm.Sub{Len: 2000, GiveUp: 60_000})
	a.submitRun(700, 800)
	a.submit(shm.Sub{Slot: 1, Len: 3000}, op)
	plain := b.expose(128, 64, abi.RightWrite|abi.RightAtomic, a)
	a.submit(shm.Sub{Slot: 1, Len: 1}, a.op(abi.OpWrite, plain.Cookie, 8), a.args(a.op(abi.OpFetchAdd, plain.Cookie, 0), shm.AtomicEntry{CompareAdd: 1}))
	a.traced(shm.Sub{Slot: 2, Len: 4000, Chunk: 40, Flags: shm.SubFromBuf | shm.SubNotify, Buf: a.buf, Off: 100, DstInc: b.cl.socks[b.sock].inc})
	other := a.bind(12)
	a.openLane(other, 3, addr, b.port, 2)
	h.run()
	s := b.cl.socks[b.sock]
	if s.over.N == 0 || s.waiters.N < 3 || !s.congested {
		h.t.Fatalf("%d in overflow, %d refused", s.over.N, s.waiters.N)
	}
	b.e.rx.refuseForMemory(s)
	id, chunk, ok := b.cl.takeRx(s, 50, false)
	if !ok {
		h.t.Fatal("no receive memory")
	}
	m := b.e.pools.rxs.Get() // a message that came in fragments
	*m = rxMsg{arrival: arrival{src: &s.local.addr16, sport: 77, srcInc: 7, n: 50, at: 6, asm: 7}, sock: s, chunk: chunk, rxid: id, began: 5}
	m.sum.Datagrams, m.sum.NonEmpty, m.sum.Bytes = 1, 1, 50
	s.countOver(m, 1)
	s.over.AddFront(&m.waits, m)
	s.rcvBytes += 50
	s.rcvMsgs++
}

// places leaves a message with a cookie that waits for a place.
func (h *handedOver) places(few *opSide) {
	addr := few.e.addrs.all[0].addr
	few.open(few.sock, 0, 0, addr, 20)
	few.open(few.sock, 1, 0, addr, 10)
	h.run()
	few.submit(shm.Sub{Len: 3900})
	r := few.must(&ipc.Register{Sock: few.sock, Buffer: few.buf, Len: 64, Access: abi.RightRead | abi.Open}).(*ipc.RegisterOK)
	few.submit(shm.Sub{Slot: 1, Len: 8, Cookie: r.Cookie})
	h.run()
	if n := few.cl.acct.waiting.N; n != 1 {
		h.t.Fatalf("%d destinations wait for a place", n)
	}
}

// buffers leaves a buffer that is being freed while a payload is in it, and a region that
// may have been used.
func (h *handedOver) buffers(a, b *opSide) {
	old := a.must(&ipc.Alloc{Size: 8192}).(*ipc.AllocOK).Buffer
	a.submit(shm.Sub{Slot: 2, Len: 3000, Flags: shm.SubFromBuf, Buf: old})
	h.run()
	h.later = Awaited{Number: old}
	a.at.shared.waits[h.later] = func(error) {}
	a.e.keys.freeBuffer(a.cl.buffers[old], a.at.shared.waits[h.later])
	r := b.must(&ipc.Register{Sock: b.sock, Buffer: b.buf, Off: 4096, Len: 64, Access: abi.RightRead | abi.UseOnce}).(*ipc.RegisterOK)
	b.e.keys.by[r.Region].spent = true
	if a.cl.buffers[old] == nil {
		h.t.Fatal("the buffer was freed")
	}
}

// pending leaves a's event ring full, with a status, notices, a mark and the end of a socket
// that wait.
func (h *handedOver) pending(a, b *opSide) {
	gone := a.bind(13)
	for a.cl.ev.Free() > 0 {
		*a.cl.ev.Reserve() = shm.Entry{}
	}
	a.cl.ev.Publish()
	a.seg.WantCell(0).StoreArmed(1)
	a.e.clients.checkArmed(a.cl, a.cl.cells[0])
	a.submit(shm.Sub{}, a.op(abi.OpWrite, 0x77, 0)) // is refused
	sl := a.cl.slots[0]
	sl.lost, sl.relief = 3, true
	a.e.clients.note(sl)
	closed := &slot{sock: sl.sock, cell: sl.cell, addr: sl.addr, port: 9, closed: true, told: told{lost: 2}}
	a.e.clients.foldNotices(closed)
	a.e.rx.overrun(a.cl.sock(gone), netip.MustParseAddr("10.0.0.9"))
	h.run()
}

// state is what the engine hands over.
func (h *handedOver) state() (*InProcessHeirs, []byte) { return h.stateOf(h.es[0]) }

func (h *handedOver) stateOf(e *Engine) (*InProcessHeirs, []byte) {
	h.t.Helper()
	var all []*InProcess
	for _, s := range h.all {
		all = append(all, s.at)
	}
	heirs := NewInProcessHeirs(all)
	return heirs, h.encode(e, heirs)
}

func (h *handedOver) encode(e *Engine, heirs *InProcessHeirs) []byte {
	h.t.Helper()
	w := handover.Write(cmp.Or(h.version, handover.Newest))
	if err := e.Encode(w, heirs.Number); err != nil {
		h.t.Fatal(err)
	}
	return w.Bytes()
}

// next makes an engine on another device of the host.
func (h *handedOver) next() *Engine {
	if err := h.net.Device(hostAddr(0)).Close(); err != nil {
		h.t.Fatal(err)
	}
	return h.boot(0, 99, h.cfg)
}

// TestHandoverRefused: a state that lacks its end is refused, wherever it was cut, and so is
// an engine that moves or has begun to work.
func TestHandoverRefused(t *testing.T) {
	h := handOver(t)
	_, state := h.state()
	if err := h.es[0].Adopt(nil, nil); !errors.Is(err, errStarted) {
		t.Errorf("an engine at work adopts: %v", err)
	}
	for n := len(state) - 1; n > 12; n -= 1 + n/40 {
		heirs, _ := h.state()
		e := h.next()
		if err := heirs.Adopt(e, state[:n]); !errors.Is(err, handover.ErrFormat) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	heirs, _ := h.state()
	waits := h.all[0].at.shared.waits
	waits[Awaited{true, h.later.Number}] = waits[h.later]
	delete(waits, h.later)
	if err := heirs.Adopt(h.next(), state); !errors.Is(err, handover.ErrFormat) {
		t.Errorf("a request that waits for a region, not for a buffer: %v", err)
	}
	h.es[0].Resume()
	if err := h.es[0].Encode(handover.Write(handover.Newest), nil); !errors.Is(err, errMoving) {
		t.Errorf("an engine that moves: %v", err)
	}
}

// TestHandoverDetached: a process that ends while the engine stands still, with more than a turn
// may look at, keeps nobody from handing over the others.
func TestHandoverDetached(t *testing.T) {
	for i := range 3 {
		h := handOver(t)
		e := h.es[0]
		e.chores.Spend(chores.Budget)
		e.Detach(h.all[i].cl)
		h.all = slices.Delete(h.all, i, i+1)
		h.succeed(0, func(d verbs.Device) verbs.Device { return d }, h.cfg, h.all...)
		h.run()
		for _, s := range h.all {
			s.alive(true)
		}
	}
}

// TestHandoverAccounts: a process may count for another user in the new daemon, because
// /etc/subuid has changed.
func TestHandoverAccounts(t *testing.T) {
	h := handOver(t)
	heirs, state := h.state()
	p := *h.cfg.Policy
	p.Subs, _ = config.ParseSubUIDs([]byte("2000:1000:1"))
	h.cfg.Policy = &p
	h.all[2].at.user.Account = p.Account(1000, "")
	e := h.next()
	if err := heirs.Adopt(e, state); err != nil {
		t.Fatal(err)
	}
	if e.users.accounts[config.UserAccount(1000)] != nil || e.users.accounts[config.UserAccount(2000)] == nil || e.users.accounts[config.UserAccount(2000)].waiting.N != 1 {
		t.Errorf("accounts: %+v", e.users.accounts)
	}
}
