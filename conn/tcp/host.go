package tcp

import (
	"errors"
	"net/netip"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

// Why a connection ended, or an attempt to connect.
var (
	ErrPoked    = errors.New("conn: the peer was asked to connect: it has the smaller address")
	ErrLaneBusy = errors.New("conn: no lane is down")
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

// Host is the owner of a Conn. It is called as a conn.Host is, and may call back what that
// may.
type Host interface {
	// Deliver, Begin, Commit and Abort are called as those of a conn.Host. A Linux host
	// does not send again: a message that is not accepted is lost.
	Deliver(c *Conn, h *wire.Header, payload []byte) conn.Verdict
	Begin(c *Conn, h *wire.Header) (dst []byte, token any, v conn.Verdict)
	Commit(c *Conn, h *wire.Header, token any)
	Abort(c *Conn, token any)
	// MsgDone is called as that of a conn.Host.
	MsgDone(c *Conn, m *msg.Msg, o msg.Outcome)
	// PeerUp tells that the first lane came up, PeerDown that the last one is down.
	PeerUp(c *Conn)
	PeerDown(c *Conn, why error)
	// Congestion: the peer's congestion map changed.
	Congestion(c *Conn, m *cong.Map)
	// Dial connects a lane. Its source port should be the lane modulo
	// wire.MaxPaths; with must it is nothing else. HandleConnected or HandleFailed
	// with the same id follows.
	Dial(c *Conn, lane int, id uint64, must bool) error
	// Trace is called as that of a conn.Host.
	Trace(c *Conn, event string, err error)
}

// Config of a Conn. Times are nanoseconds.
type Config struct {
	Local, Remote netip.Addr
	Lanes         int    // connections offered, a power of two up to wire.MaxPaths (8)
	StartSeq      uint64 // first sequence of every lane
	MinBackoff    int64  // 1 ms
	MaxBackoff    int64  // 1 s
	CloseTimeout  int64  // 1 s: what the peer does not end after Close is cut off
	IgnorePings   bool   // messages to port 0 go to nobody, handshakes among them
	Rand          func() uint64
	Posted        func(m *msg.Msg) // as conn.Config.Posted
	// Cong is the congestion map of the local address. It is sent on every first lane
	// that comes up, because the peer may remember an older one.
	Cong *cong.Map
	// Scratch is memory of at least MinScratch bytes in which frames are put
	// together. All Conns of an owner share it.
	Scratch []byte
	Ctx     any // the host's own, returned by Conn.Ctx
}

// MinScratch is the least length of Config.Scratch in bytes.
const MinScratch = 64 << 10
