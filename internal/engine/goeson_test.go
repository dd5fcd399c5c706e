package engine

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/verbs"
)

// A scenario of processes in whose middle the engine of host 0 is paused. It is played twice:
// the engine goes on itself, or another one that has its state goes on. Processes and operators
// are told the same by both. So whatever is left out of the state shows if a scenario depends
// on it; TestEachValueMatters leaves out one value after the other.
type scenario struct {
	name  string
	hosts int
	cfg   Config
	play  func(*played)
}

// played is a scenario that is being played.
type played struct {
	*world
	cfg      Config
	replaced bool // another engine goes on after a pause
	sides    []*opSide
	hostOf   []int
	said     []*strings.Builder // what the process was told, by side
	shown    strings.Builder    // what operators were shown
	random   []uint64           // see nth
	pausedAt int64
}

// TestGoesOn: what processes and operators are told after a pause does not depend on whether the
// same engine goes on or another one.
func TestGoesOn(t *testing.T) {
	oneGoroutine(t)
	for _, all := range [][]scenario{goesRecv, goesSend, goesPlace, goesOp, goesPeer, goesHeld, goesAmid()} {
		for i := range all {
			sc := &all[i]
			t.Run(sc.name, func(t *testing.T) { sc.compare(t) })
		}
	}
}

func (sc *scenario) compare(t *testing.T) {
	var logs [2][]string
	for i, replaced := range []bool{false, true} {
		x := &played{world: newWorld(t, sc.hosts, sc.cfg), cfg: sc.cfg, replaced: replaced}
		sc.play(x)
		if x.pausedAt == 0 {
			t.Fatal("never paused")
		}
		x.finish()
		for k, b := range x.said {
			for _, line := range strings.SplitAfter(b.String(), "\n") {
				logs[i] = append(logs[i], fmt.Sprintf("port %d: %s", x.sides[k].port, line))
			}
		}
		logs[i] = append(logs[i], strings.SplitAfter(x.shown.String(), "\n")...)
	}
	for k, line := range logs[0] {
		if k >= len(logs[1]) || logs[1][k] != line {
			t.Fatalf("the engine goes on itself:\n%sanother one goes on:\n%s", line, strings.Join(logs[1][min(k, len(logs[1])):min(k+1, len(logs[1]))], ""))
		}
	}
	if len(logs[1]) > len(logs[0]) {
		t.Fatalf("another engine tells in addition: %s", logs[1][len(logs[0])])
	}
}

// side adds a process with a socket.
func (x *played) side(host int, port uint16) *opSide { return x.sideAs(host, port, 0) }

func (x *played) sideAs(host int, port uint16, uid uint32) *opSide {
	s := x.opSideAs(host, port, uid)
	x.sides, x.hostOf, x.said = append(x.sides, s), append(x.hostOf, host), append(x.said, &strings.Builder{})
	return s
}

// say notes something that a process finds.
func (x *played) say(s *opSide, format string, args ...any) {
	for i, o := range x.sides {
		if o == s {
			fmt.Fprintf(x.said[i], format+"\n", args...)
		}
	}
}

// pause has the engine of host 0 stand still for a while, and it or another one go on.
func (x *played) pause() {
	x.t.Helper()
	x.es[0].Halt()
	for n := 0; !x.es[0].Halted(); n++ {
		if x.pass(ms/4, x.es...); n > 10_000 {
			x.t.Fatal("never stands still")
		}
	}
	x.pausedAt = x.net.Now()
	x.pass(20*ms, x.es...)
	if x.replaced {
		x.follow(0, func(d verbs.Device) verbs.Device { return d }, x.cfg, x.here()...)
	}
	x.es[0].Resume()
	x.es[0].Turn(x.net.Now(), Wall(x.net.Now()))
	x.show(true)
}

// nth says which of the random numbers n is that x has noted. Another engine draws others.
func (x *played) nth(n uint64) int {
	if n == 0 {
		return 0
	}
	i := slices.Index(x.random, n)
	if i < 0 {
		i = len(x.random)
		x.random = append(x.random, n)
	}
	return i + 1
}

// here are the processes of host 0.
func (x *played) here() (all []*opSide) {
	for i, s := range x.sides {
		if x.hostOf[i] == 0 {
			all = append(all, s)
		}
	}
	return all
}

// show notes what operators of host 0 are shown, but for what RDMA of others has done, which counts anew.
// Without times, it leaves out how long messages have taken.
func (x *played) show(times bool) {
	e := x.es[0]
	in := e.Inspect(func(f func()) error { f(); return nil })
	v := ctl.View{May: func(uint32) bool { return true }, Limit: 1000}
	socks, _ := in.Sockets()
	for _, s := range socks {
		s.Incarnation, s.Served = uint32(x.nth(uint64(s.Incarnation))), ctl.Served{}
		if !times {
			s.MessageTime, s.OperationTime = roughly(s.MessageTime), roughly(s.OperationTime)
		}
		fmt.Fprintf(&x.shown, "%+v\n", s)
	}
	msgs, _, _ := in.Messages(v, "")
	list(x, msgs)
	keys, _, _ := in.Keys(v)
	for i := range keys {
		keys[i].Served = ctl.Served{}
	}
	list(x, keys)
	barriers, _, _ := in.Barriers(v)
	list(x, barriers)
	full, _, _ := in.Congested(v)
	for _, c := range full {
		owner := ""
		if c.Owner != nil {
			owner = fmt.Sprint(*c.Owner)
		}
		c.Owner = nil
		fmt.Fprintf(&x.shown, "congested %+v %s\n", c, owner)
	}
	peers, _ := in.Peers()
	lists.Sort(peers, func(a, b Peer) int { return cmp.Or(a.Remote.Compare(b.Remote), cmp.Compare(a.Lane, b.Lane)) })
	for _, p := range peers {
		p.Dialed, p.Served = false, ctl.Served{}
		if !times {
			p.MessageTime, p.OperationTime, p.Since, p.RTT, p.RTTLast, p.RTTMin, p.RTTAt, p.measured = roughly(p.MessageTime), roughly(p.OperationTime), time.Time{}, 0, 0, 0, time.Time{}, 0
		}
		fmt.Fprintf(&x.shown, "%+v\n", p)
	}
	backlog, _, _ := in.Backlog(v)
	for i, b := range backlog {
		if b.QueuedMessages+b.UnackedMessages+b.UnreadMessages == 0 {
			backlog[i].Oldest = 0 // the age of a congestion, which begins anew
		}
	}
	list(x, backlog)
	for _, p := range peers {
		i := slices.IndexFunc(e.peers.all, func(q *peer) bool { return q.addr == p.Remote && q.lane == p.Lane })
		fmt.Fprintf(&x.shown, "last event: %s\n", e.peers.all[i].lastEvent)
	}
	if times {
		e.watch.countAcked()
		for _, p := range e.peers.all {
			e.watch.count(p)
		}
		sum := e.watch.counts.sum
		sum.CongUpdateQueued = 0 // another engine tells its peers of congestion once more
		fmt.Fprintf(&x.shown, "of all connections: %+v\n", sum)
	}
	all, drained := e.Drains()
	fmt.Fprintf(&x.shown, "drains %v %v\n", all, drained)
}

// roughly is t without what differs by the few microseconds that two engines differ by.
func roughly(t ctl.Times) ctl.Times {
	return ctl.Times{Count: t.Count, Sum: t.Sum.Round(40 * time.Millisecond)}
}

func list[T any](x *played, rows []T) {
	for _, r := range rows {
		fmt.Fprintf(&x.shown, "%+v\n", r)
	}
}

// read takes at most n events of s.
func (x *played) read(s *opSide, n int) {
	x.t.Helper()
	ev, ret := s.seg.EventConsumer(), s.seg.SendRetConsumer()
	var e shm.Entry
	for ; n > 0 && ev.Next(&e); n-- {
		switch kind := shm.EvKind(e.Kind()); kind {
		case shm.EvData:
			m := *e.Event()
			s.msgs = append(s.msgs, m)
			when := "since"
			if m.RecvTime <= x.pausedAt {
				when = fmt.Sprint(m.RecvTime, m.Assembly)
			}
			sum := fnv.New32()
			if m.Len > 0 {
				_, _ = sum.Write(s.cl.recv.Bytes(m.Chunk, int(m.Len)))
			}
			x.say(s, "message of %d bytes (%x) of %v:%d, socket %d, to %d of %d, cookie %d, flags %d, %s", m.Len, sum.Sum32(),
				m.SrcAddr[12:], m.SrcPort, x.nth(uint64(m.SrcInc)), m.DstPort, m.Sock, x.nth(m.Cookie), m.Flags, when)
		case shm.EvStatus:
			st := *e.Status()
			s.told = append(s.told, st)
			x.say(s, "status %d errno %d of %d, token %d, cell %d of %d", st.Status, st.Errno, st.OpID, st.Token, st.Cell, st.Sock)
		case 0: // see fill
		default:
			n := *e.Notice()
			x.say(s, "event %d notice %d of %v:%d, slot %d cell %d of %d: %d, reason %d", kind, n.Notice, n.Addr[12:], n.Port, n.Slot, n.Cell, n.Sock, n.Count, n.Reason)
		}
	}
	s.took()
	for id, ok := ret.Take(); ok; id, ok = ret.Take() {
		x.say(s, "message id %d is back", id)
		s.back = append(s.back, id)
	}
	ret.Release()
	x.say(s, "mark %d", s.hwm())
	for i := range uint32(8) {
		if sl := s.cl.table.Slot(i); sl.LoadGen() != 0 {
			x.say(s, "slot %d: congested %d, not reached %d", i, sl.LoadCongested(), sl.LoadUnreachable())
		}
	}
}

// run lets 5 ms pass.
func (x *played) run() {
	x.t.Helper()
	x.pass(5*ms, x.es...)
}

// settle lets what is in progress come to an end, and has all processes but those in but read.
func (x *played) settle(but ...*opSide) {
	x.t.Helper()
	x.run()
next:
	for _, s := range x.sides {
		for _, b := range but {
			if b == s {
				continue next
			}
		}
		x.read(s, 1000)
	}
}

// give gives back what s has read.
func (x *played) give(s *opSide) {
	for _, m := range s.msgs {
		s.gaveBack(m.RxID)
	}
	s.msgs = nil
}

// fill fills the event ring of s.
func (x *played) fill(s *opSide) {
	for s.cl.ev.Free() > 0 {
		*s.cl.ev.Reserve() = shm.Entry{}
	}
	s.cl.ev.Publish()
}

// send submits n bytes that no other message has, from socket 0 of s.
func (x *played) send(s *opSide, slot uint32, n int, sub shm.Sub, ops ...shm.SubOp) {
	sub.Slot, sub.Len, sub.Chunk = slot, uint32(n), shm.WindowSize/shm.Unit/2+s.nextID*64
	for i := range n {
		s.send[int(sub.Chunk)*shm.Unit+i] = byte(int(s.nextID)*7 + i + int(s.port))
	}
	s.submit(sub, ops...)
}

// open leads slot of s to a socket.
func (x *played) open(s *opSide, slot, cell uint32, to *opSide) {
	s.open(s.sock, slot, cell, to.e.addrs.all[0].addr, to.port)
}

// cut has no host reach another, until mend.
func (x *played) cut() {
	x.net.Faults.Unreachable = 1e6
	for _, e := range x.es {
		for i := range x.es {
			ResetPeers(e, hostAddr(i), nil, nil)
		}
	}
	x.run()
}

func (x *played) mend() { x.net.Faults.Unreachable = 0 }

// later starts a Free or Release, whose answer is noted.
func (x *played) later(s *opSide, req ipc.Request) {
	x.t.Helper()
	what := AwaitedBy(req)
	waits := s.at.shared.waits
	waits[what] = func(err error) {
		delete(waits, what)
		x.say(s, "%T %d: %v", req, what.Number, err)
	}
	var p RingPlace
	if err := s.e.ServeLater(s.cl, req, &p, waits[what]); err != nil {
		delete(waits, what)
		x.say(s, "%T %d refused: %v", req, what.Number, err)
	}
}

// ask makes a request and notes the answer.
func (x *played) ask(s *opSide, req ipc.Request) {
	resp, err := s.call(req)
	x.say(s, "%T: %+v, %v", req, resp, err)
}

// finish lets all come to an end and notes what is left.
func (x *played) finish() {
	x.t.Helper()
	for range 5 {
		x.settle()
		for _, s := range x.sides {
			x.give(s)
		}
		x.world.run()
		x.net.At(x.net.Now()+100*ms, func() {})
	}
	x.show(false)
	for _, s := range x.sides {
		sum := fnv.New32()
		for id := uint32(1); id <= 8; id++ {
			if b := s.cl.buffers[id]; b != nil {
				_, _ = sum.Write(b.mem)
			}
		}
		x.say(s, "in the end: ended %v, memory %x", s.cl.dead, sum.Sum32())
	}
}
