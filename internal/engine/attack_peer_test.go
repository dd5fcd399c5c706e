package engine

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"golang.org/x/sys/unix"
)

func nobody(i int) netip.Addr { return netip.AddrFrom4([4]byte{127, 9, byte(i >> 8), byte(i)}) }

// TestPeerFlood: destinations that nobody answers at fill the table of peers;
// then everybody is told, and when they are closed others get their place.
func TestPeerFlood(t *testing.T) {
	w := newWorld(t, 2, Config{MaxPeers: 8})
	e := w.es[0]
	bad, good := w.attach(0, smallParams()), w.attach(0, smallParams())
	far := w.attach(1, smallParams())
	far.bind(20)
	bs, gs := bad.bind(10), good.bind(11)
	for i := range uint32(20) {
		bad.open(bs, i, i, nobody(int(i)), 1000)
	}
	w.run()
	if n := len(e.peers.all); n != 8 {
		t.Fatalf("%d peers, at most 8", n)
	}
	bad.alive(true)
	// Another client's destination finds no room: congested, and what was on
	// its way waits.
	good.open(gs, 0, 0, hostAddr(1), 20)
	good.sendMsg(gs, 0, 0, 10)
	w.run()
	good.alive(true)
	if good.cl.table.Slot(0).LoadCongested() != 1 || good.cl.table.Slot(0).LoadGen() == 0 {
		t.Error("a destination without a peer is not congested")
	}
	// So does an operation, with a status, and a control call, with an error.
	b := good.must(&ipc.Alloc{Size: 4096}).(*ipc.AllocOK).Buffer
	r := good.must(&ipc.Register{Sock: gs, Buffer: b, Len: 10, Access: abi.RightRead}).(*ipc.RegisterOK).Region
	if _, err := good.call(&ipc.Expose{Region: r, Addr: nobody(77)}); !errors.Is(err, unix.ENOBUFS) {
		t.Errorf("expose: %v", err)
	}
	for _, addr := range []netip.Addr{netip.IPv4Unspecified(), netip.MustParseAddr("224.0.0.1"), netip.MustParseAddr("::1"), broadcast} {
		if _, err := good.call(&ipc.Expose{Region: r, Addr: addr}); !errors.Is(err, unix.EINVAL) {
			t.Errorf("expose to %v: %v", addr, err)
		}
	}
	if _, err := e.Ping(nobody(78), 0, 0, nil, nil); !errors.Is(err, unix.ENOBUFS) {
		t.Errorf("ping: %v", err)
	}
	good.put(func(d *shm.Entry) { *d.Sub() = shm.Sub{Kind: shm.KindSendOp, Sock: gs, Slot: 0, MsgID: 1} })
	good.put(func(d *shm.Entry) {
		*d.SubOp() = shm.SubOp{Op: abi.OpRead, Flags: abi.FlagNotify, NSeg: 1, Region: b, Len: 8, OpID: 1}
	})
	w.run()
	var ev shm.Entry
	if c := good.seg.EventConsumer(); !c.Next(&ev) || ev.Kind() != uint8(shm.EvStatus) || ev.Status().Errno != uint32(unix.ENOBUFS) {
		t.Errorf("event %d, errno %d", ev.Kind(), ev.Status().Errno)
	}
	good.seg.WantSlot(0).SetRelief()
	bad.at.Close()
	w.run()
	w.net.At(w.net.Now()+2*homeRetryNs, func() {})
	w.run()
	if n := far.cl.rx; n[0].sock == nil && n[len(n)-1].sock == nil {
		t.Error("the message that waited did not arrive")
	}
	if good.cl.table.Slot(0).LoadCongested() != 0 || good.seg.WantSlot(0).TakeRelief() {
		t.Error("no relief")
	}
	w.clean(good, far)
}

// TestGrantFlood: granting to peers that cannot be reached, and taking back,
// leaves nothing.
func TestGrantFlood(t *testing.T) {
	w := newWorld(t, 1, Config{MaxPeers: 8})
	r := w.attach(0, smallParams())
	s := r.bind(10)
	b := r.must(&ipc.Alloc{Size: 4096}).(*ipc.AllocOK).Buffer
	for i := range 2000 {
		w.es[0].chores.Renew()
		g := r.must(&ipc.Register{Sock: s, Buffer: b, Len: 10, Access: abi.RightRead}).(*ipc.RegisterOK).Region
		for port := range uint16(3) {
			r.must(&ipc.Expose{Region: g, Addr: nobody(i % 20), Port: port + 2})
		}
		done := false
		if err := w.es[0].keys.release(w.es[0].keys.by[g], func(error) { done = true }); err != nil {
			t.Fatal(err)
		}
		if !done {
			t.Fatal("waits for a peer that knows nothing")
		}
	}
	if n := w.es[0].pools.ctls.Out; n != 0 {
		t.Errorf("%d internal messages wait", n)
	}
	if n := len(w.es[0].peers.all); n != 0 {
		t.Errorf("%d peers that nobody needs", n)
	}
	if n := w.es[0].st.C[stats.Regions]; n != 0 {
		t.Errorf("%d regions", n)
	}
	w.clean(r)
}

// TestNotAllowed: nothing connects to an address outside peers.allow.
func TestNotAllowed(t *testing.T) {
	w := newWorld(t, 2, Config{Allowed: func(netip.Addr) error { return ErrNotAllowed }})
	r := w.attach(0, smallParams())
	s := r.bind(10)
	r.open(s, 0, 0, hostAddr(1), 20)
	r.sendMsg(s, 0, 0, 10)
	w.run()
	if i := Conns(w.es[0])[0]; !errors.Is(i.LastError, ErrNotAllowed) {
		t.Errorf("connection: %v, %v", i.State, i.LastError)
	}
	r.alive(true)
	if n := len(w.es[1].peers.all); n != 0 {
		t.Errorf("it reached the other side: %d", n)
	}
	w.clean(r)
}

// What a connection has counted stays counted when its peer is forgotten.
func TestCountersNeverFall(t *testing.T) {
	e := newWorld(t, 1, Config{}).es[0]
	p, err := e.peers.peer(e.addrs.all[0], nobody(1), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.c.Stats().ProtocolErrors = 3
	e.dirty.touch(p)
	counted := func(when string) {
		t.Helper()
		if e.PublishStats(1); e.st.C[stats.ProtocolErrors] != 3 {
			t.Errorf("%s: %d errors counted, want 3", when, e.st.C[stats.ProtocolErrors])
		}
	}
	counted("known")
	if e.peers.dropIfNew(p); len(e.peers.all) != 0 {
		t.Fatal("the peer was not forgotten")
	}
	counted("forgotten")
}

// TestPeerShare: the addresses where nobody is that one user asks for leave
// room for others, and what waits of one user holds up no other's.
func TestPeerShare(t *testing.T) {
	w := newWorld(t, 2, Config{MaxPeers: 8})
	e := w.es[0]
	as := func(host int, uid uint32) *raw {
		r, err := w.attachAs(host, smallParams(), ipc.Cred{UID: uid, GID: uid})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	bad, good, far := as(0, 1001), as(0, 1002), as(1, 1003)
	far.bind(20)
	bs, gs := bad.bind(10), good.bind(11)
	for i := range uint32(20) {
		bad.open(bs, i, i, nobody(int(i)), 1000)
	}
	w.run()
	if n := len(e.peers.all); n != 4 {
		t.Fatalf("%d of 8 peers are of one user, want 4", n)
	}
	if bad.cl.table.Slot(3).LoadCongested() != 0 || bad.cl.table.Slot(4).LoadCongested() != 1 {
		t.Error("what found no room is not congested, or what did is")
	}
	good.open(gs, 0, 0, hostAddr(1), 20)
	good.sendMsg(gs, 0, 0, 10)
	w.run()
	if n := far.cl.rx; n[0].sock == nil && n[len(n)-1].sock == nil {
		t.Error("another user's message did not arrive")
	}
	if a := e.users.accounts[config.UserAccount(1002)]; a.peers != 0 {
		t.Errorf("a peer that was met counts: %d", a.peers)
	}
	for i := range uint32(20) {
		bad.put(func(d *shm.Entry) { *d.SubDest() = shm.SubDest{Kind: shm.KindCloseDest, Sock: bs, Slot: i} })
	}
	bad.at.Close()
	w.net.At(w.net.Now()+2*homeRetryNs, func() {})
	w.run()
	if e.users.accounts[config.UserAccount(1001)] != nil || len(e.peers.all) != 1 {
		t.Errorf("left: %+v, %d peers", e.users.accounts[config.UserAccount(1001)], len(e.peers.all))
	}
	w.clean(good, far)
}
