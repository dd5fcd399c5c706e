package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/rdmaop"
	"golang.org/x/sys/unix"
)

// register makes a region of 64 bytes of side's buffer.
func (s *opSide) register(rights abi.Rights) *ipc.RegisterOK {
	s.w.t.Helper()
	return s.must(&ipc.Register{Sock: s.sock, Buffer: s.buf, Len: 64, Access: rights}).(*ipc.RegisterOK)
}

// exposeTo grants r to port of the other host, 0: to all of it.
func (s *opSide) exposeTo(r *ipc.RegisterOK, host int, port uint16) error {
	_, err := s.call(&ipc.Expose{Region: r.Region, Addr: hostAddr(host), Port: port})
	return err
}

// notGranted is how many cookies the side was told could not be granted, and to
// which ports.
func (s *opSide) notGranted() (n int, ports []uint16) {
	s.look()
	for _, x := range s.notes {
		if x.Notice == shm.NoticeNotGranted {
			n += int(x.Count)
			ports = append(ports, x.Port)
		}
	}
	return n, ports
}

// TestGrantTableShared: a user who grants a peer whatever it takes gets half of
// the peer's table, is refused then, and leaves another user its grants; what it
// had is everybody's again when it has gone.
func TestGrantTableShared(t *testing.T) {
	w := quotaWorld(t, 2, func(q *config.Quota) {})
	evil, good, peer := w.opSideAs(0, 10, 1000), w.opSideAs(0, 11, 1001), w.opSide(1, 20)
	peer.open(peer.sock, 0, 0, hostAddr(0), 11)
	granted := 0
	var err error
	for err == nil {
		r := evil.register(abi.RightRead)
		for port := uint16(2); port < 2+rdmaop.MaxGrantees && err == nil; port++ {
			if err = evil.exposeTo(r, 1, port); err == nil {
				granted++
			}
		}
		w.run()
	}
	if granted != defaultMaxGrants/2 || !errors.Is(err, unix.ENOBUFS) || !strings.Contains(err.Error(), "uid 1000") {
		t.Errorf("one user granted %d of %d, then %v", granted, defaultMaxGrants, err)
	}
	r := good.expose(0, 64, abi.RightWrite, peer)
	w.run()
	peer.submit(shm.Sub{}, peer.op(abi.OpWrite, r.Cookie, 0))
	w.run()
	if st := peer.statuses(); st[0] != int(abi.StatusSuccess) {
		t.Errorf("another user's region cannot be used: status %d, %+v", st[0], peer.told)
	}
	evil.at.Close()
	w.run()
	h := w.es[0].peers.all[0].remote
	if h.shares.all != 1 || len(h.shares.of) != 1 || good.cl.acct.grants != 1 || w.es[1].peers.all[0].grants.Len() != 1 {
		t.Errorf("left of the peer's table: %+v, in it %d", h.shares, w.es[1].peers.all[0].grants.Len())
	}
	w.clean(good.raw, peer.raw)
}

// TestGrantQuota: beyond quota.grants Expose fails, and a message with a cookie
// does not go out; its sender is told of both, and Release makes room. On one
// host as between two.
func TestGrantQuota(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		w := quotaWorld(t, hosts, func(q *config.Quota) { q[config.Grants] = 3 })
		a, b := w.opSideAs(0, 10, 1000), w.opSide(hosts-1, 20)
		a.open(a.sock, 0, 0, hostAddr(hosts-1), 20)
		r, second := a.register(abi.RightRead), a.register(abi.RightRead)
		for port := range uint16(3) {
			if err := a.exposeTo(r, hosts-1, 20+port); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.exposeTo(r, hosts-1, 20); err != nil {
			t.Errorf("what is granted: %v", err)
		}
		w.overQuota(a.exposeTo(second, hosts-1, 20), config.Grants)
		a.submit(shm.Sub{Cookie: second.Cookie})
		a.submit(shm.Sub{})
		a.submit(shm.Sub{Cookie: r.Cookie})
		w.run()
		w.run() // the last one's ack
		n, ports := a.notGranted()
		if b.look(); n != 1 || ports[0] != 20 || len(b.msgs) != 2 || b.msgs[0].Cookie != 0 || b.msgs[1].Cookie != r.Cookie || len(a.back) != 3 {
			t.Errorf("%d hosts: told of %d to %d; %d messages, %d ids back", hosts, n, ports, len(b.msgs), len(a.back))
		}
		a.at.Pump = w.run
		a.must(&ipc.Release{Region: r.Region})
		a.submit(shm.Sub{Cookie: second.Cookie})
		w.run()
		if b.look(); len(b.msgs) != 3 || b.msgs[2].Cookie != second.Cookie || a.cl.acct.grants != 1 {
			t.Errorf("%d hosts: after Release %d messages, %d grants", hosts, len(b.msgs), a.cl.acct.grants)
		}
		w.clean2(a, b)
	}
}

// TestGranteesTold: the message with a cookie that is one too many for its region
// does not go out in silence.
func TestGranteesTold(t *testing.T) {
	w := newWorld(t, 2, Config{})
	a, b := w.opSide(0, 10), w.opSide(1, 20)
	a.open(a.sock, 0, 0, hostAddr(1), 20)
	r := a.register(abi.RightRead)
	for port := range uint16(rdmaop.MaxGrantees) {
		if err := a.exposeTo(r, 1, 100+port); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.exposeTo(r, 1, 20); !errors.Is(err, unix.ENOBUFS) || !strings.Contains(err.Error(), "1024 sockets") {
		t.Errorf("Expose: %v", err)
	}
	a.submit(shm.Sub{Cookie: r.Cookie})
	w.run()
	if n, _ := a.notGranted(); n != 1 {
		t.Errorf("told of %d", n)
	}
	if b.look(); len(b.msgs) != 0 {
		t.Errorf("%d messages", len(b.msgs))
	}
	w.clean2(a, b)
}

// TestGrantRefusedByPeer: a peer whose table is full refuses grants, the socket
// that made them is told, and can make them again when there is room.
func TestGrantRefusedByPeer(t *testing.T) {
	w := newWorld(t, 2, Config{})
	a, b := w.opSide(0, 10), w.opSide(1, 20)
	a.open(a.sock, 0, 0, hostAddr(1), 20)
	a.submit(shm.Sub{})
	w.run()
	h := w.es[1].peers.all[0].remote
	h.grants = rdmaop.NewGrants(1)
	first, second := a.register(abi.RightRead), a.register(abi.RightRead)
	if err := errors.Join(a.exposeTo(first, 1, 20), a.exposeTo(second, 1, 33)); err != nil {
		t.Fatal(err)
	}
	w.run()
	if n, ports := a.notGranted(); n != 1 || ports[0] != 33 || a.cl.acct.grants != 1 || w.es[0].peers.all[0].shares.all != 1 {
		t.Fatalf("told of %d grants to %d, %d counted", n, ports, a.cl.acct.grants)
	}
	a.at.Pump = w.run
	a.must(&ipc.Release{Region: first.Region})
	if err := a.exposeTo(second, 1, 33); err != nil {
		t.Fatal(err)
	}
	w.run()
	if n, _ := a.notGranted(); n != 1 || h.grants.Len() != 1 {
		t.Errorf("granted again: told of %d, %d in the table", n, h.grants.Len())
	}
	w.clean2(a, b)
}

// TestGrantRefusalsOfNothing: refusals of what was never granted change nothing.
func TestGrantRefusalsOfNothing(t *testing.T) {
	w, a, b := opPair(t, 2)
	r := b.expose(0, 64, abi.RightWrite, a)
	w.run()
	for _, n := range []wire.GrantNak{{RKey: 1, Grantee: 10}, {RKey: r.Region, Grantee: 11}, {RKey: r.Region}} {
		p := w.es[0].peers.all[0]
		m := w.es[0].peers.ctl(p, wire.TypeGrantNak, n.RKey)
		w.es[0].peers.sendCtl(p, m, n.Append(m.buf[:0]))
	}
	w.run()
	a.submit(shm.Sub{}, a.op(abi.OpWrite, r.Cookie, 0))
	w.run()
	if n, _ := b.notGranted(); n != 0 || a.statuses()[0] != int(abi.StatusSuccess) || b.cl.acct.grants != 1 {
		t.Errorf("told of %d, statuses %v, %d grants", n, a.statuses(), b.cl.acct.grants)
	}
	w.clean2(a, b)
}

// TestCookieBeforeItsPeer: the key of a message that waits for room for one more
// peer is granted when there is.
func TestCookieBeforeItsPeer(t *testing.T) {
	w := newWorld(t, 2, Config{MaxPeers: 1})
	a, b := w.opSide(0, 10), w.opSide(1, 20)
	a.open(a.sock, 1, 1, nobody(1), 30) // takes the place
	w.run()
	a.open(a.sock, 0, 0, hostAddr(1), 20)
	r := a.register(abi.RightWrite)
	a.submit(shm.Sub{Cookie: r.Cookie})
	w.run()
	a.put(func(e *shm.Entry) { *e.SubDest() = shm.SubDest{Kind: shm.KindCloseDest, Sock: a.sock, Slot: 1} })
	w.run()
	w.run()
	b.look()
	if len(b.msgs) != 1 || w.es[1].peers.all[0].grants.Len() != 1 {
		t.Fatalf("%d messages, %d grants", len(b.msgs), w.es[1].peers.all[0].grants.Len())
	}
	w.clean2(a, b)
}

// TestGrantsNotAcked: what a peer is told of a region counts for the region's user until the peer has
// acked it. A peer that has too much to ack is granted nothing more, and others are.
func TestGrantsNotAcked(t *testing.T) {
	w := newWorld(t, 3, Config{})
	a := w.opSide(0, 10)
	w.opSide(1, 20)
	a.open(a.sock, 0, 0, hostAddr(1), 20)
	a.submit(shm.Sub{Len: 1})
	w.run()
	e := w.es[0]
	p := e.peers.all[0]
	expose := func(to int) (uint32, error) {
		g := a.must(&ipc.Register{Sock: a.sock, Buffer: a.buf, Len: 8, Access: abi.RightRead}).(*ipc.RegisterOK).Region
		return g, e.keys.expose(e.keys.by[g], hostAddr(to), 20)
	}
	g, err := expose(1)
	if err != nil {
		t.Fatal(err)
	}
	e.Turn(w.net.Now(), Wall(w.net.Now())) // it is posted
	if err := e.keys.release(e.keys.by[g], func(error) {}); err != nil {
		t.Fatal(err)
	}
	if n := p.said.of[a.cl.acct]; n != 2 || p.said.all != 2 {
		t.Errorf("a GRANT and a REVOKE count as %d of %d", n, p.said.all)
	}
	for range maxSaid - 2 {
		e.peers.sendRevoke(p, wire.TypeRevoke, g+1000, 1)
	}
	if _, err := expose(1); !errors.Is(err, unix.ENOBUFS) {
		t.Errorf("one more: %v", err)
	}
	if _, err := expose(2); err != nil {
		t.Errorf("to another host: %v", err)
	}
	w.run()
	if p.said.all != 0 || len(p.said.of) != 0 {
		t.Errorf("when all is acked %d count", p.said.all)
	}
	if _, err := expose(1); err != nil {
		t.Errorf("when all is acked: %v", err)
	}
}
