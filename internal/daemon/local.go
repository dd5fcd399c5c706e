package daemon

import (
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
	"golang.org/x/sys/unix"
)

// Same host: the message goes from the sender's arena to the receiver's in one
// copy, in the order and under the congestion rules of the network path. An
// operation is a copy between mappings, a slice per turn, its message after
// it.

// sendLocal delivers t now, or queues it behind what its destination slot
// already waits for.
func (e *Engine) sendLocal(t *txMsg) {
	sl := t.slot
	if sl.local == nil {
		sl.q.push(t) // see findHomes
		return
	}
	if sl.q.n > 0 || t.hasOp {
		sl.q.push(t)
		e.addJob(sl)
		return
	}
	if !e.deliverLocal(t) {
		sl.q.push(t)
	}
}

// deliverLocal hands t to its destination; false: refused, the slot waits
// until the socket has room.
func (e *Engine) deliverLocal(t *txMsg) bool {
	sl := t.slot
	if sl.port == 0 { // ping
		e.localPong(t)
		e.localDone(t, conn.Acked)
		return true
	}
	s := sl.local.ports.get(sl.port)
	if s == nil || s.ping != nil {
		e.own.RecvDropNoSock++
		e.localDone(t, conn.NoSock)
		return true
	}
	a := arrival{src: &t.sock.local.addr16, sport: t.sock.port, srcInc: t.sock.inc, cookie: t.m.DestCookie, n: len(t.m.Data)}
	if !(t.hasOp && t.m.Silent) {
		if e.deliver(s, &a, t.m.Data) == conn.Refused {
			e.own.RecvRefused++
			sl.waitOn = s
			s.waiters.add(&sl.wait, sl)
			return false
		}
	}
	e.st.C[stats.LocalMessages]++
	e.localDone(t, conn.Acked)
	return true
}

// localPong answers a ping from a socket of this host to an address of this
// host.
func (e *Engine) localPong(t *txMsg) {
	e.own.RecvPing++
	src := t.slot.addr.As16()
	a := arrival{src: &src}
	e.deliver(t.sock, &a, nil)
}

// localDone ends a same-host message; an operation whose copy ran is locally
// complete first.
func (e *Engine) localDone(t *txMsg, o conn.Outcome) {
	if t.hasOp && t.op.State() == rdmaop.StatePosted {
		e.stepOp(t, rdmaop.Event{Type: rdmaop.EvLocal})
		// Whichever socket the message went to and whatever became of it, this
		// was the one use.
		if r := e.regions[t.op.RKey()]; r != nil && r.user == t {
			r.user = nil
			e.usedKey(r.sock, r.id, t.sock.local.key)
		}
	}
	t.slot.copied = 0
	e.msgDone(t, o)
}

// cancelLocal withdraws what a slot has queued; it waits for nobody then.
func (e *Engine) cancelLocal(sl *slot) {
	for t := sl.q.pop(); t != nil; t = sl.q.pop() {
		e.localDone(t, cancelled)
	}
	if sl.waitOn != nil {
		sl.waitOn.waiters.del(&sl.wait)
		sl.waitOn = nil
	}
}

func (e *Engine) addJob(sl *slot) {
	if !sl.job.on() && sl.waitOn == nil && !sl.closed {
		e.jobs.add(&sl.job, sl)
	}
}

func (e *Engine) wakeWaiters(s *socket) {
	for s.waiters.n > 0 {
		sl := s.waiters.head.of
		s.waiters.del(&sl.wait)
		sl.waitOn = nil
		e.addJob(sl)
	}
}

// runLocalJobs works on the slots in turn, a slice each, within the turn's
// budget.
func (e *Engine) runLocalJobs() bool {
	n := e.jobs.n
	for i, budget := 0, localBudget; i < n && budget > 0 && e.jobs.n > 0; i++ {
		sl := e.jobs.head.of
		e.jobs.del(&sl.job)
		budget -= e.runSlot(sl, min(budget, localSlice))
		if sl.q.n > 0 {
			e.addJob(sl)
		}
	}
	return n > 0
}

// msgCost is what a local message costs besides its payload, in bytes copied.
const msgCost = 256

// runSlot does up to budget bytes of a slot's work and returns how many.
func (e *Engine) runSlot(sl *slot, budget int) int {
	used := 0
	for sl.q.n > 0 && used < budget && sl.waitOn == nil {
		t := sl.q.head
		if t.hasOp && sl.copied < t.op.Len {
			if t.op.State() == rdmaop.StateQueued {
				e.stepOp(t, rdmaop.Event{Type: rdmaop.EvPost})
			}
			r, errno := e.localTarget(t)
			if errno != 0 {
				// Released since: the rest is not copied, the message not delivered.
				sl.q.pop()
				t.m.WCStatus = verbs.WCRemAccessErr
				e.localDone(t, conn.OpFailed)
				used += msgCost
				continue
			}
			if r.rights&rdmaop.UseOnce != 0 {
				r.user = t
			}
			n := e.copyOp(t, r, budget-used)
			sl.copied += uint64(n)
			used += n
			continue
		}
		sl.q.pop()
		n := len(t.m.Data) + msgCost
		if !e.deliverLocal(t) {
			// Keep its place at the head.
			sl.q.unpop(t)
			break
		}
		used += n
	}
	return used
}

// localTarget finds the region a same-host operation is for and checks it as a
// peer's grants would.
func (e *Engine) localTarget(t *txMsg) (*region, unix.Errno) {
	r := e.regions[t.op.RKey()]
	if r == nil || r.exp.State() != rdmaop.ExportLive || r.cookie != t.op.Cookie || r.sock.local != t.slot.local ||
		r.user != nil && r.user != t {
		return nil, unix.EINVAL
	}
	if r.rights&t.op.Rights() == 0 || !r.exp.Granted(t.sock.local.key, t.sock.port) {
		return nil, unix.EACCES
	}
	if t.op.Len > r.n || t.op.RemoteOff > r.n-t.op.Len {
		return nil, unix.ERANGE
	}
	return r, 0
}

// copyOp copies the next up to max bytes of t's operation.
func (e *Engine) copyOp(t *txMsg, r *region, max int) int {
	done, total := t.slot.copied, 0
	remote := r.buf.mem[r.off : r.off+r.n]
	pos := uint64(0)
	for i := range t.op.Segs {
		s := &t.op.Segs[i]
		if done >= pos+uint64(s.Len) {
			pos += uint64(s.Len)
			continue
		}
		in := done - pos
		n := min(uint64(s.Len)-in, uint64(max-total))
		loc := t.bufs[i].mem[s.Addr+in:][:n]
		rem := remote[t.op.RemoteOff+done:][:n]
		if t.op.Kind == rdmaop.Write {
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
	e.st.C[stats.LocalRDMABytes] += uint64(total)
	return total
}
