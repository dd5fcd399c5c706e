package conn

import (
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/internal/cong"
	"github.com/rdsd/rdsd/internal/wire"
	"github.com/rdsd/rdsd/verbs"
)

// The kernel profile: the peer is a Linux kernel's RDS/IB 3.1 (net/rds), known
// by private data without rdsd's extension. It has no HELLO, no instance, no
// credits and no internal messages; every frame is a SEND of its own, of at
// most a header and kernelPiece bytes. docs/protocol.md, "With kernel peers".

// KernelInstance is the instance of every kernel peer: nothing tells one life of
// a kernel from the next.
const KernelInstance = ^uint64(0)

const (
	kernelPiece = 4096 // payload of a frame (RDS_FRAG_SIZE)
	kernelFrame = wire.HeaderLen + kernelPiece
	// kernelCredits stands for no limit; pump renews it.
	kernelCredits = 1 << 30
	// kernelBatch is how many SENDs are posted at a time.
	kernelBatch = 32
	// promptDelay: a kernel acks when asked only, so what waits this long for
	// an ack, in units of Config.AckDelay, asks.
	promptDelay = 16
	// maxEarly bounds the frames that came ahead of the reply to our request.
	maxEarly = 32

	// wridPart is the position of a SEND that is not its record's last: no
	// operation has it.
	wridPart = wridOp | batchOps<<wridOpShift
)

// kernelState is what the profile needs besides the rest of Conn.
type kernelState struct {
	on      bool     // the connection's peer is a kernel
	placed  bool     // a successful completion means that the peer's device has it all
	ack     uint64   // of this connection: what was received before is none of its business
	nak     bool     // the peer's device refused a request: nothing behind it was carried out
	asked   uint64   // sequence of the last message that asked for an ack
	prompt  int64    // when to ask, 0 = nothing waits
	congTx  int      // bytes of our map that are posted, of one that is half sent
	congRx  []byte   // the peer's, as far as it is here
	congGot int      // 0: none is on its way
	early   [][]byte // frames that came before the reply to our request
}

// noCong is the map of a host that never had one to tell.
var noCong cong.Map

// Kernel says that the peer of the last connection was a Linux kernel.
func (c *Conn) Kernel() bool { return c.k.on }

// kernelUp is what HELLO is between two rdsd.
func (c *Conn) kernelUp() {
	c.granted = 0
	k := &c.k
	k.ack, k.nak, k.asked, k.prompt, k.congTx, k.congGot = 0, false, 0, 0, 0, 0
	c.hello = wire.Hello{
		Version: wire.HelloVersion, Instance: KernelInstance, AckInst: c.cfg.Instance,
		Features: wire.FeatureAtomics | wire.FeatureMasked, MaxSend: kernelFrame,
		Credits: kernelCredits, ReadDepth: uint32(c.cfg.ReadDepth),
	}
	// Kernels say 0. One that says more has received it; beyond what was sent
	// it can only mean an earlier life.
	if ack := c.peerAck; ack < c.nextTx {
		c.hello.Ack = ack
	}
	// It would not know what to do with them.
	c.endAll(&c.control, Cancelled)
	for m := c.rtx.head; m != nil; {
		next := m.priv.next
		if m.Internal != 0 && !m.priv.own {
			c.rtx.remove(m)
			c.end(m, Cancelled)
		}
		m = next
	}
	c.helloSeen = true
	c.becomeReady()
	if !c.ready {
		return
	}
	c.congDirty = true // a kernel remembers what it was told
	if c.congMap == nil {
		c.congMap = &noCong
	}
	early := k.early
	k.early = nil
	for _, b := range early {
		if err := c.recvKernel(b); err != nil {
			c.protocolError(err)
			return
		}
	}
}

// kernelEarly takes a frame that came before the connection was established.
// The passive side may take it for the establishment. The active side knows the
// peer's profile from the reply only, and keeps the frame until that is there.
func (c *Conn) kernelEarly(b []byte) error {
	if !c.active {
		c.setState(Up)
		c.openSQ()
		c.kernelUp()
		if !c.ready {
			return nil
		}
		return c.recvKernel(b)
	}
	if len(c.k.early) == maxEarly {
		return errors.New("frames before the reply to our request")
	}
	c.k.early = append(c.k.early, append([]byte(nil), b...))
	return nil
}

// kernelPump is pump.
func (c *Conn) kernelPump() {
	for c.state == Up && c.kernelNext() {
	}
	if c.state == Up && c.ackNow && c.canSend() {
		c.kernelAck()
	}
	c.kernelPrompt()
}

// kernelNext posts what is next; false: nothing is, or it has to wait.
func (c *Conn) kernelNext() bool {
	c.credits = kernelCredits
	switch {
	case c.frag != nil:
		return c.kernelPieces(nil)
	case c.congDirty || c.k.congTx > 0:
		return c.kernelCong()
	}
	m := c.head()
	switch {
	case m == nil:
		return false
	case m.opNew():
		return c.kernelOps()
	case len(m.Data) <= kernelPiece:
		return c.kernelSmall()
	}
	if !c.canSend() {
		return false
	}
	c.take(m)
	m.priv.sent = 0
	c.frag = m
	return true
}

// kernelHeader fills c.txh for a frame of m.
func (c *Conn) kernelHeader(m *Msg) {
	h := &c.txh
	*h = wire.Header{Seq: m.priv.seq, Ack: c.k.ack, Len: uint32(len(m.Data)), SPort: m.SPort, DPort: m.DPort,
		Flags: m.priv.flags & (wire.FlagAckRequired | wire.FlagRetransmitted)}
	if m.Op != nil {
		h.SetExtRDMA(m.Op.RKey())
		if m.Op2 != nil && m.Op2.RKey() != m.Op.RKey() {
			h.AddExtRDMA(m.Op2.RKey())
		}
	}
	if m.DestCookie != 0 {
		h.SetExtDest(m.DestCookie)
	}
	if m.AckNow || m.Op != nil {
		h.Flags |= wire.FlagAckRequired
	}
	if h.Flags&wire.FlagAckRequired != 0 {
		c.stats.SendAckRequired++
		c.k.asked = max(c.k.asked, m.priv.seq)
	}
	c.ackNow, c.ackAt, c.ackBytes = false, 0, 0
}

// kernelSend adds a SEND of sgl to c.wrs. What is not the last of its record is
// not signaled.
func (c *Conn) kernelSend(sgl []verbs.SGE, flags verbs.SendFlags) {
	c.wrs = append(c.wrs, verbs.SendWR{WRID: wridPart | c.recTail, Op: verbs.OpSend, Flags: flags, SGL: sgl})
	c.stats.SendFrames++
}

// kernelPost posts c.wrs as one record. A kernel looks at what it received when
// a SEND is solicited: the last one of a message has to be; those between, so
// that a long message does not have to fit its receive queue.
func (c *Conn) kernelPost(rec sendRec) {
	last := &c.wrs[len(c.wrs)-1]
	if last.Op == verbs.OpSend {
		last.Flags |= verbs.SendSolicited
	}
	last.WRID = c.recTail
	last.Flags |= verbs.SendSignaled
	c.postWRs(rec)
}

// kernelSmall posts messages of one frame each, as many as fit a buffer.
func (c *Conn) kernelSmall() bool {
	if !c.canSend() {
		return false
	}
	buf := c.buffer()
	if buf == nil {
		return false
	}
	room := min(c.room(), kernelBatch)
	c.wrs, c.sges = c.wrs[:0], c.sges[:0]
	off := 0
	for m := c.head(); m != nil && !m.opNew() && len(m.Data) <= kernelPiece && len(c.wrs) < room; m = c.head() {
		if off+wire.HeaderLen+len(m.Data) > len(buf.Mem) {
			break
		}
		c.take(m)
		off = c.kernelPut(m, buf, off, 0)
	}
	c.kernelPost(sendRec{buf: buf})
	return true
}

// kernelPut writes the only frame of m into buf at off and adds its SEND. It
// returns where the next one may begin.
func (c *Conn) kernelPut(m *Msg, buf *SendBuf, off int, flags verbs.SendFlags) int {
	c.kernelHeader(m)
	c.txh.Put(buf.Mem[off:])
	n := wire.HeaderLen + copy(buf.Mem[off+wire.HeaderLen:], m.Data)
	c.sges = append(c.sges, verbs.SGE{Addr: buf.Addr + uint64(off), Length: uint32(n), LKey: buf.LKey})
	c.kernelSend(c.sges[len(c.sges)-1:], flags|verbs.SendSolicited)
	c.sentWhole(m)
	return off + wire.Pad(n)
}

// kernelPieces posts the next fragments of c.frag, behind the operations of b
// if there is one. A payload in registered memory is not copied.
func (c *Conn) kernelPieces(b *opBatch) bool {
	if !c.canSend() {
		return false
	}
	buf := c.buffer()
	if buf == nil {
		return false
	}
	m := c.frag
	rec := sendRec{buf: buf}
	fence := verbs.SendFlags(0)
	if b == nil {
		c.wrs, c.sges = c.wrs[:0], c.sges[:0]
	} else {
		rec.ops, rec.reads = b.first, b.reads
		fence = b.fence
	}
	step := wire.HeaderLen
	if m.LKey == 0 {
		step = kernelFrame
	} else {
		rec.large = m
		m.priv.refs++
	}
	c.kernelHeader(m)
	room := min(c.room()-len(c.wrs), kernelBatch)
	done := false
	for off := 0; !done && room > 0 && off+step <= len(buf.Mem); off += wire.Pad(step) {
		n := min(len(m.Data)-m.priv.sent, kernelPiece)
		piece := m.Data[m.priv.sent : m.priv.sent+n]
		at := m.Addr + uint64(m.priv.sent)
		m.priv.sent += n
		room--
		c.txh.Put(buf.Mem[off:])
		first := len(c.sges)
		if m.LKey == 0 {
			copy(buf.Mem[off+wire.HeaderLen:], piece)
			c.sges = append(c.sges, verbs.SGE{Addr: buf.Addr + uint64(off), Length: uint32(wire.HeaderLen + n), LKey: buf.LKey})
		} else {
			c.sges = append(c.sges, verbs.SGE{Addr: buf.Addr + uint64(off), Length: wire.HeaderLen, LKey: buf.LKey},
				verbs.SGE{Addr: at, Length: uint32(n), LKey: m.LKey})
		}
		flags := fence
		fence = 0
		if done = m.priv.sent == len(m.Data); done {
			flags |= verbs.SendSolicited
		}
		c.kernelSend(c.sges[first:len(c.sges):len(c.sges)], flags)
	}
	if done {
		c.sentWhole(m)
		c.frag = nil
	}
	c.kernelPost(rec)
	if done && m.priv.state == msgEnding && m.priv.refs == 0 {
		c.finish(m, m.priv.outcome)
	}
	return true
}

// kernelCong posts our map, in two frames.
func (c *Conn) kernelCong() bool {
	if !c.canSend() {
		return false
	}
	buf := c.buffer()
	if buf == nil {
		return false
	}
	k := &c.k
	if k.congTx == 0 {
		c.congDirty = false // a change from here on is another map
	}
	var whole [wire.CongLen]byte
	c.congMap.Put(whole[:])
	c.txh = wire.Header{Ack: k.ack, Len: wire.CongLen, Flags: wire.FlagCong}
	c.txh.Put(buf.Mem)
	copy(buf.Mem[wire.HeaderLen:], whole[k.congTx:k.congTx+kernelPiece])
	flags := verbs.SendFlags(0)
	if k.congTx += kernelPiece; k.congTx == wire.CongLen {
		k.congTx = 0
		flags = verbs.SendSolicited
		c.congTold = c.congTold || !c.congMap.Empty()
	}
	c.wrs, c.sges = c.wrs[:0], c.sges[:0]
	c.postBuf(buf, kernelFrame, sendRec{}, flags)
	return true
}

// kernelAck posts an ack frame.
func (c *Conn) kernelAck() {
	c.txh = wire.Header{Ack: c.k.ack}
	c.ackNow, c.ackAt, c.ackBytes = false, 0, 0
	c.txh.Put(c.slot())
	c.credits--
	c.stats.AckSent++
	c.wrs, c.sges = c.wrs[:0], c.sges[:0]
	c.sges = append(c.sges, verbs.SGE{Addr: c.ctl.Addr + uint64(c.slotOff()), Length: wire.HeaderLen, LKey: c.ctl.LKey})
	c.post(sendRec{slot: true}, c.sges, verbs.SendSolicited)
}

// kernelOps posts the operations at the head of the queue: their RDMA work
// requests and then a SEND for each one's message, but none for silent ones. The
// first SEND waits for what has a response, and the others for the first.
func (c *Conn) kernelOps() bool {
	if !c.canSend() {
		return false
	}
	b := opBatch{wrid: wridOp | c.recTail}
	c.wrs, c.sges = c.wrs[:0], c.sges[:0]
	sends := 0
	size := 0
	blocked := false
	for m := c.head(); m != nil && m.opNew(); m = c.head() {
		long := len(m.Data) > kernelPiece
		if long && b.n > 0 {
			break
		}
		n, reads := c.opWRs(m)
		if n > 0 && m.Silent && !c.k.placed {
			// Nothing would ever say that it has been carried out.
			m.WCStatus, m.Bad = verbs.WCLocQPOpErr, m.Op
			n = 0
		}
		if n == 0 {
			c.refuseOp(m)
			continue
		}
		if c.waits(n+sends, reads, &b) {
			blocked = b.n == 0
			break
		}
		if b.buf == nil {
			if b.buf = c.buffer(); b.buf == nil {
				return false
			}
		}
		need := wire.Pad(wire.HeaderLen + len(m.Data))
		if b.n > 0 && (size+need > len(b.buf.Mem) || b.bytes >= batchBytes || sends == kernelBatch) {
			break
		}
		if !c.postOp(m, &b) {
			continue
		}
		if long {
			c.host.PutSendBuf(b.buf) // kernelPieces takes it
			m.priv.sent = 0
			c.frag = m
			return c.kernelPieces(&b)
		}
		if !m.Silent {
			size += need
			sends++
		}
	}
	if b.n == 0 {
		if b.buf != nil {
			c.host.PutSendBuf(b.buf)
		}
		return !blocked
	}
	rec := sendRec{buf: b.buf, ops: b.first, reads: b.reads, bytes: b.bytes}
	for m := b.first; m != nil; m = m.priv.chain {
		if m.Silent {
			c.sentWhole(m)
			continue
		}
		b.off = c.kernelPut(m, b.buf, b.off, b.fence)
		b.fence = 0
	}
	c.kernelPost(rec)
	return true
}

// kernelPlaced settles the operations of a record that completed: the peer's
// device has acknowledged them and their messages. The messages go on as plain
// ones, to be sent again if the connection breaks before the peer's ack.
func (c *Conn) kernelPlaced(r *sendRec) {
	for m := r.ops; m != nil; m = m.priv.chain {
		if m.priv.state != msgPosted {
			continue
		}
		m.priv.opProven = true
		c.host.OpPlaced(c, m)
		if m.Silent {
			c.unacked.remove(m)
			c.end(m, Acked)
		}
	}
}

// kernelDown ends the operations whose fate is open when the connection is
// gone: no handshake will tell.
func (c *Conn) kernelDown() {
	o := Unknown
	if c.k.nak {
		o = Dropped
	}
	c.CancelMatching(func(m *Msg) bool { return m.opOpen() }, o)
}

// recvKernel takes a SEND, which is one frame.
func (c *Conn) recvKernel(b []byte) error {
	c.stats.RecvFrames++
	c.dirty = true
	if c.owing > maxOwing {
		return fmt.Errorf("%d pongs not taken", c.owing)
	}
	h := &c.rxh
	if err := wire.Parse(b, h); err != nil {
		if errors.Is(err, wire.ErrChecksum) {
			c.stats.RecvDropChecksum++
		}
		return err
	}
	body := b[wire.HeaderLen:]
	switch {
	case len(body) > kernelPiece:
		return fmt.Errorf("a SEND of %d bytes, largest %d", len(b), kernelFrame)
	case h.Ack >= c.nextTx:
		return fmt.Errorf("ack %d, the next sequence is %d", h.Ack, c.nextTx)
	}
	var err error
	switch {
	case h.SPort == 0 && h.DPort == 0 && len(body) == 0:
		c.stats.AckReceived++
	case h.Flags == wire.FlagCong:
		err = c.recvKernelCong(h, body)
	default:
		err = c.recvKernelMessage(h, body)
	}
	if err != nil {
		return err
	}
	c.handleAck(h.Ack)
	return nil
}

// recvKernelMessage takes a frame of a message.
func (c *Conn) recvKernelMessage(h *wire.Header, body []byte) error {
	if c.k.congGot > 0 {
		return errors.New("a message between the fragments of a congestion map")
	}
	h.FromKernel()
	seq := h.Seq
	if c.asm.active || h.Len > kernelPiece {
		// A kernel does not compare flags, nor the incarnations that it has not.
		if c.asm.active {
			h.Flags = c.asm.h.Flags
		}
		if err := c.recvFragment(h, body); err != nil {
			return err
		}
		if c.asm.active {
			return nil
		}
	} else {
		if int(h.Len) != len(body) {
			return fmt.Errorf("message of %d bytes in a frame of %d", h.Len, len(body))
		}
		if err := c.recvMessage(h, body, 0); err != nil {
			return err
		}
	}
	c.k.ack = seq
	return nil
}

// recvKernelCong takes a half of the peer's map.
func (c *Conn) recvKernelCong(h *wire.Header, body []byte) error {
	k := &c.k
	switch {
	case c.asm.active:
		return errors.New("a congestion map between the fragments of a message")
	case h.Len != wire.CongLen || len(body) != kernelPiece:
		return fmt.Errorf("congestion map of %d bytes in a frame of %d", h.Len, len(body))
	}
	if k.congRx == nil {
		k.congRx = make([]byte, wire.CongLen)
	}
	k.congGot += copy(k.congRx[k.congGot:], body)
	if k.congGot < wire.CongLen {
		return nil
	}
	k.congGot = 0
	h.Seq, h.SPort, h.DPort = 0, 0, 0
	return c.recvCong(h, k.congRx)
}

// kernelSeq says what a sequence means that is not higher than all before. Only
// what is flagged is a duplicate: a kernel that started anew counts from 1.
func (c *Conn) kernelSeq(h *wire.Header) (old bool, err error) {
	if h.Seq == 0 {
		return false, errors.New("a message without a sequence")
	}
	if h.Flags&wire.FlagRetransmitted == 0 {
		return false, nil
	}
	c.stats.RecvDropOldSeq++
	c.ackNow = true
	return true, nil
}

// kernelPrompt sees to it that what is posted is acked some time.
func (c *Conn) kernelPrompt() {
	k := &c.k
	switch {
	case c.unacked.tail == nil || c.unacked.tail.priv.seq <= k.asked, c.rtx.n+c.queue.n > 0, c.frag != nil:
		k.prompt = 0 // or what is to come sees to it
	case k.prompt == 0:
		k.prompt = c.now + promptDelay*c.cfg.AckDelay
	}
}

// kernelAsk sends a ping from nobody, which a kernel acks and does not answer.
// Without its byte it would be an ack frame.
func (c *Conn) kernelAsk() {
	c.k.prompt = 0
	o := c.newOwn()
	o.Data, o.AckNow = o.body[:1], true
	o.body[0] = 0
	c.enqueue(&o.Msg)
}
