package conn

import (
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// What the private data of requests, replies and rejections says, and whether
// this connection takes it.

// private is the private data of our request, or of our answer. A request
// carries the extension whoever answers: kernels take it for padding.
func (c *Conn) private() []byte {
	p := wire.Private{
		Src: c.cfg.Local, Dst: c.cfg.Remote,
		Major: wire.ProtocolMajor, Minor: wire.ProtocolMinor, MinorMask: wire.MinorMask,
		TOS: c.cfg.Lane, Path: c.cfg.Path, AckSeq: c.in.last, Ext: c.ext(),
	}
	if c.k.on && !c.link.active {
		p.Ext = 0
	}
	return wire.AppendPrivate(nil, &p)
}

// ext is the extension version in the private data of both sides.
func (c *Conn) ext() uint8 {
	if c.cfg.Path != 0 {
		return wire.ExtPath
	}
	return wire.ExtVersion
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
		switch {
		case !c.cfg.Kernel:
			return p, ErrKernel
		case c.cfg.Path != 0:
			return p, fmt.Errorf("%w: %w", ErrIncompatible, ErrPath)
		}
	case p.Major != wire.ProtocolMajor || p.Minor != wire.ProtocolMinor:
		return p, fmt.Errorf("%w: protocol %d.%d, want %d.%d", ErrIncompatible,
			p.Major, p.Minor, wire.ProtocolMajor, wire.ProtocolMinor)
	case p.Ext != wire.ExtVersion && p.Ext != wire.ExtPath:
		return p, otherVersion(p.Ext)
	}
	switch {
	case p.Src.Unmap() != c.cfg.Remote || p.Dst.Unmap() != c.cfg.Local:
		return p, fmt.Errorf("%w: it claims to be %v and means %v; the connection is from %v to %v",
			ErrIncompatible, p.Src, p.Dst, c.cfg.Remote, c.cfg.Local)
	case p.TOS != c.cfg.Lane || p.Path != c.cfg.Path:
		return p, fmt.Errorf("%w: lane %d and path %d, want %d and %d", ErrIncompatible, p.TOS, p.Path, c.cfg.Lane, c.cfg.Path)
	}
	return p, nil
}

// otherVersion is the error about a peer of another extension version.
func otherVersion(ext uint8) error {
	return fmt.Errorf("%w: the peer's rdsd speaks extension version %d, this one %d; upgrade the older daemon",
		ErrIncompatible, ext, wire.ExtVersion)
}

// rejected says what the private data of a rejection tells. A daemon of another
// extension version names its version there. A peer that has said for the time of an attempt that its
// own request comes rejects for good, because that request has no way to this side. So does one that was
// too busy for as long. why is what the provider knows, or nil.
func (c *Conn) rejected(private []byte, why error) error {
	r, ok := wire.ParseReject(private)
	busy := errors.Is(why, verbs.ErrBusy)
	if !busy && (!ok || !r.Crossed) {
		c.later = 0
	} else if c.later == 0 {
		c.later = max(c.now, 1)
	}
	later := c.later != 0 && c.now-c.later < c.cfg.ConnectTimeout
	switch {
	case busy && later:
		return fmt.Errorf("%w: %w", ErrLater, why)
	case errors.Is(why, verbs.ErrForbidden):
		return ErrForbidden
	case busy || !ok && errors.Is(why, verbs.ErrIdentity):
		return fmt.Errorf("%w: %w", ErrRejected, why)
	case !ok:
		return ErrRejected
	case later:
		return ErrCrossed
	case c.cfg.Path != 0 && r.Why == wire.NotSaid:
		return fmt.Errorf("%w: %w", ErrRejected, ErrPath)
	case r.Ext != 0 && r.Ext != wire.ExtVersion:
		return fmt.Errorf("%w: %w", ErrRejected, otherVersion(r.Ext))
	case r.Ext == 0 && c.cfg.Kernel:
		return fmt.Errorf("%w: code %d", ErrRejected, r.Code)
	case r.Ext == 0:
		return fmt.Errorf("%w: %w: it speaks extension version 1 or is a Linux kernel, this rdsd speaks version %d; upgrade the older daemon, or see peers.kernel",
			ErrRejected, ErrIncompatible, wire.ExtVersion)
	case r.Why == wire.NotAllowed:
		return ErrForbidden
	case int(r.Why) < len(whys) && whys[r.Why] != "":
		return fmt.Errorf("%w: %s", ErrRejected, whys[r.Why])
	}
	return fmt.Errorf("%w: its log says why (reason %d)", ErrRejected, r.Why)
}

// whys are the texts of the reasons that a peer gives for a rejection.
var whys = [...]string{
	wire.NotSaid:      "it does not say why, its rdsctl doctor does",
	wire.WrongAddress: "the connection is between other addresses than this host and the peer use (NAT, or listen)",
	wire.NoRoom:       "it has no room for another connection",
	wire.TooMany:      "it was asked too often (peers.control_per_s there)",
	wire.OtherWay:     "it reaches this host by another transport (transport, transport_rules and tcp.peers of both hosts)",
}
