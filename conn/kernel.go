package conn

import (
	"errors"

	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
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

// Kernel reports whether the peer of the last connection was a Linux kernel.
func (c *Conn) Kernel() bool { return c.k.on }

// kernelUp is what HELLO is between two rdsd.
func (c *Conn) kernelUp() {
	c.credits.granted = 0
	// Its sockets have no incarnations: whom these mean is not there.
	c.CancelMatching(func(m *msg.Msg) bool { return m.DstInc != 0 }, msg.NoSock)
	k := &c.k
	k.ack, k.nak, k.asked, k.prompt, k.congTx, k.congGot = 0, false, 0, 0, 0, 0
	c.link.hello = wire.Hello{
		Version: wire.HelloVersion, Instance: KernelInstance, AckInst: c.cfg.Instance,
		Features: wire.FeatureAtomics | wire.FeatureMasked, MaxSend: kernelFrame,
		Credits: kernelCredits, ReadDepth: uint32(c.cfg.ReadDepth),
	}
	// Kernels say 0. One that says more has received it; beyond what was sent
	// it can only mean an earlier life.
	if ack := c.link.peerAck; ack < c.out.nextTx {
		c.link.hello.Ack = ack
	}
	// It would not know what to do with them.
	c.endAll(&c.out.control, msg.Cancelled)
	for m := range c.out.rtx.All() {
		if m.Internal != 0 && !m.Track.Own {
			c.out.rtx.Remove(m)
			c.end(m, msg.Cancelled)
		}
	}
	c.link.helloSeen = true
	c.becomeReady()
	if !c.link.ready {
		return
	}
	c.cong.due = true // a kernel remembers what it was told
	if c.cong.own == nil {
		c.cong.own = &noCong
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
	if !c.link.active {
		c.setState(Up)
		c.openSQ()
		c.kernelUp()
		if !c.link.ready {
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

// kernelPlaced settles the operations of a record that completed: the peer's
// device has acknowledged them and their messages. The messages go on as plain
// ones, to be sent again if the connection breaks before the peer's ack.
func (c *Conn) kernelPlaced(r *sendRec) {
	for m := r.ops; m != nil; m = m.Track.Chain {
		if m.Track.State != msg.Posted {
			continue
		}
		m.Track.Op.Prove()
		c.host.OpPlaced(c, m)
		if m.Silent {
			c.out.unacked.Remove(m)
			c.end(m, msg.Acked)
		}
	}
}

// kernelDown ends the operations whose fate is open when the connection is
// gone: no handshake will tell.
func (c *Conn) kernelDown() {
	o := msg.Unknown
	if c.k.nak {
		o = msg.Dropped
	}
	c.CancelMatching(func(m *msg.Msg) bool { return m.OpOpen() }, o)
}
