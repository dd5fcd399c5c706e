package engine

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"golang.org/x/sys/unix"
)

// quotaWorld has hosts where users may have q, root and uid 500 anything.
func quotaWorld(t *testing.T, hosts int, edit func(q *config.Quota)) *world {
	q := config.NoQuota()
	edit(&q)
	return newWorld(t, hosts, Config{Policy: &config.Policy{Quotas: config.Quotas{User: q}, Owner: 500}})
}

// as attaches a process of uid.
func (w *world) as(uid uint32) *raw {
	w.t.Helper()
	r, err := w.attachAs(0, smallParams(), ipc.Cred{UID: uid, GID: uid})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// overQuota wants err to name r's key, and one more refusal counted.
func (w *world) overQuota(err error, r config.Resource) {
	w.t.Helper()
	if !errors.Is(err, unix.ENOBUFS) || !strings.Contains(err.Error(), "quota."+r.String()) {
		w.t.Errorf("%v, want ENOBUFS and quota.%v", err, r)
	}
}

func TestSocketQuota(t *testing.T) {
	w := quotaWorld(t, 1, func(q *config.Quota) { q[config.Sockets] = 3 })
	a, b, other, root, own := w.as(1000), w.as(1000), w.as(1001), w.as(0), w.as(500)
	a.bind(10)
	s := a.bind(11)
	b.bind(12)
	refused := w.es[0].st.C[stats.QuotaRefused]
	for _, r := range []*raw{a, b} {
		_, err := r.call(&ipc.Bind{Addr: hostAddr(0), Port: 13})
		w.overQuota(err, config.Sockets)
	}
	if n := w.es[0].st.C[stats.QuotaRefused] - refused; n != 2 {
		t.Errorf("%d refusals counted", n)
	}
	for port := range uint16(3) {
		other.bind(20 + port)
	}
	for port := range uint16(10) {
		root.bind(30 + port)
		own.bind(50 + port)
	}
	a.must(&ipc.CloseSock{Sock: s})
	b.bind(13)
	// A failed bind costs nothing.
	a.at.Close()
	for range 5 {
		if _, err := b.call(&ipc.Bind{Addr: hostAddr(0), Port: 12}); !errors.Is(err, unix.EADDRINUSE) {
			t.Error(err)
		}
	}
	b.bind(10)
	_, err := b.call(&ipc.Bind{Addr: hostAddr(0), Port: 11})
	w.overQuota(err, config.Sockets)
	w.clean(b, other, root, own)
}

// TestQuotaModel: processes of three users come, go, bind and close, allocate
// and free at random; what each user may have is what a model says, and what
// the accounts count.
func TestQuotaModel(t *testing.T) {
	const maxSocks, maxBytes = 7, 10 * 4096
	w := quotaWorld(t, 1, func(q *config.Quota) { q[config.Sockets], q[config.RegisteredBytes] = maxSocks, maxBytes })
	seed := rand.Uint64()
	defer func() {
		if t.Failed() {
			t.Logf("seed %#x", seed)
		}
	}()
	rng := rand.New(rand.NewPCG(seed, 0))
	type process struct {
		*raw
		uid   uint32
		socks []uint32
		bufs  map[uint32]uint64
	}
	var procs []*process
	socks, bytes := map[uint32]int{}, map[uint32]uint64{}
	for range 5000 {
		if len(procs) == 0 || len(procs) < 9 && rng.IntN(10) == 0 {
			uid := 1000 + rng.Uint32N(3)
			procs = append(procs, &process{raw: w.as(uid), uid: uid, bufs: map[uint32]uint64{}})
		}
		i := rng.IntN(len(procs))
		p := procs[i]
		switch rng.IntN(20) {
		case 0: // dies
			p.at.Close()
			procs = append(procs[:i], procs[i+1:]...)
			socks[p.uid] -= len(p.socks)
			for _, n := range p.bufs {
				bytes[p.uid] -= n
			}
		case 1, 2, 3, 4, 5, 6, 7, 8:
			resp, err := p.call(&ipc.Bind{Addr: hostAddr(0)})
			if (err == nil) != (socks[p.uid] < maxSocks) {
				t.Fatalf("uid %d with %d sockets: %v", p.uid, socks[p.uid], err)
			}
			if err == nil {
				p.socks = append(p.socks, resp.(*ipc.BindOK).Sock)
				socks[p.uid]++
			}
		case 9, 10, 11:
			if n := len(p.socks); n > 0 {
				p.must(&ipc.CloseSock{Sock: p.socks[n-1]})
				p.socks = p.socks[:n-1]
				socks[p.uid]--
			}
		case 12, 13, 14, 15, 16:
			size := (1 + rng.Uint64N(5)) * 4096
			resp, err := p.call(&ipc.Alloc{Size: size})
			if (err == nil) != (bytes[p.uid]+size <= maxBytes) {
				t.Fatalf("uid %d with %d bytes asks for %d: %v", p.uid, bytes[p.uid], size, err)
			}
			if err == nil {
				p.bufs[resp.(*ipc.AllocOK).Buffer] = size
				bytes[p.uid] += size
			}
		default:
			for b, n := range p.bufs {
				p.must(&ipc.Free{Buffer: b})
				delete(p.bufs, b)
				bytes[p.uid] -= n
				break
			}
		}
		w.es[0].Turn(w.net.Now(), Wall(w.net.Now()))
		for uid, n := range socks {
			a, used := w.es[0].users.accounts[config.UserAccount(uid)], w.es[0].users.mem.OfUsers()[config.UserAccount(uid)]
			if a == nil && n != 0 || a != nil && a.sockets != n || used.Registered != bytes[uid] {
				t.Fatalf("uid %d: account %+v, memory %+v, want %d sockets, %d bytes", uid, a, used, n, bytes[uid])
			}
		}
	}
	for _, p := range procs {
		p.at.Close()
	}
	w.clean()
}

func TestQueuedBytesQuota(t *testing.T) {
	p := smallParams()
	one := uint64(shm.SegmentSize(p) + shm.TableSize(p.Slots, p.Cells) + int(p.SendWindows+p.RecvWindows)*shm.WindowSize)
	w := quotaWorld(t, 1, func(q *config.Quota) { q[config.QueuedBytes] = 2*one + one/2 })
	a, b, other := w.as(1000), w.as(1000), w.as(1001)
	_, err := w.attachAs(0, p, ipc.Cred{UID: 1000})
	w.overQuota(err, config.QueuedBytes)
	a.at.Close()
	w.run()
	w.clean(b, other, w.as(1000))
}

// TestOperationQuota: operations beyond the quota end at once with a status of
// their own, whichever process of the user they are of; those before are not
// affected, and what has settled is free again.
func TestOperationQuota(t *testing.T) {
	w := quotaWorld(t, 1, func(q *config.Quota) { q[config.Operations] = 5 })
	sideAs := func(uid uint32, port uint16) *opSide {
		p := smallParams()
		p.EventEntries, p.MaxRx = 256, 64
		r, err := w.attachAs(0, p, ipc.Cred{UID: uid})
		if err != nil {
			t.Fatal(err)
		}
		return opSideOf(r, port)
	}
	a, b, other, target := sideAs(1000, 10), sideAs(1000, 11), sideAs(1001, 12), sideAs(0, 20)
	var grants []*ipc.RegisterOK
	for _, s := range []*opSide{a, b, other} {
		s.open(s.sock, 0, 0, hostAddr(0), 20)
		grants = append(grants, target.expose(0, 4096, abi.RightRead|abi.RightWrite, s))
	}
	for round := range 2 {
		for i, s := range []*opSide{a, b, other} {
			for range 4 {
				s.submit(shm.Sub{}, s.op(abi.OpWrite, grants[i].Cookie, 0))
			}
		}
		w.es[0].Turn(w.net.Now(), Wall(w.net.Now())) // takes all in before it runs any
		w.run()
		ok, refused := 0, 0
		for _, s := range []*opSide{a, b} {
			s.statuses()
			for _, st := range s.told[4*round:] {
				switch {
				case st.Status == abi.StatusSuccess:
					ok++
				case st.Status == abi.StatusRemoteError && unix.Errno(st.Errno) == unix.ENOBUFS:
					refused++
				default:
					t.Errorf("status %+v", st)
				}
			}
		}
		if ok != 5 || refused != 3 {
			t.Errorf("round %d: %d done, %d refused, want 5 and 3", round, ok, refused)
		}
		for i, st := range other.statuses() {
			if st != int(abi.StatusSuccess) {
				t.Errorf("another user's operation %d: status %d", i+1, st)
			}
		}
		if n := w.es[0].users.accounts[config.UserAccount(1000)].ops; n != 0 {
			t.Errorf("%d operations left in the account", n)
		}
	}
	w.clean(a.raw, b.raw, other.raw, target.raw)
}

// TestTwoOperationsQuota: a message with two operations needs room for both.
func TestTwoOperationsQuota(t *testing.T) {
	for quota, want := range map[uint64]abi.Status{1: abi.StatusRemoteError, 2: abi.StatusSuccess} {
		w := quotaWorld(t, 1, func(q *config.Quota) { q[config.Operations] = quota })
		r := w.as(1000)
		a, b := opSideOf(r, 10), opSideOf(w.as(0), 20)
		a.open(a.sock, 0, 0, hostAddr(0), 20)
		g := b.expose(0, 4096, abi.RightRead|abi.RightWrite|abi.RightAtomic, a)
		a.submit(shm.Sub{}, a.op(abi.OpWrite, g.Cookie, 0), a.args(a.op(abi.OpFetchAdd, g.Cookie, 0), shm.AtomicEntry{CompareAdd: 1}))
		w.run()
		if st := a.statuses(); st[0] != int(want) {
			t.Errorf("quota %d: statuses %v, want %v first", quota, st, want)
		}
		w.clean(a.raw, b.raw)
	}
}

// TestDestinationQuota: a destination for whose messages there is no place, for
// those of others wait, is congested: what is sent to it waits, an operation to
// it is refused, until one of the user's, in whichever process, closes or has
// nothing under way any more.
func TestDestinationQuota(t *testing.T) {
	for _, to := range []int{0, 1} { // this host, another
		w := quotaWorld(t, 2, func(q *config.Quota) { q[config.Destinations] = 2 })
		e := w.es[0]
		a, b, other := w.as(1000), w.as(1000), w.as(1001)
		params := smallParams()
		params.MaxRx = 64 // a socket's share is more than it is sent
		dst, err := w.attachAs(to, params, ipc.Cred{})
		if err != nil {
			t.Fatal(err)
		}
		dst.bind(100)
		as, bs, os := a.bind(10), b.bind(11), other.bind(12)
		addr := hostAddr(to)
		for slot := range uint32(2) {
			a.open(as, slot, 0, hostAddr(9), 100) // nobody is there
			a.sendMsg(as, slot, slot, 1)
		}
		w.run()
		b.open(bs, 0, 0, addr, 100)
		b.open(bs, 1, 0, addr, 100)
		other.open(os, 0, 0, addr, 100)
		other.sendMsg(os, 0, 0, 1)
		b.sendMsg(bs, 0, 0, 1)
		b.sendMsg(bs, 0, 1, 1)
		b.sendMsg(bs, 1, 3, 1)
		b.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindSendOp, Sock: bs, Slot: 0, MsgID: 2} })
		b.put(func(e *shm.Entry) {
			*e.SubOp() = shm.SubOp{Op: abi.OpWrite, Flags: abi.FlagNotify, NSeg: 1, Len: 8, OpID: 1}
		})
		w.run()
		count := func() int { return dst.cl.waitingMsgs() }
		acc := e.users.accounts[config.UserAccount(1000)]
		if n := count(); n != 1 || acc.dests != 2 || acc.waiting.N != 2 || b.cl.table.Slot(0).LoadCongested() == 0 || other.cl.table.Slot(0).LoadCongested() != 0 {
			t.Errorf("to %v: %d messages, account %d + %d, congested %d", addr, n, acc.dests, acc.waiting.N, b.cl.table.Slot(0).LoadCongested())
		}
		b.alive(true)
		b.seg.WantSlot(0).SetRelief()
		// One's messages are withdrawn: the oldest that waits goes on, and when
		// its messages are delivered the next.
		a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Slot: 0} })
		w.run() // to the end of an attempt to reach host 9
		w.run()
		if n := count(); n != 4 || acc.dests != 2 || acc.waiting.N != 0 || b.cl.table.Slot(0).LoadCongested() != 0 {
			t.Errorf("to %v: after a cancel %d messages, account %d + %d", addr, n, acc.dests, acc.waiting.N)
		}
		relief := 0
		var ev shm.Entry
		for c := b.seg.EventConsumer(); c.Next(&ev); {
			if ev.Kind() == uint8(shm.EvRelief) {
				relief++
			}
		}
		if relief != 1 {
			t.Errorf("to %v: told of relief %d times", addr, relief)
		}
		// All are taken again; one closes, and the process dies.
		a.sendMsg(as, 0, 2, 1)
		w.run()
		b.sendMsg(bs, 0, 4, 1)
		w.run()
		if n := count(); n != 4 || acc.waiting.N != 1 {
			t.Errorf("to %v: %d messages, account %d + %d", addr, n, acc.dests, acc.waiting.N)
		}
		if to == 0 {
			a.put(func(e *shm.Entry) { *e.SubDest() = shm.SubDest{Kind: shm.KindCloseDest, Slot: 0} })
		} else {
			a.at.Close()
		}
		w.run()
		if n := count(); n != 5 || acc.waiting.N != 0 {
			t.Errorf("to %v: after the end %d messages, account %d + %d", addr, n, acc.dests, acc.waiting.N)
		}
		a.at.Close()
		w.clean(b, other, dst)
	}
}

// waitingMsgs counts the messages a client has been given and not returned.
func (c *Client) waitingMsgs() (n int) {
	for _, r := range c.rx {
		if r.told {
			n++
		}
	}
	return n
}

// TestManyWaitingDestinations: a process with every destination there is, all
// but one beyond the quota, comes to its end in good time.
func TestManyWaitingDestinations(t *testing.T) {
	w := quotaWorld(t, 1, func(q *config.Quota) { q[config.Destinations] = 1 })
	p := smallParams()
	p.SubEntries, p.Slots = 1<<16, maxDests
	r, err := w.attachAs(0, p, ipc.Cred{UID: 1000})
	if err != nil {
		t.Fatal(err)
	}
	s := r.bind(10)
	for i := range uint32(1 << 16) {
		if r.seg.SubProducer().Free() == 0 {
			w.es[0].Turn(w.net.Now(), Wall(w.net.Now()))
		}
		r.open(s, i, 0, hostAddr(1), uint16(i))
	}
	w.run()
	for i := range uint32(1000) {
		w.es[0].dests.closeSlot(r.cl.slots[i])
	}
	r.at.Close()
	w.clean()
}

// TestSharedRegions: regions have no quota and are shared: one user gets half, the next
// half of the rest, an administrator what is left.
func TestSharedRegions(t *testing.T) {
	w := quotaWorld(t, 1, func(*config.Quota) {})
	r, other := w.as(1000), w.as(1001)
	var err error
	n := 0
	for s, b := r.bind(10), r.must(&ipc.Alloc{Size: 4096}).(*ipc.AllocOK).Buffer; err == nil && n <= maxRegions; n++ {
		_, err = r.call(&ipc.Register{Sock: s, Buffer: b, Len: 8, Access: abi.RightRead})
	}
	if n-1 != maxRegions/2 || !errors.Is(err, unix.ENOBUFS) || w.es[0].users.accounts[config.UserAccount(1000)].regions != maxRegions/2 {
		t.Errorf("one user registered %d regions: %v", n-1, err)
	}
	s, b := other.bind(11), other.must(&ipc.Alloc{Size: 4096}).(*ipc.AllocOK).Buffer
	other.must(&ipc.Register{Sock: s, Buffer: b, Len: 8, Access: abi.RightRead})
	w.clean(r, other)
}
