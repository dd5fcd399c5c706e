package stress

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdsd/rdsd/internal/stress/proto"
	"github.com/rdsd/rdsd/rds"
)

// memory is a task's memory for RDMA: a buffer with two places per slot. The peer's acks
// read and write one place. The task's own acks read into and write from the other.
type memory struct {
	w    *worker
	buf  *rds.Buffer
	size int // bytes of an operation, all pieces
	segs []rds.Segment

	release chan *rds.Region
	done    sync.WaitGroup
}

// region is the part of memory of one slot.
type region struct {
	reg      *rds.Region // of this side's request, nil if it has none
	inFlight bool        // the operation of this side's ack has not settled
}

// releasers release regions beside the task, because each release waits for the peer.
const releasers = 4

func newMemory(w *worker) (*memory, error) {
	o := &w.opts
	m := &memory{w: w, size: int(o.RDMASize) * int(o.Vector)}
	slots := int(o.Tasks) * int(o.Depth)
	n := 2*slots*m.size + int(o.Alignment)
	var err error
	if m.buf, err = w.client.Alloc(n); err != nil {
		return nil, fmt.Errorf("%d bytes of RDMA memory, for %d slots of two buffers of %d bytes: %w", n, slots, m.size, err)
	}
	m.segs = make([]rds.Segment, o.Vector)
	m.release = make(chan *rds.Region, releasers)
	for range releasers {
		m.done.Go(m.releaseAll)
	}
	return m, nil
}

// close ends the releasers. The remaining regions end with the socket.
func (m *memory) close() {
	close(m.release)
	m.done.Wait()
}

func (m *memory) releaseAll() {
	for r := range m.release {
		if err := r.Release(m.w.all); err != nil && m.w.all.Err() == nil && !errors.Is(err, rds.ErrClosed) {
			m.w.fail(fmt.Errorf("task %d: %w", m.w.id, err))
		}
	}
}

// remote and local are where a slot's two places begin.
func (m *memory) remote(f *flow, index uint32) int {
	return int(m.w.opts.Alignment) + 2*m.size*(f.nr*len(f.slots)+int(index))
}
func (m *memory) local(f *flow, index uint32) int { return m.remote(f, index) + m.size }

func (m *memory) bytes(off, n int) []byte { return m.buf.Bytes()[off : off+n] }

// next is the operation that the request after h asks for, if h was the last request.
func (m *memory) next(f *flow, h *proto.Header) proto.RDMAOp {
	if m == nil || h.RDMA == proto.NoRDMA {
		return f.nextOp
	}
	return h.RDMA
}

// request adds to the request h, in msg, what the peer's ack needs to read or write the
// slot's buffer.
func (m *memory) request(f *flow, index uint32, h *proto.Header, msg *rds.Message) error {
	o, s := &m.w.opts, &f.slots[index]
	off := m.remote(f, index)
	if s.reg == nil {
		access := rds.AllowRead | rds.AllowWrite
		if o.UseOnce {
			access |= rds.UseOnce
		}
		var err error
		if s.reg, err = m.w.sock.Register(m.buf, off, m.size, access); err != nil {
			return fmt.Errorf("register a buffer: %w", err)
		}
		if o.KeyMeter {
			m.w.keys.add(uint32(s.reg.Cookie()), time.Now())
		}
	}
	switch o.RWMode {
	case proto.ModeRead:
		h.RDMA = proto.Read
	case proto.ModeWrite:
		h.RDMA = proto.Write
	default:
		h.RDMA = f.nextOp.Toggle()
	}
	h.Pattern = uint64(h.Seq)<<32 | uint64(m.w.pid)&0xffffffff
	h.Addr = uint64(off)
	h.Size, h.Vector, h.AllPieces = o.RDMASize, o.Vector, true
	if o.UseGetMR {
		h.Key = uint64(s.reg.Cookie()) // else it comes with the message alone
	}
	if o.Verify {
		fill := h.Pattern
		if h.RDMA == proto.Write {
			fill = 0
		}
		m.fill(off, fill)
	}
	msg.Cookie = s.reg.Cookie()
	return nil
}

// transfer adds to the ack h, in msg, the operation that was asked for.
func (m *memory) transfer(f *flow, index uint32, h *proto.Header, msg *rds.Message) {
	o, w := &m.w.opts, m.w
	off := m.local(f, index)
	piece := int(o.RDMASize)
	for i := range m.segs {
		m.segs[i] = rds.Segment{Buf: m.buf, Off: off + i*piece, Len: piece}
	}
	w.op = rds.RDMA{Cookie: rds.Cookie(h.Key), RemoteOff: h.PhysAddr, Local: m.segs,
		Token: token(f, index, h.Seq), Notify: true}
	if h.RDMA == proto.Write {
		w.op.Write = true
		if o.Verify {
			m.fill(off, h.Pattern)
		}
	}
	msg.Op = &w.op
}

// token names an operation as rds-stress does: sequence, task and slot.
func token(f *flow, index, seq uint32) uint64 {
	return uint64(seq)<<32 | (uint64(f.nr)*uint64(f.w.opts.Depth)+uint64(index))<<2
}

func (m *memory) fill(off int, pattern uint64) {
	piece := int(m.w.opts.RDMASize)
	for i := range m.segs {
		proto.Fill(m.bytes(off+i*piece, piece), pattern)
	}
}

// compare checks the pieces at off. all says that each piece has the pattern, not only the
// first. rds-stress fills whole words, so if the size is no multiple of 8, it overwrites a
// part of the next buffer's first word.
func (m *memory) compare(off int, h *proto.Header) error {
	pieces := len(m.segs)
	if !h.AllPieces {
		pieces = 1
	}
	piece := int(m.w.opts.RDMASize)
	for i := range pieces {
		b := m.bytes(off+i*piece, piece)
		if !h.AllPieces && piece%8 != 0 {
			b = b[min(8, len(b)):]
		}
		if m.w.corrupt != nil {
			m.w.corrupt(b)
		}
		if err := proto.Compare(b, h.Pattern); err != nil {
			return fmt.Errorf("%v of request or ack %d, slot %d, piece %d: %w", h.RDMA, h.Seq, h.Index, i, err)
		}
	}
	return nil
}

// acked handles an ack: its operation is done, and the buffer belongs to this side again.
func (m *memory) acked(f *flow, index uint32, h *proto.Header) error {
	if m == nil {
		return fmt.Errorf("ack %d of an %v in a test without RDMA", h.Seq, h.RDMA)
	}
	s, o := &f.slots[index], &m.w.opts
	if h.RDMA != s.req.RDMA || h.Pattern != s.req.Pattern || s.reg == nil || h.Key != uint64(s.reg.Cookie()) {
		return fmt.Errorf("ack %d of an %v of %#x with key %#x, which is not what request %d asked for", h.Seq, h.RDMA, h.Pattern, h.Key, s.req.Seq)
	}
	switch h.RDMA {
	case proto.Write:
		m.w.n.rdmaIn.Add(uint64(m.size))
		if o.Verify {
			if err := m.compare(m.remote(f, index), h); err != nil {
				return err
			}
		}
	case proto.Read:
		m.w.n.rdmaOut.Add(uint64(m.size))
	}
	if o.CacheMRs {
		return nil
	}
	reg := s.reg
	s.reg = nil
	select {
	case m.release <- reg:
	case <-m.w.all.Done():
	}
	return nil
}

// completed takes the status of an operation of this side's acks.
func (w *worker) completed(c *rds.Completion, _ time.Time) error {
	depth := uint64(w.opts.Depth)
	at := c.Token & 0xffffffff >> 2
	nr, index := at/depth, uint32(at%depth)
	if nr >= uint64(len(w.flows)) || !w.flows[nr].slots[index].inFlight {
		return fmt.Errorf("a status for token %#x, which no operation has", c.Token)
	}
	f := &w.flows[nr]
	s := &f.slots[index]
	h := &s.done
	w.trace("%v %d for %v: %v", h.RDMA, h.Seq, f.to, c.Status)
	if err := c.Err(); err != nil {
		if w.loop.Stopping {
			s.inFlight = false
			return nil
		}
		if w.opts.Async && (c.Status == rds.Dropped || c.Status == rds.Unknown || c.Status == rds.RemoteError) {
			f.sendAgain(index, c.Status)
			return nil
		}
		err = fmt.Errorf("%v for %v, ack %d: %w%s", h.RDMA, f.to, h.Seq, err, droppedHint(c.Status))
		if c.Status == rds.Dropped || c.Status == rds.Unknown || c.Status == rds.RemoteError {
			err = peerGone{err}
		}
		return err
	}
	s.inFlight = false
	if h.RDMA == proto.Read && w.opts.Verify {
		if err := w.mem.compare(w.mem.local(f, index), h); err != nil {
			return fmt.Errorf("for %v: %w", f.to, err)
		}
	}
	return nil
}

func droppedHint(s rds.Status) string {
	if s != rds.Dropped && s != rds.Unknown {
		return ""
	}
	return "; the connection was lost, and its ack with it: --async sends such acks again"
}
