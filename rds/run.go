package rds

import (
	"net/netip"

	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/internal/shm"
)

// A plain datagram of up to runMax bytes is sent as part of a run (shm.RunState): it is
// appended to the run of its destination if the daemon has not taken that yet, else it
// opens one. Nothing waits for company. Everything else closes the destination's run
// before it, so that the order is kept, and has a descriptor of its own.
//
// A call that sends several datagrams writes their frames first and then commits them
// together. Until then they are uncommitted: the daemon does not see them, and may take
// the run without them. Then they go into another run.

const (
	// runMax is the longest payload that goes into a run.
	runMax = 2 << 10
	// leastRun and mostRun are the bytes of a run's chunk. It is small where the daemon
	// takes runs that hold little.
	leastRun = 256
	mostRun  = 16 << 10
	// runsToReap is how many runs are opened before a sender takes in returned messages.
	runsToReap = 8
)

// inRun reports whether m goes into a run. A ping, which is for port 0, does not. tx.mu is
// held.
func (m *outMsg) inRun() bool {
	return m.x == nil && len(m.p) <= runMax && m.to.Port() != 0
}

// outRun is the run of a destination that may still be appended to. Guarded by tx.mu.
type outRun struct {
	mem     []byte // its chunk, nil: there is none
	id      uint32 // message id
	state   shm.RunState
	next    shm.RunState // with the uncommitted frames
	fresh   int          // uncommitted datagrams that have a payload
	size    int          // of the chunk of the next run
	opened  uint64       // tx.published when it was opened: the descriptor is not visible before that changes
	notices uint32       // Socket.noticed when it was opened
}

// uncommitted is what was written and not committed.
func (r *outRun) uncommitted() frames.Sum {
	return frames.Sum{Datagrams: r.next.Datagrams() - r.state.Datagrams(), NonEmpty: r.fresh, Bytes: r.next.Payload() - r.state.Payload()}
}

// takes reports whether a payload of n bytes can be appended. After a notice it cannot:
// what was submitted before the notice may end otherwise than what comes after it.
func (r *outRun) takes(s *Socket, n int) bool {
	if r.mem == nil || r.notices != s.noticed.Load() {
		return false
	}
	if r.opened != s.c.tx.published && r.next == r.state && shm.RunWord(r.mem).Load() == shm.RunClosed {
		r.shrink()
		return false
	}
	if shm.RunHead+r.next.Len()+frames.Size(n) > len(r.mem) {
		r.size = min(2*len(r.mem), mostRun)
		return false
	}
	return true
}

// append writes the frame of m into the run of its destination. It is uncommitted then, and
// nothing else is. The errors are those of submit. mu is held.
func (t *tx) append(s *Socket, m *outMsg, arm bool) error {
	d, err := t.toward(s, m, arm)
	if err != nil {
		return err
	}
	if !s.room() {
		t.reap()
		if s.full(arm) {
			return errFull
		}
	}
	r := &d.run
	if !r.takes(s, len(m.p)) {
		r.mem = nil
		if err := t.openRun(s, d, m); err != nil {
			return err
		}
	}
	r.put(m.p)
	t.cur = d
	return nil
}

// put writes the frame of p into r, which takes it, and of which nothing is uncommitted.
func (r *outRun) put(p []byte) {
	frames.Put(r.mem[shm.RunHead+r.next.Len():], p)
	r.next = r.next.Append(len(p))
	r.fresh = min(len(p), 1)
}

// sendAgain sends a plain datagram and reports whether it has. It does so where the datagram needs
// no more than its frame and a new state of the run that is there. It leaves everything else to send,
// for which it keeps tx.mu locked.
func (s *Socket) sendAgain(p []byte, to netip.AddrPort) bool {
	t := &s.c.tx
	t.mu.Lock()
	d, may := s.lastDest, !s.closed.Load() && s.state() == nil && !s.wdl.expired.Load() && len(p) <= min(runMax, s.sndbuf) && s.room()
	if d == nil || d.to != to {
		if d = s.nearest(&to); d != nil {
			d.used, s.lastDest = true, d
		}
	}
	if may && d != nil && d.clear() && d.run.takes(s, len(p)) {
		d.run.put(p)
		if t.commitTo(d) {
			t.mu.Unlock()
			return true
		}
	}
	return false
}

// appendMore goes on with ms where the last append of this call of the application ended: it
// appends plain datagrams to runs that take them, and commits each run ahead of the next. n and
// done are as in sendBatch. What append has checked of the socket still holds, because mu was
// held since.
func (t *tx) appendMore(s *Socket, ms []Message, n, done int) (int, int) {
	for {
		n += t.cur.appendSame(ms[n:])
		if n == len(ms) || !ms[n].plain() {
			return n, done
		}
		d := s.nearest(&ms[n].Addr)
		if d == nil || d == t.cur || len(ms[n].Payload) > runMax {
			return n, done
		}
		if !t.commitRun() {
			return done, done // as in commitBatch
		}
		done = n
		// The first may take in messages, d's run among them, so nothing is uncommitted.
		if t.hinders(s, d) != nil || !d.run.takes(s, len(ms[n].Payload)) {
			return n, done
		}
		d.used = true
		t.cur, s.lastDest = d, d
	}
}

// appendSame appends those of ms that are to d as well, for which there is room, and returns how many.
func (d *dest) appendSame(ms []Message) (n int) {
	s, r := d.sock, &d.run
	sum := r.uncommitted()
	bytes, count := s.sndbuf-s.charged(), shm.MaxMsgs(s.sndbuf)-s.msgs // may be charged
	for ; n < len(ms); n++ {
		m := &ms[n]
		k := len(m.Payload)
		if !m.plain() || k > min(runMax, s.sndbuf) || m.Addr != d.to || sum.Bytes >= bytes || sum.NonEmpty >= count || !r.takes(s, k) {
			break
		}
		m.OpID, m.AtomicID = 0, 0
		frames.Put(r.mem[shm.RunHead+r.next.Len():], m.Payload)
		r.next = r.next.Append(k)
		sum.NonEmpty += min(k, 1)
		sum.Bytes += k
	}
	r.fresh = sum.NonEmpty
	return n
}

// openRun opens a run to d with room for m. mu is held.
func (t *tx) openRun(s *Socket, d *dest, m *outMsg) error {
	if !t.sub.FreeAtLeast(maxMsgEntries) {
		return errRingFull
	}
	if t.sends += reapEvery / runsToReap; t.sends >= reapEvery || len(t.free) == 0 || t.idsOver(d) || t.memOver(d) {
		t.reap()
		switch {
		case len(t.free) == 0:
			return t.starve(m)
		case t.idsOver(d):
			return t.refuse(d)
		case !t.memOver(d):
		case t.full:
			return t.refuse(d)
		default:
			return t.starve(m)
		}
	}
	r := &d.run
	size := max(r.size, leastRun, shm.RunHead+frames.Size(len(m.p)))
	before := t.arena.InUse()
	chunk, ok := t.alloc(size, &before)
	if !ok {
		return t.starve(m)
	}
	id := t.takeID(d)
	x := &t.msgs[id]
	x.sock, x.dest, x.chunk, x.size, x.mem, x.sent = s, d, chunk, uint32(size), uint32(t.arena.InUse()-before), true
	d.mem += int(x.mem)
	*r = outRun{mem: t.arena.Bytes(chunk, size), id: id, size: size, opened: t.published, notices: s.noticed.Load()}
	sub := t.sub.Reserve().Sub()
	*sub = shm.Sub{}
	sub.Kind, sub.Sock, sub.Slot, sub.MsgID, sub.Chunk, sub.Len = shm.KindRun, s.handle, d.slot, id, chunk, uint32(size)
	return nil
}

// commitRun lets the daemon see the uncommitted frames. false: it has taken their run
// without them, and they are to be sent again. mu is held.
func (t *tx) commitRun() bool {
	d := t.cur
	if d == nil {
		return true
	}
	t.cur = nil
	return t.commitTo(d)
}

// commitTo is commitRun for the run of d.
func (t *tx) commitTo(d *dest) bool {
	r := &d.run
	sum := r.uncommitted()
	d.charge(sum)
	if d.sock.halfFull() {
		r.next |= shm.RunAckNow
	}
	w := shm.RunWord(r.mem)
	if r.opened == t.published {
		w.Open(r.next)
	} else if !w.Replace(r.state, r.next) {
		r.shrink()
		r.mem = nil
		d.uncharge(sum)
		return false
	}
	r.state, r.fresh = r.next, 0
	t.msgs[r.id].sum = t.msgs[r.id].sum.Plus(sum)
	return true
}

// shrink has the next run be smaller if r, which the daemon has taken, held little.
func (r *outRun) shrink() {
	if r.state.Len() < len(r.mem)/4 {
		r.size = max(len(r.mem)/2, leastRun)
	}
}

// endRun has nothing more appended to d's run, whose frames are committed. mu is held.
func (d *dest) endRun() {
	d.run.mem = nil
}
