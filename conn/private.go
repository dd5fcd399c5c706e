package conn

import (
	"fmt"

	"github.com/rdsd/rdsd/conn/wire"
)

// What the private data of requests, replies and rejections says, and whether
// this connection takes it.

// private is the private data of our request, or of our answer. A request
// carries the extension whoever answers: kernels take it for padding.
func (c *Conn) private() []byte {
	p := wire.Private{
		Src: c.cfg.Local, Dst: c.cfg.Remote,
		Major: wire.ProtocolMajor, Minor: wire.ProtocolMinor, MinorMask: wire.MinorMask,
		TOS: c.cfg.Lane, AckSeq: c.in.last, Ext: wire.ExtVersion,
	}
	if c.k.on && !c.link.active {
		p.Ext = 0
	}
	return wire.AppendPrivate(nil, &p)
}

// setProfile takes the profile of the connection from the peer's private data.
func (c *Conn) setProfile(p wire.Private) {
	c.k.on = p.Ext == 0
	c.link.peerAck = p.AckSeq
}

// checkPrivate says whether the peer's private data fits this connection.
func (c *Conn) checkPrivate(b []byte) (wire.Private, error) {
	p, err := wire.ParsePrivate(b, !c.cfg.Local.Is4())
	switch {
	case err != nil:
		return p, fmt.Errorf("%w: %w", ErrIncompatible, err)
	case p.Ext == 0 && p.KernelCompatible():
		if !c.cfg.Kernel {
			return p, ErrKernel
		}
	case p.Major != wire.ProtocolMajor || p.Minor != wire.ProtocolMinor:
		return p, fmt.Errorf("%w: protocol %d.%d, want %d.%d", ErrIncompatible,
			p.Major, p.Minor, wire.ProtocolMajor, wire.ProtocolMinor)
	case p.Ext != wire.ExtVersion:
		return p, otherVersion(p.Ext)
	}
	switch {
	case p.Src.Unmap() != c.cfg.Remote || p.Dst.Unmap() != c.cfg.Local:
		return p, fmt.Errorf("%w: it claims to be %v and means %v; the connection is from %v to %v",
			ErrIncompatible, p.Src, p.Dst, c.cfg.Remote, c.cfg.Local)
	case p.TOS != c.cfg.Lane:
		return p, fmt.Errorf("%w: lane %d, want %d", ErrIncompatible, p.TOS, c.cfg.Lane)
	}
	return p, nil
}

// otherVersion is the error about a peer of another extension version.
func otherVersion(ext uint8) error {
	return fmt.Errorf("%w: the peer's rdsd speaks extension version %d, this one %d; upgrade the older daemon",
		ErrIncompatible, ext, wire.ExtVersion)
}

// rejected says what the private data of a rejection tells. A daemon of another
// extension version names its version there. A peer whose own request should have come long
// ago rejects for good: its request has no way to this side.
func (c *Conn) rejected(private []byte) error {
	r, ok := wire.ParseReject(private)
	if !ok || !r.Crossed {
		c.crossed = 0
	} else if c.crossed == 0 {
		c.crossed = max(c.now, 1)
	}
	switch {
	case !ok:
		return ErrRejected
	case c.crossed != 0 && c.now-c.crossed < c.cfg.ConnectTimeout:
		return ErrCrossed
	case r.Ext != 0 && r.Ext != wire.ExtVersion:
		return fmt.Errorf("%w: %w", ErrRejected, otherVersion(r.Ext))
	}
	return fmt.Errorf("%w: code %d", ErrRejected, r.Code)
}
