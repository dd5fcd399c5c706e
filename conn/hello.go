package conn

import (
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/conn/wire"
)

// sendHello posts HELLO, the first SEND; false if that failed. Notices and
// control messages that wait get their sequences now, so that HELLO's notice
// covers them: what this side owes the peer must arrive before the peer
// believes HELLO's ack.
func (c *Conn) sendHello() bool {
	notice := c.out.announce()
	h := wire.Hello{
		Version:   wire.HelloVersion,
		Features:  features(c.cfg.Attr.Caps) | wire.FeatureAsk | wire.FeatureTraceparent,
		Instance:  c.cfg.Instance,
		Ack:       c.in.last,
		AckInst:   c.peer,
		Notice:    notice,
		MaxSend:   uint32(c.cfg.MaxSend),
		Credits:   uint32(c.cfg.RecvCredits),
		ReadDepth: uint32(c.cfg.ReadDepth),
	}
	h.SetPaths(c.cfg.Paths)
	c.credits.granted = uint32(c.cfg.RecvCredits)
	part := c.ctl.next()
	c.out.h = wire.Header{Len: wire.HelloLen, DPort: uint16(wire.TypeHello), Flags: wire.FlagInternal}
	c.out.h.Put(part)
	h.Append(part[:wire.HeaderLen])
	c.postCtl(wire.HeaderLen+wire.HelloLen, sendRec{})
	return c.state == Up
}

var errNoHello = errors.New("the first frame is not HELLO")

// recvHello takes the first SEND of the peer.
func (c *Conn) recvHello(b []byte) error {
	h := &c.in.h
	if err := wire.Parse(b, h); err != nil {
		return err
	}
	if h.Flags != wire.FlagInternal || wire.InternalType(h.DPort) != wire.TypeHello ||
		h.Seq != 0 || int(h.Len) != len(b)-wire.HeaderLen {
		return errNoHello
	}
	hello, err := wire.ParseHello(b[wire.HeaderLen:])
	switch {
	case err != nil:
		return err
	case hello.Instance == 0 || hello.Instance == KernelInstance:
		return errors.New("HELLO without an instance")
	case hello.MaxSend < wire.MinMaxSend:
		return fmt.Errorf("HELLO: largest SEND %d, at least %d", hello.MaxSend, wire.MinMaxSend)
	case hello.Credits < MinCredits || hello.Credits > maxCredits:
		return fmt.Errorf("HELLO: %d credits, want %d to %d", hello.Credits, MinCredits, maxCredits)
	case hello.AckInst == c.cfg.Instance && hello.Ack >= c.out.nextTx:
		return fmt.Errorf("HELLO acks %d, the next sequence is %d", hello.Ack, c.out.nextTx)
	}
	c.link.hello, c.link.helloSeen = hello, true
	if c.state == Up {
		c.becomeReady()
	}
	return nil
}

// becomeReady sorts what the last connection left behind, now that the peer has
// said what it received.
func (c *Conn) becomeReady() {
	h := &c.link.hello
	if !c.host.Instance(c, h.Instance) {
		c.link.deaf = true
		c.fail(ErrStale)
		return
	}
	c.link.ready, c.link.readyAt = true, c.now
	c.link.deadline = 0
	c.watchFrom()
	c.redial.Ceiling, c.halt.again, c.later = 0, 0, 0
	c.link.agree(&c.cfg)
	c.credits.left = h.Credits

	restarted := c.peer != 0 && c.peer != h.Instance
	if c.peer != 0 {
		c.out.untilAsk = askEvery
	}
	if c.peer != h.Instance {
		c.peer = h.Instance
		c.in.last = 0
		clear(c.in.refusing)
	}
	c.host.Trace(c, "up", nil)
	c.host.PeerUp(c, restarted)
	if restarted {
		c.forget()
	} else {
		c.resume()
	}
	c.cong.begin(restarted)
	c.stops.due = true // the map may be that of before a pause
	c.dirty = true
}
