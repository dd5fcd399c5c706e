package engine

import (
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/verbs"
)

// many is host 0 with a connection more than a byte counts to others: 33 hosts or lanes, with all paths each. Each connection
// has a socket at both ends, at the same port. Slot and cell n of host 0's process lead from socket n to the other's.
type many struct {
	*world
	a     *raw
	sock  [manyConns]uint32
	far   map[int]*opSide            // by host
	there [manyConns]uint32          // the sockets of the others
	sent  [manyConns][2]uint64       // messages and operations of each socket of host 0
	by    [manyConns]*ipc.RegisterOK // what socket n's operations write
	local uint32                     // a buffer of host 0's process
}

const (
	manyGroups = 33
	manyConns  = manyGroups * wire.MaxPaths
	manyPort   = 1000 // that of the first socket, in path 0
	settleNs   = 10_000_000
)

var (
	manyConfig = Config{Paths: wire.MaxPaths, RecvBufs: 1 << 14, SendBufs: 1 << 10, PeerCredits: 32}
	manyParams = shm.Params{SubEntries: 2048, EventEntries: 2048, MaxMsgs: 2048, MaxRx: 1024, Slots: 512, Cells: 512, SendWindows: 1, RecvWindows: 1}
)

// at is the host and lane of the other end of connection n, with hosts or lanes as groups.
func manyAt(n int, lanes bool) (host int, lane uint8) {
	if lanes {
		return 1, uint8(n / wire.MaxPaths)
	}
	return 1 + n/wire.MaxPaths, 0
}

func newMany(t *testing.T, lanes bool) *many {
	hosts := 1 + manyGroups
	if lanes {
		hosts = 2
	}
	m := &many{world: newWorld(t, hosts, manyConfig), far: map[int]*opSide{}}
	m.a = m.attach(0, manyParams)
	m.local = m.a.must(&ipc.Alloc{Size: 4096}).(*ipc.AllocOK).Buffer
	for h := 1; h < hosts; h++ {
		m.far[h] = opSideOf(m.attach(h, manyParams), 30)
	}
	for n := range manyConns {
		h, lane := manyAt(n, lanes)
		far, port := m.far[h], uint16(manyPort+n)
		m.sock[n], m.there[n] = m.a.bind(port), far.bind(port)
		m.a.openLane(m.sock[n], uint32(n), hostAddr(h), port, lane)
		far.openLane(m.there[n], uint32(n), hostAddr(0), port, lane)
		m.by[n] = far.must(&ipc.Register{Sock: m.there[n], Buffer: far.buf, Off: uint64(8 * n), Len: 8, Access: abi.RightWrite}).(*ipc.RegisterOK)
		far.must(&ipc.Expose{Region: m.by[n].Region, Addr: hostAddr(0), Port: port})
		m.run1()
	}
	m.pass(settleNs, m.es...)
	return m
}

// run1 is one turn of each engine, in which it takes what its process has submitted.
func (m *many) run1() {
	m.turnAll()
	m.net.Step()
}

// send has each socket of host 0 send a message and an operation, and each of the others a message, and has all arrive.
func (m *many) send(lanes bool) {
	m.t.Helper()
	for n := range manyConns {
		h, _ := manyAt(n, lanes)
		at, id := uint32(n), m.id(n)
		m.a.sendMsg(m.sock[n], at, id, 8)
		m.sent[n][0]++
		m.sent[n][1]++
		m.a.put(func(e *shm.Entry) {
			*e.Sub() = shm.Sub{Kind: shm.KindSendOp, Sock: m.sock[n], Slot: at, MsgID: id + 1, Len: 8}
		})
		m.a.put(func(e *shm.Entry) {
			*e.SubOp() = shm.SubOp{Op: abi.OpWrite, Flags: abi.FlagNotify, NSeg: 1, Region: m.local, Len: 8, Cookie: m.by[n].Cookie, OpID: m.sent[n][1], Token: uint64(n)}
		})
		m.far[h].sendMsg(m.there[n], at, id, 8)
		if n%wire.MaxPaths == 0 {
			m.run1()
		}
	}
	got := arrivals{came: map[uint32]int{}, done: map[uint64]int{}}
	for n := 0; n < 100 && got.left() > 0; n++ {
		m.pass(settleNs, m.es...)
		m.take(&got)
	}
	m.a.alive(true)
	for n := range manyConns {
		h, _ := manyAt(n, lanes)
		m.far[h].alive(true)
		here, there, done := got.came[m.sock[n]], got.there[n], got.done[uint64(n)]
		if mark := m.a.cl.table.Cell(uint32(n)).LoadHWM(); here != 1 || there != 2 || done != 1 || mark != m.sent[n][1] {
			m.t.Errorf("socket %d received %d messages and its peer %d, %d operations were successful, and its mark is %d of %d", n, here, there, done, mark, m.sent[n][1])
		}
	}
}

// arrivals is what came of a round, of all sockets: messages by host 0's socket and by the number of the others', statuses by token.
type arrivals struct {
	came  map[uint32]int
	there [manyConns]int
	done  map[uint64]int
}

// left is how many messages and statuses are missing.
func (a *arrivals) left() int {
	left := manyConns * 4
	for _, n := range a.came {
		left -= n
	}
	for _, n := range a.done {
		left -= n
	}
	for _, n := range a.there {
		left -= n
	}
	return left
}

// take takes in what has come.
func (m *many) take(got *arrivals) {
	for _, ev := range m.a.events() {
		switch shm.EvKind(ev.Kind()) {
		case shm.EvData:
			got.came[ev.Event().Sock]++
			m.a.gaveBack(ev.Event().RxID)
		case shm.EvStatus:
			got.done[ev.Status().Token] += int(b2u(ev.Status().Status == abi.StatusSuccess))
		}
	}
	m.a.took()
	for _, far := range m.far {
		for _, ev := range far.events() {
			if ev := ev.Event(); ev.Kind == shm.EvData {
				got.there[ev.DstPort-manyPort]++
				far.gaveBack(ev.RxID)
			}
		}
		far.took()
	}
}

// id is a message id that is free.
func (m *many) id(n int) uint32 { return uint32(n%1024) * 2 }

// More connections than a byte counts, to many hosts or in many lanes: each has its sockets, and a reset of one is nobody
// else's; a planned restart hands over all.
func TestPathsMany(t *testing.T) {
	for name, lanes := range map[string]bool{"hosts": false, "lanes": true} {
		t.Run(name, func(t *testing.T) {
			m := newMany(t, lanes)
			m.send(lanes)
			m.each(lanes, -1, 0)
			const cut = manyConns - 1
			h, lane := manyAt(cut, lanes)
			if n, _ := ResetPeers(m.es[0], hostAddr(h), &lane, new(uint8(cut%wire.MaxPaths))); n != 1 {
				t.Errorf("%d connections were reset, want 1", n)
			}
			m.pass(settleNs, m.es...)
			m.send(lanes)
			m.each(lanes, cut, 0)
			m.still(0)
			m.succeed(0, func(d verbs.Device) verbs.Device { return d }, manyConfig, &opSide{raw: m.a})
			m.send(lanes)
			m.each(lanes, cut, 1)
			m.a.at.Close()
			for _, far := range m.far {
				far.at.Close()
			}
			left := Leaks(m.es[0])
			for n := 0; n < 100 && len(left) > 0; n++ {
				m.pass(settleNs, m.es...)
				left = Leaks(m.es[0])
			}
			if len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// each checks that each connection of host 0 is up and carries its socket's messages alone. Each was broken off as often as host 0's
// daemon was replaced, and that of socket cut was reset besides.
func (m *many) each(lanes bool, cut int, replaced uint64) {
	m.t.Helper()
	if all := len(m.es[0].peers.all); all != manyConns {
		m.t.Errorf("%d connections, want %d", all, manyConns)
	}
	for n := range manyConns {
		h, lane := manyAt(n, lanes)
		p := m.es[0].peers.hosts[remoteKey{hostAddr(0), hostAddr(h)}].lane(lanePath(lane).in(uint8(n % wire.MaxPaths)))
		if p == nil || !p.c.Ready() || p.slots.N != 1 {
			m.t.Errorf("no connection of socket %d alone", n)
			continue
		}
		if s := p.c.Stats(); s.RecvQueued != m.sent[n][0] || s.ConnReset != replaced+uint64(b2u(n == cut)) {
			m.t.Errorf("the connection of socket %d brought %d messages of %d and was reset %d times", n, s.RecvQueued, m.sent[n][0], s.ConnReset)
		}
	}
}
