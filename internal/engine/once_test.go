package engine

import (
	"errors"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/rdmaop"
	"golang.org/x/sys/unix"
)

// release asks for a region back, turning the engines until there is an answer.
func (s *opSide) release(region uint32) error {
	s.at.Pump = func() { s.w.run() }
	_, err := s.call(&ipc.Release{Region: region})
	return err
}

// TestUseOnceTold: a use-once key is gone once the message behind the operation
// is queued at the socket that owns it, read or not; if it went to another
// socket the region is still its owner's to release. Either way nobody can use
// it a second time.
func TestUseOnceTold(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		for _, c := range []struct {
			name   string
			port   uint16
			silent bool
			want   error
		}{
			{"the owner is told", 20, false, unix.EINVAL},
			{"another socket is told", 21, false, nil},
			{"nobody is told", 20, true, nil},
		} {
			w, a, b := opPair(t, hosts)
			b.bind(21)
			a.open(a.sock, 1, 0, b.e.addrs.all[0].addr, 21)
			r := b.expose(0, 64, abi.RightWrite|abi.UseOnce, a)
			w.run()
			op := a.op(abi.OpWrite, r.Cookie, 0)
			if c.silent {
				op.Flags |= abi.FlagSilent
			}
			a.submit(shm.Sub{Slot: uint32(c.port - 20)}, op)
			w.run()
			a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
			w.run()
			if st := a.statuses(); st[0] != 0 || st[1] != int(abi.StatusRemoteError) || a.told[1].Errno != uint32(unix.EINVAL) {
				t.Errorf("%d hosts, %s: statuses %v", hosts, c.name, st)
			}
			if err := b.release(r.Region); !errors.Is(err, c.want) {
				t.Errorf("%d hosts, %s: Release: %v, want %v", hosts, c.name, err, c.want)
			}
			if err := b.release(r.Region); !errors.Is(err, unix.EINVAL) {
				t.Errorf("%d hosts, %s: second Release: %v", hosts, c.name, err)
			}
			w.clean2(a, b)
		}
	}
}

// TestUseOnceEnding: Release of a key whose use was told waits until nobody
// holds it, and then says EINVAL.
func TestUseOnceEnding(t *testing.T) {
	w, a, b := opPair(t, 2)
	r := b.expose(0, 64, abi.RightWrite|abi.UseOnce, a)
	w.run()
	a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	for b.e.keys.by[r.Region] != nil && !b.e.keys.by[r.Region].ended {
		w.pass(1000, w.es...)
	}
	if b.e.keys.by[r.Region] == nil {
		t.Fatal("gone without an answer")
	}
	if err := b.release(r.Region); !errors.Is(err, unix.EINVAL) || b.e.keys.by[r.Region] != nil {
		t.Errorf("Release: %v, region %v", err, b.e.keys.by[r.Region])
	}
	w.clean2(a, b)
}

// TestUseOnceCrossed: a second grant that crosses the use does not make the key
// good again.
func TestUseOnceCrossed(t *testing.T) {
	w, a, b := opPair(t, 2)
	second := a.bind(11)
	a.open(second, 1, 1, b.e.addrs.all[0].addr, b.port)
	r := b.expose(0, 64, abi.RightWrite|abi.UseOnce, a)
	w.run()
	// The second grant is on its way when the key is used.
	a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	b.must(&ipc.Expose{Region: r.Region, Addr: a.e.addrs.all[0].addr, Port: 11})
	b.e.Turn(w.net.Now(), Wall(w.net.Now()))
	received := a.e.peers.all[0].c.Stats().RecvFrames
	for a.e.peers.all[0].c.Stats().RecvFrames == received {
		a.e.Turn(w.net.Now(), Wall(w.net.Now()))
		w.net.Step()
	}
	if g := a.e.peers.all[0].grants; g.Retired(r.Region) || g.Check(&rdmaop.Op{Kind: abi.OpWrite, Cookie: r.Cookie, Len: 8}, 10) == 0 {
		t.Fatal("not used when the grant arrived")
	}
	a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindSendOp, Sock: second, Slot: 1, MsgID: 77} })
	a.put(func(e *shm.Entry) {
		op := a.op(abi.OpWrite, r.Cookie, 8)
		op.OpID = 1
		*e.SubOp() = op
	})
	w.run()
	a.look()
	if len(a.told) != 2 || a.told[0].Status+a.told[1].Status != abi.StatusRemoteError {
		t.Errorf("statuses %+v", a.told)
	}
	for _, st := range a.told {
		if st.Sock == second && st.Errno != uint32(unix.EINVAL) {
			t.Errorf("the second use: %+v", st)
		}
	}
	w.clean2(a, b)
}

// TestReleased: after Release the key is refused, and the same memory can be
// registered again under another.
func TestReleased(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		w, a, b := opPair(t, hosts)
		r := b.expose(0, 64, abi.RightWrite, a)
		w.run()
		if err := b.release(r.Region); err != nil {
			t.Fatal(err)
		}
		again := b.expose(0, 64, abi.RightWrite, a)
		w.run()
		a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
		a.submit(shm.Sub{}, a.op(abi.OpWrite, again.Cookie, 0))
		w.run()
		if st := a.statuses(); st[0] != int(abi.StatusRemoteError) || st[1] != 0 || again.Cookie == r.Cookie {
			t.Errorf("%d hosts: statuses %v, cookies %#x and %#x", hosts, st, r.Cookie, again.Cookie)
		}
		w.clean2(a, b)
	}
}

// TestUseOnceOneHost: a region for one use is granted to one host, whatever its
// sockets: of two hosts the second could use it after its end.
func TestUseOnceOneHost(t *testing.T) {
	w := newWorld(t, 3, Config{})
	b, a, c := w.opSide(0, 20), w.opSide(1, 10), w.opSide(2, 10)
	for i, to := range []*opSide{a, c} {
		b.open(b.sock, uint32(i), uint32(i), to.e.addrs.all[0].addr, 10)
		to.open(to.sock, 0, 0, hostAddr(0), 20)
	}
	r := b.expose(0, 64, abi.RightWrite|abi.UseOnce, a)
	if err := b.exposeTo(r, 1, 11); err != nil {
		t.Errorf("another socket of that host: %v", err)
	}
	for _, to := range []int{2, 0} {
		if err := b.exposeTo(r, to, 10); !errors.Is(err, unix.EBUSY) {
			t.Errorf("granted to host %d, too: %v", to, err)
		}
	}
	b.submit(shm.Sub{Slot: 1, Cookie: r.Cookie})
	w.run()
	if n, _ := b.notGranted(); n != 1 {
		t.Errorf("told of %d", n)
	}
	c.look()
	a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	c.submit(shm.Sub{}, c.op(abi.OpWrite, r.Cookie, 0))
	w.run()
	if st := a.statuses(); st[0] != int(abi.StatusSuccess) || c.statuses()[0] != int(abi.StatusRemoteError) || len(c.msgs) != 0 {
		t.Errorf("statuses %v and %v, %d messages with the cookie", st, c.statuses(), len(c.msgs))
	}
	w.clean(a.raw, b.raw, c.raw)
}

// TestUseOnceRestart: a region for one use that was granted to an instance of a
// peer's daemon that is gone, and may have used it, is granted to nobody else.
func TestUseOnceRestart(t *testing.T) {
	for _, heard := range []bool{true, false} {
		w := newWorld(t, 2, Config{})
		a, b := w.opSide(0, 20), w.opSide(1, 10)
		a.open(a.sock, 0, 0, hostAddr(1), 10)
		a.submit(shm.Sub{})
		w.run()
		r := a.register(abi.RightWrite | abi.UseOnce)
		h := w.es[0].peers.all[0].remote
		if err := a.exposeTo(r, 1, 10); err != nil {
			t.Fatal(err)
		}
		if heard {
			w.run()
		}
		w.es[0].peers.voidGrants(h)
		w.es[1].peers.voidGrants(w.es[1].peers.all[0].remote)
		err := a.exposeTo(r, 1, 11)
		if heard && !errors.Is(err, unix.EINVAL) || !heard && err != nil {
			t.Errorf("the grant was heard: %v; granted again: %v", heard, err)
		}
		w.run()
		w.clean2(a, b)
	}
}

// TestTakenOnTwoLanes: a key that was granted on two lanes and is taken back on
// both stays taken back when a grant on one comes behind the other's REVOKE.
func TestTakenOnTwoLanes(t *testing.T) {
	w, c, _ := lanePair(t, Config{})
	e := w.es[0]
	lane := map[uint8]*peer{}
	for _, p := range e.peers.all {
		lane[p.lane] = p
	}
	const rkey = 0x77
	g := wire.Grant{Cookie: rkey, Length: 64, Rights: uint32(abi.RightWrite | abi.UseOnce), Grantee: 10}
	grant, revoke := g.Append(nil), (&wire.Revoke{RKey: rkey, Lanes: 2}).Append(nil)
	h := lane[0].remote
	usable := func() bool {
		return h.grants.Check(&rdmaop.Op{Kind: abi.OpWrite, Cookie: rkey, Len: 8}, 10) == 0
	}
	hostOf(lane[0]).Internal(nil, wire.TypeGrant, grant)
	if !usable() {
		t.Fatal("not granted")
	}
	hostOf(lane[0]).Internal(nil, wire.TypeRevoke, revoke)
	hostOf(lane[5]).Internal(nil, wire.TypeGrant, grant)
	if usable() || h.grants.Len() != 1 {
		t.Errorf("a grant that was overtaken counts: usable %v, %d remembered", usable(), h.grants.Len())
	}
	hostOf(lane[5]).Internal(nil, wire.TypeRevoke, revoke)
	if h.grants.Len() != 0 {
		t.Errorf("%d grants remembered", h.grants.Len())
	}
	hostOf(lane[5]).Internal(nil, wire.TypeGrant, grant) // the number serves again
	if !usable() {
		t.Error("a new grant of the number does not count")
	}
	hostOf(lane[5]).Internal(nil, wire.TypeRevoke, (&wire.Revoke{RKey: rkey, Lanes: 1}).Append(nil))
	w.run()
	w.clean(c[:]...)
}

// TestUseOnceRefused: a region for one use has not ended while the message behind
// its use has been refused for lack of room. If the message never comes it is its
// owner's to release.
func TestUseOnceRefused(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		for withdrawn, want := range map[bool]error{true: nil, false: unix.EINVAL} {
			w := newWorld(t, hosts, Config{HardCap: 1})
			a, b := w.opSide(0, 10), w.opSide(hosts-1, 20)
			a.open(a.sock, 0, 0, b.e.addrs.all[0].addr, b.port)
			b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 1000})
			r := b.expose(0, 64, abi.RightWrite|abi.UseOnce, a)
			a.submit(shm.Sub{Len: 2000})
			w.run()
			copy(a.mem, "operated")
			a.submit(shm.Sub{Len: 4}, a.op(abi.OpWrite, r.Cookie, 0))
			w.run()
			if string(b.mem[:8]) != "operated" || a.statuses()[0] != -1 {
				t.Fatalf("%d hosts: memory %q, status %d", hosts, b.mem[:8], a.statuses()[0])
			}
			if withdrawn {
				a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Sock: a.sock} })
			} else {
				b.read()
			}
			w.run()
			if err := b.release(r.Region); !errors.Is(err, want) {
				t.Errorf("%d hosts, withdrawn %v: Release: %v, want %v", hosts, withdrawn, err, want)
			}
			w.clean2(a, b)
		}
	}
}

// TestUseOnceRestartWaiting: a grant of a region for one use that waits to be sent
// is none to a new instance of the peer's daemon, if the old one may have used it.
func TestUseOnceRestartWaiting(t *testing.T) {
	w := newWorld(t, 2, Config{})
	a, b := w.opSide(0, 20), w.opSide(1, 10)
	a.open(a.sock, 0, 0, hostAddr(1), 10)
	a.submit(shm.Sub{})
	r := a.register(abi.RightWrite | abi.UseOnce)
	if err := a.exposeTo(r, 1, 10); err != nil {
		t.Fatal(err)
	}
	w.run()
	p := w.es[0].peers.all[0]
	p.c.Reset(w.net.Now(), errAdmin)
	b.e.Shutdown()
	w.pass(20*ms, a.e)
	if err := a.exposeTo(r, 1, 11); err != nil {
		t.Fatal(err)
	}
	w.es[1] = w.boot(1, 99, Config{})
	x := w.opSide(1, 11)
	for range 20 {
		w.run()
	}
	before := p.c.Stats().ConnReset
	x.open(x.sock, 0, 0, hostAddr(0), 20)
	x.submit(shm.Sub{Len: 4}, x.op(abi.OpWrite, r.Cookie, 0))
	for range 20 {
		w.run()
	}
	st := x.statuses()
	if st[0] != int(abi.StatusRemoteError) || x.told[0].Errno != uint32(unix.EINVAL) || p.c.Stats().ConnReset != before {
		t.Errorf("statuses %v, %+v, the connection broke off %d times", st, x.told, p.c.Stats().ConnReset-before)
	}
	if n, ports := a.notGranted(); n != 1 || ports[0] != 11 {
		t.Errorf("told of %d, ports %v", n, ports)
	}
	w.clean(a.raw, x.raw)
}

// TestUngrantedToldOnce: a message with the cookie of a region for one use, which the
// peer's daemon may have used before it restarted, is told of once, however often it
// restarts while the message waits.
func TestUngrantedToldOnce(t *testing.T) {
	w := newWorld(t, 2, Config{})
	a := w.opSide(0, 20)
	a.open(a.sock, 0, 0, hostAddr(1), 10)
	a.submit(shm.Sub{})
	r := a.register(abi.RightWrite | abi.UseOnce)
	if err := a.exposeTo(r, 1, 11); err != nil {
		t.Fatal(err)
	}
	w.run()
	p := w.es[0].peers.all[0]
	p.c.Reset(w.net.Now(), errAdmin)
	w.es[1].Shutdown()
	w.pass(20*ms, a.e)
	a.submit(shm.Sub{Cookie: r.Cookie})
	w.pass(20*ms, a.e)
	for range 3 {
		a.e.peers.voidGrants(p.remote)
	}
	w.pass(20*ms, a.e)
	if n, ports := a.notGranted(); n != 1 || ports[0] != 10 {
		t.Errorf("told of %d, ports %v", n, ports)
	}
}

// TestUseOnceOfAnother: a host that says it has used a region for one use, which was
// granted to another host, ends nothing.
func TestUseOnceOfAnother(t *testing.T) {
	w := newWorld(t, 3, Config{})
	b, a, c := w.opSide(0, 20), w.opSide(1, 10), w.opSide(2, 10)
	for _, to := range []*opSide{a, c} {
		to.open(to.sock, 0, 0, hostAddr(0), 20)
		to.submit(shm.Sub{Len: 1})
	}
	r := b.expose(0, 64, abi.RightWrite|abi.UseOnce, a)
	w.run()
	h := wire.Header{Seq: 1, SPort: 10, DPort: 20}
	h.SetExtRDMA(r.Region)
	p := b.e.peers.hosts[remoteKey{hostAddr(0), hostAddr(2)}].lane(0)
	if v, _ := hostOf(p).Deliver(nil, &h, nil); v != conn.Accepted {
		t.Fatalf("verdict %v", v)
	}
	w.run()
	a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	w.run()
	if st := a.statuses(); st[0] != int(abi.StatusSuccess) {
		t.Errorf("the host that it was granted to: status %d", st[0])
	}
	if err := b.release(r.Region); !errors.Is(err, unix.EINVAL) {
		t.Errorf("Release: %v", err)
	}
	w.clean(a.raw, b.raw, c.raw)
}
