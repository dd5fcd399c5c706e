package engine

import (
	"encoding/binary"
	"net/netip"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/internal/chores"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/internal/word"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
	"golang.org/x/sys/unix"
)

// Delivery on the same host: a message goes from the sender's arena to the receiver's in
// one copy. Order and congestion are as on the network path. An operation is a copy between
// mappings, a slice in each turn, and its message follows it.

// loop delivers within this host, as rds_loop_transport does in net/rds. Engine-owned.
type loop struct {
	e       *Engine
	jobs    rota                // slots with work to run
	rousing chores.Work[socket] // they have room: who waits for it is to try again
}

// passOn delivers a plain message to its socket on this host and returns its id
// at once, without a record of it: most can be. false: it has to be taken,
// because others wait before it or it is refused, or for what else it is. It is no method of
// transport: there d and pay would need memory of the heap.
func (l *loop) passOn(c *Client, s *socket, sl *slot, d *shm.Sub, pay *payload) bool {
	e := l.e
	here, is := sl.way.(*localAddr)
	if !is || e.traces.On || sl.q.N > 0 || sl.waitOn != nil || sl.port == 0 || d.Cookie != 0 || d.GiveUp != 0 || d.Flags&(shm.SubNotify|shm.SubTraceparent) != 0 {
		return false
	}
	to := e.dests.meant(here, sl.port, sl.pin.means(d.DstInc))
	if to == nil || to.ping != nil {
		return false
	}
	var a arrival
	a.src, a.sport, a.srcInc, a.n, a.run = &s.local.addr16, s.port, s.inc, len(pay.mem), pay.run
	if e.rx.deliver(to, &a, pay.mem) != conn.Accepted {
		return false
	}
	sl.pin.met(to.inc)
	e.st.C[stats.SendAcked] += uint64(pay.sum.Datagrams)
	e.st.C[stats.LocalMessages] += uint64(pay.sum.Datagrams)
	e.watch.passedOn(s, uint64(pay.sum.Datagrams))
	if s.txs.N == 0 {
		e.st.C[stats.SendQueueEmpty]++
	}
	c.sret.Put(d.MsgID)
	e.clients.news(c)
	return true
}

// take delivers t now, or queues it behind what its destination already waits for.
func (l *localAddr) take(t *txMsg) {
	sl := t.slot
	switch {
	case t.m.DestCookie != 0 && !l.loop.e.keys.grantCookie(t):
	case sl.q.N > 0 || t.nops > 0:
		sl.queue(t)
		l.resume(sl)
	case !l.deliver(t):
		sl.queue(t)
	}
}

// deliver hands t to its destination; false: refused, the slot waits
// until the socket has room.
func (l *localAddr) deliver(t *txMsg) bool {
	e := l.loop.e
	sl := t.slot
	if sl.port == 0 && !e.cfg.IgnorePings { // ping
		e.watch.counts.sum.RecvPing++
		e.rx.deliver(t.sock, &arrival{src: &l.addr16}, nil)
		l.end(t, msg.Acked)
		return true
	}
	if t.m.DstInc == 0 { // else it means who owns the memory of its operations
		t.m.DstInc = t.pin.means(t.name)
	}
	s := e.dests.meant(l, sl.port, t.m.DstInc)
	if s == nil || s.ping != nil {
		e.watch.counts.sum.RecvDropNoSock += uint64(t.sum.Datagrams)
		l.end(t, msg.NoSock)
		return true
	}
	a := arrival{src: &t.sock.local.addr16, sport: t.sock.port, srcInc: t.sock.inc, cookie: t.m.DestCookie,
		n: len(t.m.Data), run: t.m.Run}
	if t.m.Traceparent != nil {
		a.belongs(t.m.Traceparent)
	}
	if t.m.Watched {
		e.traces.onHost(t, s, &a)
	}
	if !t.m.Silent {
		if e.rx.deliver(s, &a, t.m.Data) == conn.Refused {
			e.watch.counts.sum.RecvRefused += uint64(t.sum.Datagrams)
			sl.waitOn = s
			s.waiters.Add(&sl.wait, sl)
			return false
		}
		t.pin.met(s.inc)
	}
	e.st.C[stats.LocalMessages] += uint64(t.sum.Datagrams)
	if t.nops > 0 && !t.m.Silent {
		for _, o := range t.ops() {
			e.keys.usedKey(netip.Addr{}, 0, s, o.RKey())
		}
	}
	l.end(t, msg.Acked)
	return true
}

// end ends t with outcome o; operations that have run are locally complete first.
func (l *localAddr) end(t *txMsg, o msg.Outcome) {
	tx, sl := &l.loop.e.tx, t.slot
	if sl.unqueue(t); sl.q.N == 0 && sl.waitOn != nil {
		sl.waitOn.waiters.Del(&sl.wait)
		sl.waitOn = nil
	}
	if t.nops > 0 && t.opv[0].State() == rdmaop.StatePosted {
		tx.opsLocal(t)
	}
	tx.msgDone(t, o)
}

// retired: whichever socket t went to and whatever became of it, this was the one use of the
// regions for one use.
func (l *localAddr) retired(t *txMsg) {
	for _, o := range t.ops() {
		if r := l.loop.e.keys.by[o.RKey()]; r != nil && r.user == t {
			r.user, r.spent = nil, true
		}
	}
}

func (l *localAddr) check(t *txMsg, o *txOp) unix.Errno {
	_, errno := l.target(t, o)
	return errno
}

func (l *localAddr) expose(r *region, port uint16, _ offer) error {
	if r.exp.Granted(l.key, port) {
		return nil
	}
	_, err := l.loop.e.keys.grant(r, netip.Addr{}, nil, l.key, port)
	return err
}

func (l *localAddr) resume(sl *slot) { l.loop.addJob(sl) }

func (l *localAddr) join(sl *slot) {
	to := l.slots[sl.port]
	if to == nil {
		to = &audience{}
		l.slots[sl.port] = to
	}
	sl.leadTo(to)
}

func (l *localAddr) left(sl *slot) {
	if l.slots[sl.port].N == 0 {
		delete(l.slots, sl.port)
	}
	sl.leaveRota()
	l.loop.e.tx.cancelClosed(sl)
}

func (l *localAddr) inform(sl *slot) (congested bool) { return l.cong.Test(sl.port) }
func (l *localAddr) renew(*pin)                       {} // a restart of this daemon ends its processes' sockets
func (l *localAddr) times() *times                    { return nil }

func (l *localAddr) waitsFor(sl *slot, _ bool) string {
	if sl.waitOn != nil {
		return ctl.WaitsForReceiver
	}
	return ctl.WaitsForCopy
}

func (l *loop) addJob(sl *slot) {
	if sl.waitOn == nil && !sl.closed {
		l.jobs.enter(sl)
	}
}

// rouse has those who wait for s by now try again, in turns, as long as it has room.
func (l *loop) rouse(s *socket) {
	if s.waiters.N == 0 {
		return
	}
	s.toWake = s.waiters.N
	if !s.inRoused.On() {
		l.rousing.Add(&s.inRoused, s)
	}
	l.e.chores.Begin(&l.rousing.Chore)
}

// wakeNext is the chore that wakes those who wait for sockets with room, of one socket after the other.
func (l *loop) wakeNext() bool {
	if l.rousing.N == 0 {
		return false
	}
	s := l.rousing.Head.Of
	if s.toWake = min(s.toWake, s.waiters.N); s.toWake > 0 && (s.left || s.buffered() < s.limit) {
		s.toWake--
		l.wakeWaiter(s)
		l.rousing.TurnOver()
	} else { // full again: it comes back with room
		l.rousing.Del(&s.inRoused)
	}
	return true
}

// wakeWaiter has the first that waits for s try again.
func (l *loop) wakeWaiter(s *socket) {
	sl := s.waiters.Head.Of
	s.waiters.Del(&sl.wait)
	sl.waitOn = nil
	l.addJob(sl)
}

// run works on the slots in turn, a slice each, within the turn's budget.
func (l *loop) run() bool {
	e := l.e
	n := l.jobs.n
	for i, budget := 0, copySlices*e.cfg.CopySlice; i < n && budget > 0; i++ {
		sl := l.jobs.pick(e.cfg.CopySlice, nil, 0)
		if sl == nil {
			break
		}
		used := l.runSlot(sl, min(budget, e.cfg.CopySlice))
		budget -= used
		if sl.spend(used); sl.q.N == 0 || sl.waitOn != nil {
			sl.leaveRota()
		}
	}
	return n > 0
}

// msgCost is what a same-host message costs besides its payload, in bytes copied.
const msgCost = 256

// runSlot does up to budget bytes of a slot's work and returns how many.
func (l *loop) runSlot(sl *slot, budget int) int {
	used, here := 0, sl.way.(*localAddr)
	for sl.q.N > 0 && used < budget && sl.waitOn == nil {
		t := sl.q.Head.Of
		if o := t.unfinished(); o != nil {
			used += here.runOp(sl, t, o, budget-used)
			continue
		}
		n := len(t.m.Data) + msgCost
		if t.ungranted && !l.e.keys.grantCookie(t) {
			used += msgCost
			continue
		}
		if !here.deliver(t) {
			used += msgCost
			break // it keeps its place at the head
		}
		used += n
	}
	return used
}

// unfinished returns t's first operation that has something left to do.
func (t *txMsg) unfinished() *txOp {
	for _, o := range t.ops() {
		if o.copied < o.Len {
			return o
		}
	}
	return nil
}

// runOp does up to budget bytes of o, an operation of t at the head of sl,
// and returns what it cost.
func (l *localAddr) runOp(sl *slot, t *txMsg, o *txOp, budget int) int {
	if o.State() == rdmaop.StateQueued && !l.start(sl, t) {
		return msgCost
	}
	r, errno := l.target(t, o)
	if errno != 0 {
		// Released since: the rest is not done, the message not delivered.
		t.m.WCStatus, t.m.Bad = verbs.WCRemAccessErr, &o.Op
		l.end(t, msg.OpFailed)
		return msgCost
	}
	if !o.Kind.Atomic() {
		n := l.loop.copyOp(o, r, budget)
		o.copied += uint64(n)
		if o.Kind == abi.OpWrite {
			r.served.Add(uint64(n), 0)
		} else {
			r.served.Add(0, uint64(n))
		}
		return n
	}
	if old, ok := word.Run(&o.Op, r.buf.mem[r.off+o.RemoteOff:][:8]); ok {
		binary.NativeEndian.PutUint64(o.bufs[0].mem[o.Segs[0].Addr:], old)
		o.copied = o.Len
		return msgCost
	}
	return budget // on in the next turn
}

// start begins the operations of t, which from here on have run or may
// have; false: one of them may not any more, and t has ended.
func (l *localAddr) start(sl *slot, t *txMsg) bool {
	e := l.loop.e
	for _, o := range t.ops() {
		if _, errno := l.target(t, o); errno != 0 {
			sl.unqueue(t)
			return e.tx.refuse(t, o, errno)
		}
	}
	if bad, errno := t.meansOwner(l.owner); errno != 0 {
		sl.unqueue(t)
		return e.tx.refuse(t, bad, errno)
	}
	for _, o := range t.ops() {
		if r := e.keys.by[o.RKey()]; r.rights&abi.UseOnce != 0 {
			r.user = t
		}
		e.tx.stepOp(t, o, rdmaop.Event{Type: rdmaop.EvPost})
	}
	return true
}

// target finds the region that an operation is for and checks it as a
// peer's grants would.
func (l *localAddr) target(t *txMsg, o *txOp) (*region, unix.Errno) {
	r := l.loop.e.keys.by[o.RKey()]
	if r == nil || r.exp.State() != rdmaop.ExportLive || r.cookie != o.Cookie || r.sock.local != l ||
		r.spent || r.user != nil && r.user != t {
		return nil, unix.EINVAL
	}
	granted := r.exp.Granted(t.sock.local.key, t.sock.port)
	if r.rights&o.Rights() == 0 || !granted && r.rights&abi.Open == 0 {
		return nil, unix.EACCES
	}
	if o.Len > r.n || o.RemoteOff > r.n-o.Len {
		return nil, unix.ERANGE
	}
	if !granted && t.sock.local.expose(r, rdmaop.AnyPort, byCookie) != nil {
		return nil, unix.EACCES
	}
	return r, 0
}

// owner is whose the memory of an operation is, which target has found.
func (l *localAddr) owner(o *txOp) rdmaop.Owner {
	s := l.loop.e.keys.by[o.RKey()].sock
	return rdmaop.Owner{Port: s.port, Inc: s.inc}
}

// copyOp copies the next up to max bytes of o.
func (l *loop) copyOp(o *txOp, r *region, max int) int {
	done, total := o.copied, 0
	remote := r.buf.mem[r.off : r.off+r.n]
	pos := uint64(0)
	for i := range o.Segs {
		s := &o.Segs[i]
		if done >= pos+uint64(s.Len) {
			pos += uint64(s.Len)
			continue
		}
		in := done - pos
		n := min(uint64(s.Len)-in, uint64(max-total))
		loc := o.bufs[i].mem[s.Addr+in:][:n]
		rem := remote[o.RemoteOff+done:][:n]
		if o.Kind == abi.OpWrite {
			copy(rem, loc)
		} else {
			copy(loc, rem)
		}
		done += n
		total += int(n)
		pos += uint64(s.Len)
		if total == max {
			break
		}
	}
	l.e.st.C[stats.LocalRDMABytes] += uint64(total)
	return total
}
