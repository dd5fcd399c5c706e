package conn

import (
	"net/netip"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/verbs"
)

// Config of a Conn. Times are nanoseconds; the daemon's defaults are in
// parentheses.
type Config struct {
	Local, Remote  netip.Addr
	Lane, Path     uint8
	Paths          int    // how many paths this daemon wants, 1 to wire.MaxPaths (1)
	Instance       uint64 // this daemon's instance id, random per start
	MaxSend        int    // largest SEND either way, bytes (32 KiB); raised to wire.MinMaxSend
	RecvCredits    int    // receive buffers of the shared pool this peer may use (64); raised to MinCredits
	StartSeq       uint64
	Past           Past             // of a former Conn of this lane and path
	MaxSendWR      int              // send queue of the QPs
	ReadDepth      int              // READs in flight each way
	MinBackoff     int64            // 1 ms
	MaxBackoff     int64            // 1 s
	ConnectTimeout int64            // 5 s: a handshake not complete by then is broken off
	AckDelay       int64            // 1 ms: an ack nobody asked for waits this long
	AckBytes       int              // ... or for this many unacked bytes (64 KiB)
	SettleTimeout  int64            // posted operations of a vanished peer become Unknown after this (30 s)
	Silence        int64            // a peer that owes an answer may say nothing for this long (30 s), <= 0: for ever
	Kernel         bool             // the peer may be a Linux kernel; else one that says so is rejected
	IgnorePings    bool             // messages to port 0 go to the host, who has no socket there
	Rand           func() uint64    // random numbers for the back-off
	Posted         func(m *msg.Msg) // m, a Watched message, was posted: the first time, or again. Of a run that is cut: its first datagram. Nothing but a method that reads may be called from here
	Scratch        *Scratch         // shared with the owner's other Conns; nil: its own
	Owing          *int             // counts the notices and pongs of all connections to the address; nil: there is no other
	Attr           verbs.DeviceAttr // limits for operation chains
}

// Scratch is the memory in which a Conn builds work requests. It holds nothing
// between two calls, so one Scratch serves all Conns of an owner.
type Scratch struct {
	wrs  []verbs.SendWR
	sges []verbs.SGE
}

// EventRequestRejected is the Trace event of a request of the peer's that was rejected.
const EventRequestRejected = "request rejected"

// EventConnectFailed is the Trace event of an attempt to connect that ended
// without a connection.
const EventConnectFailed = "connect failed"
