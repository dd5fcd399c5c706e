package rdstcp

import (
	"net/netip"
	"sync/atomic"
)

// Tap sees the streams while it is on. Its methods are called on the owner's thread.
type Tap interface {
	// On is not 0 while the tap is on. It is another number whenever it is switched on. The
	// owner's thread switches it.
	On() *atomic.Uint32
	// BeginTCP announces a connection, which the remote end has made if it is passive, and
	// reports whether the tap wants its streams.
	BeginTCP(local, remote netip.AddrPort, passive bool) bool
	// Stream gets the next bytes from local to remote (out) or back, from the beginning of a
	// frame on. It must not keep b.
	Stream(local, remote netip.AddrPort, out bool, b []byte)
}

// off is never switched on.
var off atomic.Uint32

// tapState is what a connection knows of the tap.
type tapState struct {
	passive bool
	on      uint32
	tap     Tap    // nil: it sees nothing of this connection
	skip    [2]int // bytes to come of the frame in which the tap began; 1: out
}

// KnowFrames gives the Net a function that says where frames begin: how many bytes of the one
// that is arriving, and of the one that is being written, are still to come. Of one whose
// header has not come whole it returns what has come.
func (n *Net) KnowFrames(begun func(*Conn) (head []byte, in, out int)) { n.begun = begun }

// tapped returns who sees c's streams, nil: nobody.
func (c *Conn) tapped() Tap {
	if on := c.n.tapOn.Load(); on != c.tap.on {
		c.switchTap(on)
	}
	return c.tap.tap
}

func (c *Conn) switchTap(on uint32) {
	s, t := &c.tap, c.n.opt.Tap
	s.on, s.tap, s.skip = on, nil, [2]int{}
	if on == 0 || !t.BeginTCP(c.Local, c.Remote, s.passive) {
		return
	}
	s.tap = t
	if c.n.begun == nil {
		return
	}
	head, in, out := c.n.begun(c)
	c.saw(t, false, head)
	s.skip = [2]int{in, out}
}

// saw shows t bytes of a stream, except those of a frame that it has not seen from its
// beginning.
func (c *Conn) saw(t Tap, out bool, b []byte) {
	skip := &c.tap.skip[0]
	if out {
		skip = &c.tap.skip[1]
	}
	n := min(*skip, len(b))
	*skip -= n
	if n < len(b) {
		t.Stream(c.Local, c.Remote, out, b[n:])
	}
}
