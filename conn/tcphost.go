package conn

import (
	"net/netip"

	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/wire"
)

// Stream is one TCP connection. Its calls never block.
type Stream interface {
	// Write copies bytes of the pieces, in order, and returns how many. If it took
	// fewer than all, the rest has to wait for HandleRoom.
	Write(pieces [][]byte) (int, error)
	// Unacked returns how many of the bytes written the peer's TCP has not
	// acknowledged.
	Unacked() (int, error)
	// Finish ends this direction behind the bytes that were written.
	Finish()
	// Close ends the connection. With abort the peer sees a reset.
	Close(abort bool)
}

// TCPHost is the owner of a TCP. It is called as a Host is, and may call back what a
// Host may.
type TCPHost interface {
	// Deliver, Begin, Commit and Abort are called as those of a Host. A Linux host
	// does not send again: a message that is not accepted is lost.
	Deliver(c *TCP, h *wire.Header, payload []byte) Verdict
	Begin(c *TCP, h *wire.Header) (dst []byte, token any, v Verdict)
	Commit(c *TCP, h *wire.Header, token any)
	Abort(c *TCP, token any)
	// MsgDone is called as that of a Host.
	MsgDone(c *TCP, m *Msg, o Outcome)
	// PeerUp tells that the first lane came up, PeerDown that the last one is down.
	PeerUp(c *TCP)
	PeerDown(c *TCP, why error)
	// Congestion: the peer's congestion map changed.
	Congestion(c *TCP, m *cong.Map)
	// Dial connects a lane. Its source port should be the lane modulo
	// wire.MaxPaths; with must it is nothing else. HandleConnected or HandleFailed
	// with the same id follows.
	Dial(c *TCP, lane int, id uint64, must bool) error
	// Trace is called as that of a Host.
	Trace(c *TCP, event string, err error)
}

// TCPConfig of a TCP. Times are nanoseconds.
type TCPConfig struct {
	Local, Remote netip.Addr
	Lanes         int    // connections offered, a power of two up to wire.MaxPaths (8)
	StartSeq      uint64 // first sequence of every lane
	MinBackoff    int64  // 1 ms
	MaxBackoff    int64  // 1 s
	CloseTimeout  int64  // 1 s: what the peer does not end after Close is cut off
	IgnorePings   bool   // messages to port 0 go to nobody, handshakes among them
	Rand          func() uint64
	Posted        func(m *Msg) // as Config.Posted
	// Cong is the congestion map of the local address. It is sent on every first lane
	// that comes up, because the peer may remember an older one.
	Cong *cong.Map
	// Scratch is memory of at least MinScratch bytes in which frames are put
	// together. All TCPs of an owner share it.
	Scratch []byte
	Ctx     any // the host's own, returned by TCP.Ctx
}

// MinScratch is the least length of TCPConfig.Scratch in bytes.
const MinScratch = 64 << 10
