package stress

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/rdsd/rdsd/internal/stress/proto"
	"github.com/rdsd/rdsd/rds"
)

// flow is the exchange of one task with one task of the peer. Requests use the slots 0 to
// depth-1 in turn, and the peer's do so, too. An ack has the slot of its request.
type flow struct {
	w       *worker
	nr      int
	to      netip.AddrPort
	simplex bool // this side sends no requests

	sendSeq, recvSeq     uint32
	sendIndex, recvIndex uint32 // slots of the next request
	pending              uint32 // requests of this side without an ack
	unacked              uint32 // requests of the peer without an ack
	slots                []slot
	nextOp               proto.RDMAOp
	again                []again          // to be sent again (async)
	early                map[uint32]early // received ahead of a message that is sent again (async)
}

// slot is one place in the pipeline, of both directions.
type slot struct {
	sent time.Time    // our request
	req  proto.Header // our request (async)
	ack  proto.Header // our ack
	done proto.Header // the ack whose operation is in progress, or was the last
	region
}

func (f *flow) init(w *worker, nr int) {
	o := &w.opts
	f.w, f.nr = w, nr
	f.to = netip.AddrPortFrom(w.peer, o.Port+1+uint16(nr))
	f.simplex = o.Simplex && !w.active
	f.slots = make([]slot, o.Depth)
	f.nextOp = proto.Write
	if nr%2 == 1 {
		f.nextOp = proto.Read
	}
}

// sendAll sends everything that may be sent: messages again, acks, requests.
func (f *flow) sendAll() error {
	if err := f.resend(); err != nil {
		return err
	}
	depth := f.w.opts.Depth
	for f.unacked > 0 {
		index := (f.recvIndex - f.unacked + depth) % depth
		if s := &f.slots[index]; s.ack.RDMA != proto.NoRDMA && s.inFlight {
			// The status comes with the acknowledgement of the last ack's message. A new
			// request may arrive before it.
			return nil
		}
		if err := f.sendAck(index); err != nil {
			return err
		}
		f.unacked--
	}
	for !f.simplex && f.pending < depth {
		if err := f.sendRequest(); err != nil {
			return err
		}
	}
	return nil
}

func (f *flow) header(op proto.Op, index uint32) proto.Header {
	return proto.Header{Seq: f.sendSeq, From: f.w.local, To: f.to, Index: uint16(index), Op: op}
}

func (f *flow) sendRequest() error {
	w, s := f.w, &f.slots[f.sendIndex]
	h := f.header(proto.Request, f.sendIndex)
	m := w.message(f, &h, int(w.opts.ReqSize))
	if w.mem != nil && f.sendSeq > 10 {
		if err := w.mem.request(f, f.sendIndex, &h, m); err != nil {
			return err
		}
		w.encode(&h, m.Payload)
	}
	start := time.Now()
	if _, err := w.sock.Send(rds.DontWait, m); err != nil {
		return err
	}
	w.n.sendNs.Add(uint64(time.Since(start)))
	w.trace("sent %v %d of slot %d to %v, %v", h.Op, h.Seq, h.Index, f.to, h.RDMA)
	s.sent, s.req = start, h
	f.nextOp = w.mem.next(f, &h)
	f.sendSeq++
	f.sendIndex = (f.sendIndex + 1) % w.opts.Depth
	f.pending++
	w.n.reqTx.Add(1)
	w.n.bytesTx.Add(uint64(len(m.Payload)))
	return nil
}

func (f *flow) sendAck(index uint32) error {
	w, s := f.w, &f.slots[index]
	s.ack.Seq = f.sendSeq
	m := w.message(f, &s.ack, int(w.opts.AckSize))
	if s.ack.RDMA != proto.NoRDMA {
		w.mem.transfer(f, index, &s.ack, m)
	}
	if _, err := w.sock.Send(rds.DontWait, m); err != nil {
		return err
	}
	w.trace("sent %v %d of slot %d to %v, %v", s.ack.Op, s.ack.Seq, s.ack.Index, f.to, s.ack.RDMA)
	f.sendSeq++
	w.n.ackTx.Add(1)
	w.n.bytesTx.Add(uint64(len(m.Payload)))
	size := uint64(w.opts.RDMASize) * uint64(w.opts.Vector)
	switch s.ack.RDMA {
	case proto.Write:
		w.n.rdmaOut.Add(size)
	case proto.Read:
		w.n.rdmaIn.Add(size)
	}
	if s.ack.RDMA != proto.NoRDMA {
		s.inFlight, s.done = true, s.ack
	}
	return nil
}

// message is w.out with h and the payload.
func (w *worker) message(f *flow, h *proto.Header, size int) *rds.Message {
	b := w.outBuf[:size]
	w.encode(h, b)
	w.out = rds.Message{Addr: f.to, Payload: b}
	return &w.out
}

func (w *worker) encode(h *proto.Header, b []byte) {
	h.Put(b)
	if w.opts.Verify {
		copy(b[proto.HeaderSize:], w.pattern)
	}
}

// take checks the message b, whose full length is n.
func (f *flow) take(b []byte, n int, cookie rds.Cookie, now time.Time) error {
	h, err := proto.Parse(b)
	if err != nil {
		return err
	}
	o := &f.w.opts
	want := o.ReqSize
	if h.Op == proto.Ack {
		want = o.AckSize
	}
	if n != int(want) {
		return fmt.Errorf("an %v of %d bytes, want %d", h.Op, n, want)
	}
	if o.Verify {
		if err := proto.ComparePayload(b[proto.HeaderSize:], f.w.pattern); err != nil {
			return fmt.Errorf("%v %d: %w", h.Op, h.Seq, err)
		}
	}
	if o.Async {
		return f.reorder(&h, cookie, now)
	}
	return f.accept(&h, cookie, now)
}

// accept handles the next message of the flow.
func (f *flow) accept(h *proto.Header, cookie rds.Cookie, now time.Time) error {
	w := f.w
	index := f.recvIndex
	if h.Op == proto.Ack {
		// The oldest request has to be answered first.
		depth := w.opts.Depth
		index = (f.sendIndex - f.pending + depth) % depth
	}
	want := proto.Header{Seq: f.recvSeq, From: f.to, To: w.local, Index: uint16(index), Op: h.Op}
	if err := compareHeaders(&want, h); err != nil {
		if w.mem != nil && !w.opts.Async && h.Seq > f.recvSeq {
			err = fmt.Errorf("%w\na connection that is lost during RDMA leaves such a gap; --async fills it", err)
		}
		return err
	}
	f.recvSeq++
	w.trace("received %v %d of slot %d from %v, %v", h.Op, h.Seq, h.Index, f.to, h.RDMA)
	if h.Op == proto.Ack {
		return f.acked(index, h, now)
	}
	return f.requested(h, cookie)
}

func (f *flow) acked(index uint32, h *proto.Header, now time.Time) error {
	w, s := f.w, &f.slots[index]
	if f.pending == 0 {
		return fmt.Errorf("ack %d, and no request is outstanding", h.Seq)
	}
	f.pending--
	trip := now.Sub(s.sent)
	w.n.ackRx.Add(1)
	w.n.bytesRx.Add(uint64(w.opts.AckSize))
	w.n.trips.Add(1)
	w.n.tripNs.Add(uint64(trip))
	w.n.hist.add(trip)
	if w.outlier > 0 && trip > w.outlier {
		w.say("Found RTT = 0x%x us, %v with %v", trip.Microseconds(), trip, f.to)
	}
	if s.req.RDMA == proto.NoRDMA && h.RDMA == proto.NoRDMA {
		return nil
	}
	return w.mem.acked(f, index, h)
}

func (f *flow) requested(h *proto.Header, cookie rds.Cookie) error {
	w := f.w
	if f.unacked == w.opts.Depth {
		return fmt.Errorf("request %d: the peer has %d outstanding already, which is all it may have", h.Seq, f.unacked)
	}
	w.n.reqRx.Add(1)
	w.n.bytesRx.Add(uint64(w.opts.ReqSize))
	ack := f.header(proto.Ack, f.recvIndex) // its sequence is that of its sending
	if cookie != 0 {
		h.Key = uint64(cookie)
	}
	if h.Key != 0 || h.RDMA != proto.NoRDMA {
		if err := w.checkRequest(h); err != nil {
			return fmt.Errorf("request %d: %w", h.Seq, err)
		}
		ack.RDMA, ack.Addr, ack.PhysAddr, ack.Pattern = h.RDMA, h.Addr, h.PhysAddr, h.Pattern
		ack.Key, ack.Size, ack.Vector = h.Key, h.Size, h.Vector
		// Of a read: whether the peer filled every piece. Of a write: we do.
		ack.AllPieces = h.AllPieces || h.RDMA == proto.Write
	}
	f.slots[f.recvIndex].ack = ack
	f.unacked++
	f.recvIndex = (f.recvIndex + 1) % w.opts.Depth
	return nil
}

// checkRequest returns an error if the operation that h asks for is not possible.
func (w *worker) checkRequest(h *proto.Header) error {
	switch {
	case w.mem == nil:
		return fmt.Errorf("it asks for an %v, which this test does not use", h.RDMA)
	case h.RDMA == proto.NoRDMA:
		return errors.New("it has a key and names no RDMA operation")
	case h.Key == 0:
		return fmt.Errorf("it asks for an %v and has no key", h.RDMA)
	case h.Size != w.opts.RDMASize || h.Vector != w.opts.Vector:
		return fmt.Errorf("it asks for %d pieces of %d bytes, want %d pieces of %d bytes", h.Vector, h.Size, w.opts.Vector, w.opts.RDMASize)
	}
	return nil
}

// headerError is a message that is not the expected next one.
type headerError struct{ want, got proto.Header }

func compareHeaders(want, got *proto.Header) error {
	if want.Seq == got.Seq && want.From == got.From && want.To == got.To && want.Index == got.Index {
		return nil
	}
	return &headerError{*want, *got}
}

func (e *headerError) Error() string {
	var b strings.Builder
	b.WriteString("not the message that should come next:\n    member              expected eq                  got")
	row := func(name string, want, got any) {
		eq := " ="
		if want != got {
			eq = "!="
		}
		fmt.Fprintf(&b, "\n%10s %21v %s %21v", name, want, eq, got)
	}
	row("seq", e.want.Seq, e.got.Seq)
	row("from", e.want.From, e.got.From)
	row("to", e.want.To, e.got.To)
	row("index", e.want.Index, e.got.Index)
	row("op", e.want.Op, e.got.Op)
	return b.String()
}
