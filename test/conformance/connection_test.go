package conformance

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/afrds"
	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/stats"
)

func groupK() []statement {
	return []statement{
		{n: 170, kind: "k", by: byTest, text: "the first reconnect is at once, then below ceilings of 1, 2, 4 ... 1000 ms, until it is up", check: backoffCeilings},
		{n: 171, kind: "k", by: byPeer, text: "a send while down starts to connect, unless an attempt is under way", check: sendStartsConnect},
		{n: 172, kind: "k", by: byPeer, text: "after a drop unacked messages precede newer ones, flagged RETRANSMITTED", check: unackedComeFirst},
		{n: 173, kind: "k", by: byPeer, text: "sequence numbers continue over a bounce", check: unackedComeFirst},
		{n: 174, kind: "k", by: byTest, text: "a drop at any moment of a shutdown leads down and up again, never to a stuck state", check: dropInShutdown},
		{n: 175, kind: "k", by: byPeer, text: "a part of a message is discarded on a drop, and the message arrives whole after it is sent again", check: partIsDiscarded},
		{n: 176, kind: "r", by: byPeer, text: "connections to peers that vanished are aged, and those of one address are bounded", check: vanishedPeersAge},
		{n: 177, kind: "k", by: byPeer, text: "more than the limit unread sets the bit and sends the map, less than half clears it, equal changes nothing", check: congestionLimits},
		{n: 178, kind: "k", by: byPeer, text: "messages to a congested port of a peer that has not seen the map are delivered", check: unseenMapDelivers},
		{n: 179, kind: "k", by: byPeer, text: "a map is 8192 bytes, port p at byte p>>3 bit p&7, and goes to every connection of the address", check: congestionMapForm},
		{n: 180, kind: "k", by: byPeer, text: "after a reconnect the whole map is sent, and stale bits are corrected", check: congestionMapAfterReconnect},
		{n: 181, kind: "k", by: byPeer, text: "closing a congested socket clears its bit at peers", check: closeClearsCongestion},
		{n: 182, kind: "k", by: byCalls, text: "ENOBUFS with the monitor on, then relief: one CONG_UPDATE with bit port mod 64", check: reliefIsTold},
		{n: 183, kind: "k", by: byPeer, text: "relief of a port that differs mod 64 does not notify", check: reliefOfOtherPort},
		{n: 184, kind: "k", by: byCalls, text: "between sockets of one host: in order, congestion counts, 1 MiB arrives", check: oneHostDelivery},
	}
}

func backoffCeilings(t *testing.T, e *env) { goTest(t, "../../conn", "TestBackoff") }

func sendStartsConnect(t *testing.T, e *env) {
	p := newPeer(t, e.a)
	p.listen()
	s := e.ka.bound(t)
	s.mustSend([]byte{1}, p.at(5))
	r := p.request() // the send starts it
	s.mustSend([]byte{2}, p.at(5))
	p.quiet("-", func(inFrame) bool { return false })
	if len(p.requests) != 0 {
		t.Error("a second attempt beside the one under way")
	}
	p.accept(r)
	for i := range 2 {
		if f := p.data(); !slices.Equal(f.body, []byte{byte(i + 1)}) {
			t.Errorf("message %d: %x", i, f.body)
		}
	}
}

// unackedComeFirst also checks that sequence numbers continue.
func unackedComeFirst(t *testing.T, e *env) {
	p := newPeer(t, e.a)
	p.listen()
	p.mute = true
	s := e.ka.bound(t)
	s.mustSend([]byte{0}, p.at(5))
	p.accept(p.request())
	first := p.data().Seq
	for i := range 4 {
		s.mustSend([]byte{byte(i + 1)}, p.at(5))
		p.data()
	}
	p.drop()
	r := p.request()
	for i := range 3 {
		s.mustSend([]byte{byte(i + 5)}, p.at(5)) // sent later than the unacked ones
	}
	p.last = first + 1 // as if two of them had arrived
	p.mute = false
	p.accept(r)
	next := first + 2
	for i := uint64(2); i < 8; i++ {
		f := p.data()
		again := f.Flags&wire.FlagRetransmitted != 0
		if f.Seq != next || !slices.Equal(f.body, []byte{byte(i)}) || again != (i < 5) {
			t.Errorf("message %d: sequence %d, want %d, %x, flags %#x", i, f.Seq, next, f.body, f.Flags)
		}
		if f.nth == max(f.run, 1)-1 { // the messages of a run share a sequence
			next++
		}
	}
}

func dropInShutdown(t *testing.T, e *env) {
	goTest(t, "../../conn", "TestStates", "TestRequestWhileUp", "TestSecondRequestWhileDraining", "TestWorld")
	// The same with a peer of the check's own: after many connections one is up.
	p := newPeer(t, e.a)
	s := e.ka.bound(t)
	for i := range 20 {
		p.begin()
		if i%2 == 0 {
			p.until("up or down", func() bool { return p.up || p.down })
		}
		if i%3 == 0 {
			s.mustSend([]byte{1}, p.at(5))
		}
		p.drop()
	}
	p.listen()
	s.mustSend([]byte("at last"), p.at(5))
	p.accept(p.request())
	p.next("what was sent at last", func(f inFrame) bool { return string(f.body) == "at last" })
}

func partIsDiscarded(t *testing.T, e *env) {
	p := connected(t, e.a)
	s := e.ka.bound(t)
	payload := bytesOf(40000, 3)
	n := p.seq
	p.seq++
	fragment := func(off int, f wire.Flags) {
		b := make([]byte, wire.HeaderLen)
		(&wire.Header{Seq: n, Len: uint32(len(payload)), SPort: 7, DPort: s.local().Port(), SrcInc: p.inc, Flags: f}).Put(b)
		p.post(append(b, payload[off:min(len(payload), off+peerSend-wire.HeaderLen)]...))
	}
	fragment(0, 0)
	p.send(e.a.at(0), nil, seq(0), func(h *wire.Header) { h.SPort, h.DPort, h.SrcInc = 0, 0, 0 }) // an ack in between
	p.quiet("-", func(inFrame) bool { return false })
	s.empty()
	p.drop()
	p.connect()
	for off := 0; off < len(payload); off += peerSend - wire.HeaderLen {
		fragment(off, wire.FlagRetransmitted)
	}
	if g := s.recv(); !slices.Equal(g.data, payload) {
		t.Errorf("%d bytes arrived", g.N)
	}
	s.empty()
}

func vanishedPeersAge(t *testing.T, e *env) {
	// A peer that disappears and returns again and again, without closing connections, has one
	// connection.
	h := newHost(t, nil)
	fds := func() int {
		d, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", h.Pid()))
		ok(t, "descriptors", err)
		return len(d)
	}
	p := connected(t, h)
	before := fds()
	for range 30 {
		p.connect() // the old queue pair is not closed
	}
	n := 0
	for _, c := range h.ask(t, ctl.Request{Kind: ctl.KindPeers}).Peers {
		if c.Remote == p.addr {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d connections of one address and lane", n)
	}
	eventually(t, "descriptors", func() error { return errOf(fds() > before+2, "%d, %d before", fds(), before) })
	// A silent, idle connection is noticed by its TCP connection. Peers that no destination
	// leads to make room. Their packages have the tests.
	goTest(t, "../../verbs/soft", "TestKeepAlive")
	goTest(t, "../../internal/engine", "TestPeerFlood")
}

// congMap waits for a map of the daemon for which is returns true.
func (p *peer) congMap(what string, is func(m []byte) bool) {
	p.t.Helper()
	p.next(what, func(f inFrame) bool { return f.Flags == wire.FlagCong && is(f.body) })
}

func bit(m []byte, port uint16) bool { return m[port>>3]&(1<<(port&7)) != 0 }

func congestionLimits(t *testing.T, e *env) {
	p := connected(t, e.a)
	s := e.ka.bound(t)
	s.rcvbuf(4000)
	port := s.local().Port()
	isMap := func(f inFrame) bool { return f.Flags == wire.FlagCong }
	for _, n := range []int{2000, 1, 1999} {
		p.send(s.local(), make([]byte, n))
	}
	p.quiet("a map at the limit", isMap)
	p.send(s.local(), make([]byte, 1))
	p.congMap("set", func(m []byte) bool { return bit(m, port) })
	if si, _ := e.a.socket(t, s.local()); !si.Congested {
		t.Error("the daemon does not say so")
	}
	s.recv() // 2001 bytes are left
	s.recv() // 2000 bytes are left: half the limit
	p.quiet("a map at half the limit", isMap)
	s.recv()
	p.congMap("clear", func(m []byte) bool { return !bit(m, port) })
	s.recv()
	p.quiet("a map without a change", isMap)
}

// congestedBy makes a peer fill a socket of the daemon.
func (p *peer) congestedBy(s *sock) {
	p.t.Helper()
	s.rcvbuf(4000)
	p.send(s.local(), make([]byte, 4001))
	p.congMap("set", func(m []byte) bool { return bit(m, s.local().Port()) })
}

func unseenMapDelivers(t *testing.T, e *env) {
	p := connected(t, e.a)
	s := e.ka.bound(t)
	p.congestedBy(s)
	for i := range 20 {
		p.send(s.local(), append([]byte{byte(i)}, make([]byte, 2000)...))
	}
	s.recv()
	for i := range 20 {
		if g := s.recv(); g.data[0] != byte(i) {
			t.Errorf("message %d is %d", i, g.data[0])
		}
	}
}

func congestionMapForm(t *testing.T, e *env) {
	p, q := connected(t, e.a), connected(t, e.a)
	lane := newPeer(t, e.a)
	lane.lane = 5
	lane.connect()
	s := e.ka.bound(t)
	port := s.local().Port()
	s.rcvbuf(4000)
	p.send(s.local(), make([]byte, 4001))
	for i, x := range []*peer{p, q, lane} {
		f := x.next("a map", func(f inFrame) bool { return f.Flags == wire.FlagCong && bit(f.body, port) })
		ports := 0
		for _, b := range f.body {
			for ; b != 0; b &= b - 1 {
				ports++
			}
		}
		if len(f.body) != 8192 || f.Seq != 0 || f.SPort|f.DPort != 0 || f.Len != 8192 || ports != 1 {
			t.Errorf("connection %d: %+v, %d bytes, %d ports", i, f.Header, len(f.body), ports)
		}
	}
	s.recv()
	for _, x := range []*peer{p, q, lane} {
		x.congMap("clear", func(m []byte) bool { return !bit(m, port) })
	}
}

// tell sends the peer's own map with these ports.
func (p *peer) tell(ports ...uint16) {
	p.t.Helper()
	m := make([]byte, wire.CongLen)
	for _, port := range ports {
		m[port>>3] |= 1 << (port & 7)
	}
	before := p.h.counter(p.t, stats.CongUpdateReceived)
	p.send(p.h.at(0), m, seq(0), func(h *wire.Header) { h.SPort, h.DPort, h.SrcInc, h.Flags, h.Ack = 0, 0, 0, wire.FlagCong, p.acked() })
	p.until("the map arrives", func() bool { return p.h.counter(p.t, stats.CongUpdateReceived) > before })
}

func congestionMapAfterReconnect(t *testing.T, e *env) {
	p := connected(t, e.a)
	s, tx := e.ka.bound(t), e.ka.bound(t)
	p.congestedBy(s)
	p.settled(s.local())
	p.drop()
	p.connect()
	p.congMap("set, again", func(m []byte) bool { return bit(m, s.local().Port()) })
	p.drop()
	s.recv() // while the peer is away
	p.connect()
	p.congMap("clear", func(m []byte) bool { return !bit(m, s.local().Port()) })
	// The peer's own map: its next map corrects a wrong bit.
	tx.mustSend([]byte("x"), p.at(9))
	p.data()
	p.tell(9)
	want(t, "congested", tx.send(nil, p.at(9)), syscall.ENOBUFS)
	p.drop()
	p.connect()
	p.tell()
	tx.mustSend([]byte("y"), p.at(9))
	if f := p.data(); string(f.body) != "y" {
		t.Errorf("received %q", f.body)
	}
}

func closeClearsCongestion(t *testing.T, e *env) {
	p := connected(t, e.a)
	s := e.ka.bound(t)
	port := s.local().Port()
	p.congestedBy(s)
	ok(t, "close", s.Close())
	p.congMap("clear", func(m []byte) bool { return !bit(m, port) })
}

func reliefIsTold(t *testing.T, e *env) {
	s, to := flow(t, e)
	s.set(cmsg.SOLRDS, cmsg.OptCongMonitor, i32(1))
	to.rcvbuf(4000)
	n := congest(s, to.local(), 1000)
	for range 3 {
		want(t, "again", s.send(nil, to.local()), syscall.ENOBUFS)
	}
	s.empty()
	to.drain(n)
	g := s.recv()
	if g.control.Cong != 1<<(to.local().Port()%64) || g.N != 0 || g.NameLen != 0 || g.ControlLen != 24 {
		t.Errorf("received %+v", g)
	}
	s.empty()
	s.mustSend([]byte("x"), to.local())
	to.recv()
}

func reliefOfOtherPort(t *testing.T, e *env) {
	p := connected(t, e.a)
	s := e.ka.bound(t)
	s.set(cmsg.SOLRDS, cmsg.OptCongMonitor, i32(1))
	s.mustSend(nil, p.at(9))
	p.data()
	p.tell(9, 10)
	want(t, "congested", s.send(nil, p.at(9)), syscall.ENOBUFS)
	p.tell(9)
	if got := s.poll(afrds.PollIn); got != 0 {
		t.Errorf("relief of port 10 notifies one who waits for 9: %#x", got)
	}
	p.tell()
	if g := s.recv(); g.control.Cong != 1<<9 {
		t.Errorf("received %+v", g.control)
	}
}

func oneHostDelivery(t *testing.T, e *env) {
	s, to := e.ka.socket(t), e.ka.bound(t)
	s.bind(netip.AddrPortFrom(e.a.addrs[1], 0)) // two addresses of one host
	for _, from := range []*sock{s, e.ka.bound(t)} {
		from.sndbuf(4 << 20)
		to.rcvbuf(4 << 20)
		big := bytesOf(cmsg.MaxMessage, 5)
		from.mustSend(big, to.local())
		if g := to.recv(); !slices.Equal(g.data, big) {
			t.Errorf("%d bytes of 1 MiB", g.N)
		}
		for i := range 1000 {
			from.deliver(binary.BigEndian.AppendUint32(nil, uint32(i)), to.local())
		}
		for i := range 1000 {
			if g := to.recv(); binary.BigEndian.Uint32(g.data) != uint32(i) {
				t.Fatalf("message %d: %x", i, g.data)
			}
		}
		to.rcvbuf(4000)
		n := congest(from, to.local(), 1000)
		if n < 4 {
			t.Errorf("congested after %d messages", n)
		}
		to.drain(n)
		from.deliver([]byte("relieved"), to.local())
		if g := to.recv(); string(g.data) != "relieved" {
			t.Error(fmt.Errorf("received %q", g.data))
		}
	}
}
