package rds

import (
	"syscall"
	"unsafe"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/shm"
)

type fakeRx struct {
	sock  *fakeSock
	chunk uint32
	n     int
	steps int // of a run: how many more parts may be returned
}

// fakeMsg is a submitted message.
type fakeMsg struct {
	sub  shm.Sub
	ops  []shm.SubOp
	slot *fakeSlot
	data []byte
	run  int    // datagrams, if data is a run
	tail []byte // its traceparent
}

// datagrams is how many m is.
func (m *fakeMsg) datagrams() uint64 { return uint64(max(1, m.run)) }

// silent reports that the message is not to be delivered.
func (m *fakeMsg) silent() bool {
	for i := range m.ops {
		if m.ops[i].Flags&abi.FlagSilent == 0 {
			return false
		}
	}
	return len(m.ops) > 0 && m.sub.Len == 0 && m.sub.Cookie == 0
}

func (d *fakeDaemon) submit(sub shm.Sub, ops []shm.SubOp) {
	if d.used[sub.MsgID] {
		d.bad("message id in use")
		return
	}
	d.used[sub.MsgID] = true
	if d.sock(sub.Sock).closed {
		d.ack(sub.MsgID)
		return
	}
	sl := d.slots[sub.Slot]
	if sl == nil || sl.sock.handle != sub.Sock {
		d.bad("send to a slot that is not open for the socket")
		return
	}
	m := fakeMsg{sub: sub, ops: ops, slot: sl}
	switch {
	case sub.Kind == shm.KindRun:
		mem := d.at(sub.Chunk, int(sub.Len))
		s := shm.RunWord(mem).Close()
		if err := s.Check(len(mem)); err != nil {
			d.bad(err.Error())
			return
		}
		m.data, m.run = mem[shm.RunHead:][:s.Len()], s.Datagrams()
		if sum, ok := frames.Check(m.data, m.run); !ok || sum.Bytes != s.Payload() {
			d.bad("the frames of a run are not what its state says")
			return
		}
	case sub.Flags&shm.SubFromBuf != 0:
		b := d.bufs[sub.Buf]
		if sub.Len == 0 || sub.Off+uint64(sub.Len) > uint64(len(b)) {
			d.bad("payload outside its buffer")
			return
		}
		m.data = b[sub.Off:][:sub.Len]
	case sub.Len > 0:
		m.data = d.at(sub.Chunk, int(sub.Len))
	}
	if d.record {
		d.taken = append(d.taken, m.run)
	}
	if sub.Flags&shm.SubTraceparent != 0 && !d.older {
		n := int(sub.Len)
		if sub.Flags&shm.SubFromBuf != 0 {
			n = 0
		}
		m.tail = d.at(sub.Chunk, n+wire.TraceparentLen)[n:]
	}
	for i := range ops {
		if sl.cell.last++; ops[i].OpID != sl.cell.last {
			d.bad("operation id out of order")
		}
	}
	if d.holdSends || ops != nil && d.holdOps || sl.to.Addr() != d.local && !sl.to.Addr().IsLoopback() {
		d.held = append(d.held, m)
		return
	}
	d.finish(m)
}

// finish does what m asks for and ends it.
func (d *fakeDaemon) finish(m fakeMsg) {
	for i := range m.ops {
		if errno := d.runOp(&m.ops[i]); errno != 0 {
			d.end(m, abi.StatusRemoteError, errno)
			return
		}
	}
	if !m.silent() {
		t := d.bound(m.slot.to)
		if t == nil {
			d.notice(m.slot, shm.NoticeNoSocket, m.datagrams())
			d.end(m, abi.StatusDropped, uint32(syscall.ECONNREFUSED))
			return
		}
		d.deliver(t, m)
	}
	d.end(m, abi.StatusSuccess, 0)
}

// release ends those held messages that match, in order.
func (d *fakeDaemon) release(match func(*fakeMsg) bool, end func(fakeMsg)) {
	held := d.held
	d.held = nil
	for i := range held {
		if match(&held[i]) {
			end(held[i])
		} else {
			d.held = append(d.held, held[i])
		}
	}
}

// giveUp lets the limits of held messages pass.
func (d *fakeDaemon) giveUp() {
	d.release(func(m *fakeMsg) bool { return m.sub.GiveUp > 0 }, func(m fakeMsg) {
		if m.ops == nil && m.sub.Flags&shm.SubNotify == 0 {
			d.notice(m.slot, shm.NoticeGaveUp, m.datagrams())
		}
		d.end(m, abi.StatusDropped, 0)
	})
}

func (d *fakeDaemon) settle(m fakeMsg, status abi.Status, errno uint32) {
	if m.slot.sock.closed {
		return
	}
	ops := m.ops
	if m.sub.Flags&shm.SubNotify != 0 && !d.older {
		ops = []shm.SubOp{{Flags: abi.FlagNotify, Token: uint64(m.sub.MsgID)}}
	}
	for _, op := range ops {
		if op.Flags&abi.FlagNotify == 0 && (op.Flags&abi.FlagReport == 0 || status == abi.StatusSuccess) {
			continue
		}
		e := &shm.EventStatus{Kind: shm.EvStatus, Status: status, Sock: m.slot.sock.handle, Cell: m.slot.cell.idx, Errno: errno,
			Token: op.Token, OpID: op.OpID}
		d.event(*(*shm.Entry)(unsafe.Pointer(e)))
	}
}

func (d *fakeDaemon) localDone(m fakeMsg) {
	if m.ops == nil {
		return
	}
	ce := m.slot.cell
	for _, op := range m.ops {
		ce.done[op.OpID] = true
	}
	for ce.done[ce.hwm+1] {
		ce.hwm++
		delete(ce.done, ce.hwm)
	}
	// What waits for the ring goes before the mark.
	d.flushEvents()
	d.table.Cell(ce.idx).StoreHWM(ce.hwm)
	w := d.seg.WantCell(ce.idx)
	if id := w.LoadArmed(); id != 0 && ce.hwm >= id {
		w.CompareAndClearArmed(id)
		n := &shm.EventNotice{Kind: shm.EvBarrier, Sock: ce.sock.handle, Cell: ce.idx, Count: ce.hwm, Addr: ce.addr.As16()}
		d.event(*(*shm.Entry)(unsafe.Pointer(n)))
	}
}

func (d *fakeDaemon) ack(id uint32) {
	d.used[id] = false
	d.seg.SendRetProducer().Put(id)
}

// deliver hands m to a socket of this host.
func (d *fakeDaemon) deliver(t *fakeSock, m fakeMsg) {
	if len(d.rxFree) == 0 {
		panic("fake daemon: out of receive ids")
	}
	id := d.rxFree[len(d.rxFree)-1]
	d.rxFree = d.rxFree[:len(d.rxFree)-1]
	e := shm.Event{Kind: shm.EvData, DstPort: t.addr.Port(), Sock: t.handle, RxID: id, Len: uint32(len(m.data)),
		SrcInc: m.slot.sock.inc, SrcAddr: m.slot.sock.addr.Addr().As16(), SrcPort: m.slot.sock.addr.Port(),
		Cookie: m.sub.Cookie, Assembly: 1234, RecvTime: 1_700_000_000_000_000_000}
	size := len(m.data) + len(m.tail)
	if size > 0 {
		chunk, ok := d.recv.Alloc(size)
		if !ok {
			panic("fake daemon: out of receive memory")
		}
		copy(d.recv.Bytes(chunk, size)[copy(d.recv.Bytes(chunk, size), m.data):], m.tail)
		e.Chunk = chunk
	}
	d.rx[id] = fakeRx{sock: t, chunk: e.Chunk, n: size}
	if m.tail != nil {
		e.Flags = shm.EventTraceparent
	}
	if m.run > 0 {
		e.Flags, d.rx[id].steps = shm.EventRun, shm.RunSteps-1
	}
	t.used += size
	if t.used > t.limit {
		d.setCongested(t, true)
	}
	d.event(*(*shm.Entry)(unsafe.Pointer(&e)))
}

func (d *fakeDaemon) takeBack(id uint32) {
	if id&shm.RxStep != 0 {
		if r := &d.rx[id&^shm.RxStep]; r.steps == 0 {
			d.bad("a part of a run returned that cannot be")
		} else {
			r.steps--
			if d.record {
				d.steps = append(d.steps, id&^shm.RxStep)
			}
		}
		return
	}
	r := d.rx[id]
	if r.sock == nil {
		d.bad("receive id returned twice or never given")
		return
	}
	d.rx[id] = fakeRx{}
	d.rxFree = append(d.rxFree, id)
	if r.n > 0 {
		d.recv.Free(r.chunk, r.n)
	}
	r.sock.used -= r.n
	if r.sock.congested && r.sock.used < r.sock.limit/2+1 {
		d.setCongested(r.sock, false)
	}
}
