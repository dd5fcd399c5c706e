package daemon

import (
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rdmaop"
	"golang.org/x/sys/unix"
)

// submitOp reads the operation of a message. It reports whether the message
// goes on; if not, it has been ended: with a status where the application is
// at fault, with its session where only a broken client can be.
func (e *Engine) submitOp(t *txMsg, d *shm.SubOp) bool {
	ce := t.slot.cell
	if err := ce.mark.Issue(d.OpID); err != nil {
		c := t.cl
		e.unlist(t)
		e.freeMsg(t)
		e.kill(c, "operation id: %w", err)
		return false
	}
	t.hasOp, t.cell = true, ce
	t.sock.ops++
	e.ops++
	t.op.Reset()
	t.op.ID, t.op.Token = d.OpID, d.Token
	t.op.Cookie, t.op.RemoteOff, t.op.Len = d.Cookie, d.RemoteOff, d.Len
	t.op.Flags = rdmaop.Flags(d.Flags)
	e.stepOp(t, rdmaop.Event{Type: rdmaop.EvQueue})
	t.m.Op, t.m.Silent = &t.op, d.Flags&shm.OpSilent != 0
	e.st.C[stats.SendRDMA]++
	switch d.Op {
	case shm.OpWrite:
		t.op.Kind = rdmaop.Write
		e.st.C[stats.RDMAWrites]++
		e.st.C[stats.SendRDMABytes] += d.Len
	case shm.OpRead:
		t.op.Kind = rdmaop.Read
		e.st.C[stats.RDMAReads]++
		e.st.C[stats.RecvRDMABytes] += d.Len
	default:
		return e.refuse(t, unix.EOPNOTSUPP)
	}
	if errno := e.localSegments(t, d); errno != 0 {
		return e.refuse(t, errno)
	}
	if errno := t.op.Validate(); errno != 0 {
		return e.refuse(t, errno)
	}
	errno := unix.Errno(0)
	switch p := t.slot.peer; {
	case p != nil:
		errno = p.grants.Check(&t.op, t.sock.port)
	case t.slot.local != nil:
		_, errno = e.localTarget(t)
	default:
		errno = unix.ENOBUFS // no peer, no grant
	}
	if errno != 0 {
		return e.refuse(t, errno)
	}
	return true
}

// CanPost is asked by the connection when the operation's turn has come: the
// grant may have gone since it was submitted.
func (e *Engine) CanPost(c *conn.Conn, m *conn.Msg) bool {
	t := m.Owner.(*txMsg)
	if t.op.State() == rdmaop.StatePosted {
		return true
	}
	if errno := e.peerOf(c).grants.Use(&t.op, t.sock.port); errno != 0 {
		t.errno = errno
		return false
	}
	e.stepOp(t, rdmaop.Event{Type: rdmaop.EvPost})
	return true
}

// localSegments resolves the operation's local memory.
func (e *Engine) localSegments(t *txMsg, d *shm.SubOp) unix.Errno {
	if d.NSeg == 0 || d.NSeg > shm.SegListMax {
		return unix.EINVAL
	}
	if d.NSeg == 1 {
		return e.addSegment(t, d.Region, d.Off, d.Len)
	}
	off := uint64(d.SegChunk) * shm.Unit
	w, in := off/shm.WindowSize, off%shm.WindowSize
	n := uint64(int(d.NSeg) * shm.SegEntrySize)
	if w >= uint64(len(t.cl.send)) || in+n > shm.WindowSize {
		return unix.EFAULT
	}
	list := t.cl.send[w].mem[in : in+n]
	sum := uint64(0)
	for i := 0; i < int(d.NSeg); i++ {
		s := shm.ReadSegEntry(list[i*shm.SegEntrySize:])
		if errno := e.addSegment(t, s.Region, s.Off, s.Len); errno != 0 {
			return errno
		}
		sum += s.Len
	}
	if sum != d.Len {
		return unix.EINVAL
	}
	return 0
}

func (e *Engine) addSegment(t *txMsg, id uint32, off, n uint64) unix.Errno {
	b := t.cl.buffers[id]
	switch {
	case b == nil || b.freeing:
		return unix.EFAULT
	case n == 0 || n > 1<<31:
		return unix.EINVAL
	case off > uint64(len(b.mem)) || n > uint64(len(b.mem))-off:
		return unix.EFAULT
	}
	if t.cl.segs >= maxSegs {
		return unix.ENOBUFS
	}
	t.cl.segs++
	t.op.Segs = append(t.op.Segs, rdmaop.Seg{LKey: b.mr.LKey(), Addr: off, Len: uint32(n)})
	b.users++
	t.bufs = append(t.bufs, b)
	return 0
}

// refuse ends an operation that may not be posted: a status for it, nothing on
// the wire, nobody else affected.
func (e *Engine) refuse(t *txMsg, errno unix.Errno) bool {
	t.errno = errno
	e.msgDone(t, conn.OpRefused)
	return false
}

// stepOp runs the operation's state machine and carries out what it asks for.
func (e *Engine) stepOp(t *txMsg, ev rdmaop.Event) {
	eff, err := t.op.Step(ev)
	if err != nil {
		// A bug of ours, not of a client: counted and traced, never fatal.
		e.cfg.Trace(t.sock.local.addr, t.slot.addr, "operation state", err)
		return
	}
	if eff&rdmaop.Report != 0 {
		e.report(t)
	}
	if eff&rdmaop.RaiseLocal != 0 {
		if err := t.cell.mark.Complete(t.op.ID); err == nil {
			e.raise(t.cell)
		}
	}
}

// opDone maps the end of a message to the end of its operation.
func (e *Engine) opDone(t *txMsg, o conn.Outcome) {
	e.opRetired(t)
	ev := rdmaop.Event{}
	switch o {
	case conn.Acked:
		ev.Type = rdmaop.EvAck
	case conn.Cancelled:
		ev.Type = rdmaop.EvCancel
	case conn.NoSock:
		ev.Type = rdmaop.EvNoSocket
	case conn.Dropped:
		ev.Type = rdmaop.EvLess
	case conn.Lost, conn.Unknown:
		ev.Type = rdmaop.EvRestarted
	case conn.OpFailed:
		ev.Type, ev.WC = rdmaop.EvWCError, t.m.WCStatus
	case conn.OpRefused:
		ev.Type, ev.Errno = rdmaop.EvRefuse, t.errno
	}
	e.stepOp(t, ev)
	t.sock.ops--
	e.ops--
	e.countStatus(t.op.Status(), o)
}

func (e *Engine) countStatus(s rdmaop.Status, o conn.Outcome) {
	c := stats.OpFailed
	switch {
	case o == conn.OpRefused:
		c = stats.OpRefused
	case s == rdmaop.StatusSuccess:
		c = stats.OpSuccess
	case s == rdmaop.StatusCanceled:
		c = stats.OpCanceled
	case s == rdmaop.StatusDropped:
		c = stats.OpDropped
	case s == rdmaop.StatusUnknown:
		c = stats.OpUnknown
	}
	e.st.C[c]++
}

// OpLocal is the connection's up-call: the local buffers are free again.
func (e *Engine) OpLocal(_ *conn.Conn, m *conn.Msg) {
	t := m.Owner.(*txMsg)
	e.stepOp(t, rdmaop.Event{Type: rdmaop.EvLocal})
	e.opRetired(t)
}

// opRetired ends the operation's use of its key. The last one on a key the
// target asked back lets it have it.
func (e *Engine) opRetired(t *txMsg) {
	if p := t.slot.peer; p != nil && p.grants.Done(&t.op) {
		e.sendRevoked(p, t.op.RKey())
	}
}

// MsgDone is the connection's up-call for the end of a message.
func (e *Engine) MsgDone(_ *conn.Conn, m *conn.Msg, o conn.Outcome) {
	switch t := m.Owner.(type) {
	case *txMsg:
		e.msgDone(t, o)
	case *ctlMsg:
		e.ctlDone(t, o)
	}
}

// report tells the application its operation's status, if it wants to know.
func (e *Engine) report(t *txMsg) {
	c := t.cl
	if c.dead || t.sock.closed || !t.op.WantsStatus() {
		return
	}
	if c.pendOps.n == 0 && c.ev.Free() > 0 {
		e.putStatus(t)
		return
	}
	t.queued = true
	c.pendOps.push(t)
	e.setStuck(c)
}

func (e *Engine) putStatus(t *txMsg) {
	if t.cl.dead || t.sock.closed {
		return
	}
	*t.cl.ev.Reserve().Status() = shm.EventStatus{Kind: shm.EvStatus, Status: uint8(t.op.Status()), Sock: t.sock.idx,
		Cell: t.cell.idx, Errno: uint32(t.op.Errno()), Token: t.op.Token, OpID: t.op.ID}
	e.news(t.cl)
}
