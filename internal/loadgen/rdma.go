package loadgen

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/rds"
)

// operations is one socket's RDMA operations, in slots that are used in turn. A verified write
// is followed by a count. Its slot is free when the server, which checks the slot, has answered
// that.
type operations struct {
	r      *run
	i      int
	to     netip.AddrPort
	pace   pace
	buf    *rds.Buffer
	local  [1]rds.Segment
	op     rds.RDMA
	note   [countSize]byte
	noted  bool        // operations are followed by a count
	waits  []uint8     // by slot: how many completions and answers are missing until it is free
	begun  []time.Time // by slot
	posted uint64
	ended  uint64
	heard  uint64 // answers
}

func (r *run) operations(i int) (*Loop, error) {
	o := &operations{r: r, i: i, to: r.to[i], pace: r.pace(i), noted: r.p.Verify && r.p.Mode == RDMAWrite,
		waits: make([]uint8, r.p.Depth), begun: make([]time.Time, r.p.Depth)}
	var err error
	if o.buf, err = r.client.Alloc(r.p.Depth * r.p.Size); err != nil {
		return nil, fmt.Errorf("%d bytes of RDMA memory: %w", r.p.Depth*r.p.Size, err)
	}
	o.op = rds.RDMA{Cookie: r.cookie, Local: o.local[:], Notify: true, Silent: !o.noted}
	if r.p.Mode == RDMAWrite {
		o.op.Write = true
	}
	return &Loop{Sock: r.socks[i], Flows: []Flow{{To: o.to, Send: o.send}}, In: Room(countSize), Comps: make([]rds.Completion, min(r.p.Depth, 64)),
		Take: o.take, Settled: o.settled, Due: o.due, Idle: func() bool { return o.ended == o.posted }}, nil
}

// slot is that of operation seq.
func (o *operations) slot(seq uint64) uint64 { return seq % uint64(len(o.waits)) }

// memory is a slot's.
func (o *operations) memory(slot uint64) []byte {
	return o.buf.Bytes()[int(slot)*o.r.p.Size:][:o.r.p.Size]
}

func (o *operations) due() time.Time {
	if !o.pace.open() || o.waits[o.slot(o.posted)] > 0 {
		return time.Time{}
	}
	return o.pace.due(o.posted)
}

func (o *operations) send() error {
	for o.waits[o.slot(o.posted)] == 0 {
		begin := time.Now()
		if o.pace.open() {
			if o.pace.behind(begin, o.posted) == 0 {
				return nil
			}
			due := o.pace.due(o.posted)
			o.r.rec.lateness(begin.Sub(due))
			begin = due
		}
		if err := o.post(begin); err != nil {
			return err
		}
	}
	return nil
}

// post begins the next operation. begin is when it began, or was due.
func (o *operations) post(begin time.Time) error {
	r, slot := o.r, o.slot(o.posted)
	off := int(slot) * r.p.Size
	o.local[0] = rds.Segment{Buf: o.buf, Off: off, Len: r.p.Size}
	o.op.RemoteOff = uint64(o.i*r.p.Depth*r.p.Size + off)
	o.op.Token = slot
	m := rds.Message{Addr: o.to, Op: &o.op}
	if o.noted {
		fill(o.memory(slot), o.posted)
		putCount(o.note[:], o.posted)
		m.Payload = o.note[:]
	} else if r.p.Verify {
		clear(o.memory(slot))
	}
	if _, err := r.socks[o.i].Send(rds.DontWait, &m); err != nil {
		return err
	}
	o.posted++
	o.begun[slot], o.waits[slot] = begin, 1
	if o.noted {
		o.waits[slot]++
		r.sent.Add(1)
	}
	return nil
}

// take takes the answer to a verified write.
func (o *operations) take(m *rds.Received, _ time.Time) error {
	if m.Addr != o.to || !isCount(m, o.heard+1) || o.heard == o.posted {
		return fmt.Errorf("socket %d: not the server's answer to the next write", o.i)
	}
	o.end(o.slot(o.heard))
	o.heard++
	return nil
}

func (o *operations) end(slot uint64) {
	if o.waits[slot]--; o.waits[slot] == 0 {
		o.ended++
	}
}

func (o *operations) settled(c *rds.Completion, now time.Time) error {
	r, slot := o.r, c.Token
	if err := c.Err(); err != nil {
		return fmt.Errorf("%v to %v: %w", r.p.Mode, o.to, err)
	}
	r.rec.done(now.Sub(o.begun[slot]), 1, uint64(r.p.Size))
	if r.p.Verify && r.p.Mode == RDMARead {
		if err := r.env.compared(o.memory(slot), uint64(o.i*r.p.Depth)+slot); err != nil {
			return fmt.Errorf("socket %d, RDMA read of slot %d: %w", o.i, slot, err)
		}
	}
	o.end(slot)
	return nil
}
