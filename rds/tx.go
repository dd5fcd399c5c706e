package rds

import (
	"sync"

	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/internal/shm"
)

// reapEvery is how many sends go by before a sender takes in returned messages. So
// few ids and little memory are in use, and those stay in the cache.
const reapEvery = 64

// tx is the sending side of a client: the submission ring, message ids, the send
// arena, destination slots and barrier cells. One lock, held for a short time,
// guards all of it. Payloads longer than inlineCopy are copied without the lock.
type tx struct {
	mu        sync.Mutex
	c         *Client
	sub       *shm.Producer
	ret       *shm.IDConsumer
	arena     *shm.Arena
	msgs      []txMsg  // by message id
	free      []uint32 // message ids, the last returned first
	sends     uint32   // since the last look at the return ring
	slots     []*dest  // by slot index
	hand      uint32   // where the search for an idle slot goes on
	nslots    int      // slots below which all have been used once
	gen       uint32   // of the last slot opened
	cells     []*cell  // by cell index
	cellFree  []uint32
	cur       *dest      // its run has uncommitted frames
	published uint64     // calls of publish
	grow      sync.Mutex // one arena window at a time
	full      bool       // the daemon gives no more windows
	dead      bool       // the memory is about to be unmapped
	asks      bool       // the daemon may refuse a destination (ipc.FeatureRefuses)
	tells     bool       // the daemon tells the statuses of messages (ipc.FeatureNotify)
	anybody   bool       // the daemon knows shm.DestAnybody (ipc.FeatureAnybody)
	starved   bool       // ids or memory ran out since messages were returned last
	over      []*dest    // destinations refused because they hold their share, see share.go
	epoch     uint64     // daemons before this one
	asked     []askedOps // by message id; nil: the client does not open again
}

// askedOps are the ids of a message's operations that have asked for their status only
// if it is not Success. 0: none.
type askedOps [2]uint64

// txMsg is a message between submission and return.
type txMsg struct {
	sock     *Socket // nil: the id is free
	dest     *dest
	chunk    uint32
	size     uint32 // bytes at chunk, 0 = none
	opMem    uint32 // chunk of what does not fit into the operations' descriptors
	opSize   uint32
	mem      uint32     // arena memory of both, rounding included
	sum      frames.Sum // charged
	zcCookie uint32
	zc       bool  // zcCookie is to be returned by ZeroCopyDone
	sent     bool  // in the ring, so the daemon may return it
	notify   bool  // it has asked for its status
	settles  uint8 // places held in the completion queue
}

func (t *tx) init(c *Client, p shm.Params, arena *shm.Arena) {
	t.c, t.arena = c, arena
	t.sub, t.ret = c.seg.SubProducer(), c.seg.SendRetConsumer()
	t.msgs = make([]txMsg, p.MaxMsgs)
	t.free = make([]uint32, p.MaxMsgs)
	for i := range t.free {
		t.free[i] = p.MaxMsgs - 1 - uint32(i)
	}
	t.slots = make([]*dest, p.Slots)
	if c.opts.Reopen != nil {
		t.asked = make([]askedOps, p.MaxMsgs)
	}
	t.cells = make([]*cell, p.Cells)
	t.cellFree = make([]uint32, p.Cells)
	for i := range t.cellFree {
		t.cellFree[i] = p.Cells - 1 - uint32(i)
	}
}

// poll takes in returned messages.
func (t *tx) poll() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.dead && t.reap()
}

// returnsEmpty reports that no message waits to be taken back.
func (t *tx) returnsEmpty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dead || t.ret.Empty()
}

// close ends the use of the memory and closes all sockets. It finds them by their
// cells, because a socket that is being closed may be in no other table.
func (t *tx) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dead = true
	for _, ce := range t.cells {
		if ce != nil {
			ce.freeze()
		}
	}
}

// reap takes in the messages that the daemon has finished with: their ids and memory
// are free again, the send buffers of their sockets have room, and those who wait
// for that are woken. mu is held.
func (t *tx) reap() bool {
	t.sends = 0
	n := 0
	for {
		id, ok := t.ret.Take()
		if !ok {
			break
		}
		if id >= uint32(len(t.msgs)) || !t.msgs[id].sent {
			_ = t.c.broken("message id %d returned twice or never sent", id)
			break
		}
		n++
		t.retire(id)
	}
	if n == 0 {
		if err := t.ret.Err(); err != nil {
			_ = t.c.broken("send-return ring: %v", err)
		}
		return false
	}
	t.ret.Release()
	t.gained()
	return true
}

// gained wakes those who wait for message ids or send memory, because some have
// become free. mu is held.
func (t *tx) gained() {
	t.starved = false
	if len(t.over) > 0 {
		t.relieveShares()
	}
	if t.c.wait.memory.Load() > 0 {
		t.c.wait.notifyEverybody(wantMemory)
	}
}

// retire ends message id. mu is held.
func (t *tx) retire(id uint32) {
	m := &t.msgs[id]
	s := m.sock
	d := m.dest
	d.uncharge(m.sum)
	if d.run.id == id {
		d.run.mem = nil // the daemon has taken it
	}
	if m.zc {
		s.zeroCopied(m.zcCookie)
	}
	t.giveBack(id)
	if s.waiting(wantSpace) && s.room() {
		s.notifyAll(wantSpace)
	}
}

// giveBack frees the id and its memory.
func (t *tx) giveBack(id uint32) {
	m := &t.msgs[id]
	if m.size > 0 {
		t.arena.Free(m.chunk, int(m.size))
	}
	if m.opSize > 0 {
		t.arena.Free(m.opMem, int(m.opSize))
	}
	if m.settles > 0 {
		m.sock.promised.Add(-int32(m.settles))
		t.succeeded(id)
	}
	if m.notify {
		t.c.wait.returns.Add(-1)
		t.c.rx.outcomeDue(m.sock, ofMessage(m.dest.cell, id))
	}
	m.dest.mem -= int(m.mem)
	m.dest.end()
	*m = txMsg{}
	t.free = append(t.free, id)
}

// succeeded drops what is noted of operations of message id whose status would have
// come before its return.
func (t *tx) succeeded(id uint32) {
	if t.asked == nil || t.asked[id] == (askedOps{}) {
		return
	}
	m := &t.msgs[id]
	t.c.rx.mu.Lock()
	defer t.c.rx.mu.Unlock()
	for _, op := range t.asked[id] {
		if op != 0 {
			delete(m.sock.awaited, opKey{cell: m.dest.cell.idx, id: op})
		}
	}
	t.asked[id] = askedOps{}
}

// now returns the number of daemons before this one.
func (t *tx) now() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.epoch
}

// takeID takes a free message id for something to d. mu is held, and there is one.
func (t *tx) takeID(d *dest) uint32 {
	id := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	d.begin()
	return id
}

// publish makes the submitted entries visible to the daemon, if there are any, and
// reports whether the caller has to call ringDaemon. mu is held.
func (t *tx) publish() (ring bool) {
	if t.dead {
		return false
	}
	if t.sub.Unpublished() == 0 {
		return false
	}
	t.published++
	t.sub.Publish()
	return t.c.wakeNeeded()
}

// unlock publishes, releases mu, and rings the daemon if it sleeps.
func (t *tx) unlock() {
	ring := t.publish()
	t.mu.Unlock()
	if ring {
		t.c.ringDaemon()
	}
}

// growArena asks the daemon for one more window of send memory, unless there are
// more than seen already. It notes if the daemon gives no more. mu is not held.
func (t *tx) growArena(seen int) {
	t.grow.Lock()
	defer t.grow.Unlock()
	t.mu.Lock()
	now, full := t.arena.Windows(), t.full
	t.mu.Unlock()
	if now != seen || full {
		return
	}
	_ = t.c.attempt(func() error { // if the client opens again, it has other memory then
		mem, err := t.c.moreSendMemory()
		t.mu.Lock()
		defer t.mu.Unlock()
		if err != nil {
			t.full = true
			return err
		}
		t.arena.AddWindow(mem)
		t.gained()
		return nil
	})
}
