package ctl

import (
	"net/netip"
	"time"
)

// Limits of the answers that list single messages, regions or events.
const (
	DefaultLimit = 1000
	MaxLimit     = 20_000
)

// View is the part of a list that a caller wants to see and may see.
type View struct {
	May   func(uid uint32) bool // whether the caller may see what belongs to uid
	Limit int                   // items, more than 0
}

// Inspector lists single messages, regions and events. A list ends at the view's limit; the
// bool reports that there is more. Methods ask the engine in steps, each a small part of a
// turn. So the elements of a list may be of different moments.
type Inspector interface {
	// Messages are the messages of one queue, or of all for "". See MessageInfo.Queue.
	Messages(v View, queue string) ([]MessageInfo, bool, error)
	Backlog(v View) ([]BacklogInfo, bool, error)
	Keys(v View) ([]KeyInfo, bool, error)
	Barriers(v View) ([]BarrierInfo, bool, error)
	Congested(v View) ([]CongestedInfo, bool, error)
	// Stalls lists the connections on which something is in progress or waits.
	Stalls() ([]StallInfo, error)
	// Events are the events with a number above after, the oldest first.
	Events(v View, after uint64) ([]EventInfo, bool, error)
	// Errors are the distinct errors since the daemon started.
	Errors(v View) ([]ErrorInfo, bool, error)
	// Stacks is the stacks of all goroutines, at most 1 MiB.
	Stacks() (string, error)
}

// Queues that messages are in.
const (
	QueueSend    = "send"    // not sent yet, on this connection at least
	QueueRetrans = "retrans" // sent, not acked
	QueueRecv    = "recv"    // arrived, not yet read
)

// MessageInfo is one message. Messages of QueueRecv have no sequence.
type MessageInfo struct {
	Queue      string        `json:"queue"`
	Local      netip.Addr    `json:"local"`
	LocalPort  uint16        `json:"local_port"`
	Remote     netip.Addr    `json:"remote"`
	RemotePort uint16        `json:"remote_port"`
	Lane       uint8         `json:"lane"`
	Seq        uint64        `json:"seq"` // 0 if it has none yet, or it is not kept
	Bytes      uint64        `json:"length_bytes"`
	Ops        int           `json:"operations"` // RDMA operations it carries
	Age        time.Duration `json:"age_ns"`     // since the daemon got it
	Owner      Owner         `json:"owner"`      // of the socket here
}

// BacklogInfo is what is in progress from a socket to one destination. With Direction
// "recv" it is what has arrived for the socket and is not read.
type BacklogInfo struct {
	Direction string     `json:"direction"` // "send", "recv"
	Addr      netip.Addr `json:"addr"`
	Port      uint16     `json:"port"`
	Dest      netip.Addr `json:"dest,omitzero"`
	DestPort  uint16     `json:"dest_port"`
	Lane      uint8      `json:"lane"`
	Owner     Owner      `json:"owner"`

	QueuedMessages  uint64 `json:"queued_messages"` // with the daemon, not sent
	QueuedBytes     uint64 `json:"queued_bytes"`
	UnackedMessages uint64 `json:"unacked_messages"` // sent, not acked
	UnackedBytes    uint64 `json:"unacked_bytes"`
	UnreadMessages  uint64 `json:"unread_messages"` // arrived
	UnreadBytes     uint64 `json:"unread_bytes"`
	Ops             uint64 `json:"operations"`

	Oldest    time.Duration `json:"oldest_ns"` // of the messages; without any, how long the destination has been congested
	Congested bool          `json:"congested"`
	// WaitsFor says who has to act. The values are below.
	WaitsFor string `json:"waits_for"`
}

// The values of BacklogInfo.WaitsFor.
const (
	WaitsForNobody     = "nobody"             // nobody has to act
	WaitsForReader     = "reader"             // the process that owns the socket has to read
	WaitsForReceiver   = "receiver"           // the socket there has to read: it is congested
	WaitsForRelief     = "relief"             // the same, and the process has nothing in progress: its sender waits, or did so last
	WaitsForConnection = "connection"         // there is no connection; rdsctl peers says why
	WaitsForCredits    = "credits"            // the peer's daemon has to give credits
	WaitsForAck        = "ack"                // the peer's daemon has to ack
	WaitsForTurn       = "turn"               // other sockets' messages on the same connection come first
	WaitsForCopy       = "copy"               // same host: the engine is copying
	WaitsForQuota      = "quota.destinations" // other destinations of the user with messages in progress hold all places
	WaitsForRoom       = "room"               // the daemon has as many peers as it can have
	WaitsForOperator   = "administrator"      // drained: rdsctl daemon resume, peer resume
)

// KeyInfo is one registered region. The key itself is not shown: whoever knows it could use
// the region.
type KeyInfo struct {
	Addr    netip.Addr `json:"addr"`
	Port    uint16     `json:"port"`
	Owner   Owner      `json:"owner"`
	Buffer  uint32     `json:"buffer"` // of the process
	Offset  uint64     `json:"offset_bytes"`
	Length  uint64     `json:"length_bytes"`
	Rights  string     `json:"rights"` // of "read", "write", "atomic", joined by +
	UseOnce bool       `json:"use_once"`
	Open    bool       `json:"open"`   // for everybody who shows the cookie
	State   string     `json:"state"`  // "live", "revoking", "dead"
	Grants  int        `json:"grants"` // sockets, or whole peers, that may use it
	Served
}

// Served is what RDMA of others, on this host or elsewhere, has done to memory here since the daemon
// runs. What an RDMA device does is not seen.
type Served struct {
	PlacedBytes uint64 `json:"rdma_placed_bytes"` // written here
	ServedBytes uint64 `json:"rdma_served_bytes"` // read here
}

// BarrierInfo counts the operations of one socket towards one address.
type BarrierInfo struct {
	Addr    netip.Addr `json:"addr"`
	Port    uint16     `json:"port"`
	Dest    netip.Addr `json:"dest"`
	Lane    uint8      `json:"lane"`
	Owner   Owner      `json:"owner"`
	Issued  uint64     `json:"last_issued"`
	HWM     uint64     `json:"high_water_mark"` // all operations up to this id are locally complete
	Pending uint64     `json:"pending_operations"`
}

// CongestedInfo is a congested port of this host, or of a peer to which a socket here
// sends.
type CongestedInfo struct {
	Where   string     `json:"where"` // "here", "peer"
	Addr    netip.Addr `json:"addr"`
	Port    uint16     `json:"port"`
	Since   time.Time  `json:"since,omitzero"` // only of ports of this host
	Owner   *Owner     `json:"owner"`          // only of ports of this host
	Unread  uint64     `json:"unread_bytes"`
	Limit   uint64     `json:"limit_bytes"`
	Senders uint64     `json:"waiting_destinations"` // of sockets of this host, that lead to the port
}

// StallInfo is a connection on which something is in progress or waits.
type StallInfo struct {
	Local     netip.Addr `json:"local"`
	Remote    netip.Addr `json:"remote"`
	Lane      uint8      `json:"lane"`
	Path      uint8      `json:"path,omitzero"`
	State     string     `json:"state"`
	Transport string     `json:"transport"`

	QueuedMessages  uint64        `json:"queued_messages"`
	QueuedBytes     uint64        `json:"queued_bytes"`
	UnackedMessages uint64        `json:"unacked_messages"`
	UnackedBytes    uint64        `json:"unacked_bytes"`
	OldestQueued    time.Duration `json:"oldest_queued_ns"`
	OldestUnacked   time.Duration `json:"oldest_unacked_ns"`
	Oldest          time.Duration `json:"oldest_ns"` // the larger of the two
	SendCredits     int           `json:"send_credits"`
	WaitsFor        string        `json:"waits_for"`
	LastError       string        `json:"last_error"`
	LastErrorAt     time.Time     `json:"last_error_at,omitzero"`
}

// EventInfo is an event of the daemon. The daemon's log has it, too.
type EventInfo struct {
	Seq   uint64     `json:"seq"`
	Time  time.Time  `json:"time"`
	Level string     `json:"level"` // "info", "warn", "error"
	Event string     `json:"event"`
	Local netip.Addr `json:"local,omitzero"`
	Peer  netip.Addr `json:"peer,omitzero"`
	Lane  *uint8     `json:"lane"` // of the connection that it is about; null if there is none
	Path  uint8      `json:"path,omitzero"`
	UID   *uint32    `json:"uid"` // of the process that it is about; null if there is none
	PID   int        `json:"pid"` // 0 if there is none
	Error string     `json:"error"`
}

// ErrorInfo is all events of one kind about one peer or user that had an error, or a level
// above "info".
type ErrorInfo struct {
	Event string     `json:"event"`
	Level string     `json:"level"`
	Peer  netip.Addr `json:"peer,omitzero"`
	UID   *uint32    `json:"uid"`
	Count uint64     `json:"count"`
	First time.Time  `json:"first"`
	Last  time.Time  `json:"last"`
	Error string     `json:"error"` // of the last event
}

// CounterInfo is a counter as rdsctl counters prints it.
type CounterInfo struct {
	Name  string   `json:"name"`
	Value uint64   `json:"value"`
	Rate  *float64 `json:"rate_per_second"` // since the previous sample; null if there is none
}

// look answers the kinds that are lists. ok is false if r is of another kind.
func look(r *Request, who Caller, b Backend, resp *Response) (ok bool, err error) {
	v := View{Limit: r.Limit, May: func(uid uint32) bool { return who.Admin || uid == who.UID }}
	switch {
	case v.Limit == 0:
		v.Limit = DefaultLimit
	case v.Limit < 0 || v.Limit > MaxLimit:
		return true, errorf(CodeBadRequest, "%s: limit %d is not between 1 and %d", r.Kind, v.Limit, MaxLimit)
	}
	switch r.Kind {
	case KindQueues:
		switch r.Queue {
		case "", QueueSend, QueueRetrans, QueueRecv:
		default:
			return true, errorf(CodeBadRequest, "queues: %q is none of send, retrans, recv", r.Queue)
		}
		resp.Queues, resp.Truncated, err = b.Messages(v, r.Queue)
		resp.Queues = nonNil(resp.Queues)
	case KindBacklog:
		resp.Backlog, resp.Truncated, err = b.Backlog(v)
		resp.Backlog = nonNil(resp.Backlog)
	case KindKeys:
		resp.Keys, resp.Truncated, err = b.Keys(v)
		resp.Keys = nonNil(resp.Keys)
	case KindBarriers:
		resp.Barriers, resp.Truncated, err = b.Barriers(v)
		resp.Barriers = nonNil(resp.Barriers)
	case KindCongested:
		resp.Congested, resp.Truncated, err = b.Congested(v)
		resp.Congested = nonNil(resp.Congested)
	case KindStalls:
		resp.Stalls, err = b.Stalls()
		resp.Stalls = nonNil(resp.Stalls)
	case KindEvents:
		resp.Events, resp.Truncated, err = b.Events(v, r.After)
		resp.Events = nonNil(resp.Events)
	case KindErrors:
		resp.Errors, resp.Truncated, err = b.Errors(v)
		resp.Errors = nonNil(resp.Errors)
	case KindStacks:
		if !who.Admin {
			return true, errorf(CodePermission, "stacks: only root and the daemon's own user may have them")
		}
		resp.Stacks, err = b.Stacks()
	default:
		return false, nil
	}
	return true, err
}
