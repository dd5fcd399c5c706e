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

// View is what a caller wants to see of a list, and may.
type View struct {
	May   func(uid uint32) bool // see what is of this user
	Limit int                   // items, more than 0
}

// Inspector tells what single sockets, messages and keys do. Lists end at the
// view's limit; the bool says that there is more. Methods ask the engine in
// steps, each a small part of a turn: a list is of several moments.
type Inspector interface {
	// Messages of one queue, "" of all: see MessageInfo.Queue.
	Messages(v View, queue string) ([]MessageInfo, bool, error)
	Backlog(v View) ([]BacklogInfo, bool, error)
	Keys(v View) ([]KeyInfo, bool, error)
	Barriers(v View) ([]BarrierInfo, bool, error)
	Congested(v View) ([]CongestedInfo, bool, error)
	// Stalls lists the connections that have something under way or waiting.
	Stalls() ([]StallInfo, error)
	// Events are those after the one numbered after, the oldest first.
	Events(v View, after uint64) ([]EventInfo, bool, error)
	// Errors are the distinct ones since the daemon started.
	Errors(v View) ([]ErrorInfo, bool, error)
	// Stacks of all goroutines, at most 1 MiB.
	Stacks() (string, error)
}

// Queues that messages are in.
const (
	QueueSend    = "send"    // not sent yet, on this connection at least
	QueueRetrans = "retrans" // sent, not acked
	QueueRecv    = "recv"    // arrived, not given back by the reader
)

// MessageInfo is one message. Of QueueRecv the sequence is not kept.
type MessageInfo struct {
	Queue      string        `json:"queue"`
	Local      netip.Addr    `json:"local"`
	LocalPort  uint16        `json:"local_port"`
	Remote     netip.Addr    `json:"remote"`
	RemotePort uint16        `json:"remote_port"`
	Lane       uint8         `json:"lane"`
	Seq        uint64        `json:"seq,string"` // 0: has none yet, or not kept
	Bytes      uint64        `json:"length_bytes"`
	Ops        int           `json:"operations"` // RDMA operations it carries
	Age        time.Duration `json:"age_ns"`     // since the daemon has it
	Owner      Owner         `json:"owner"`      // of the socket here
}

// BacklogInfo is what is on its way from a socket to one destination, or, with
// Direction "recv", what has arrived at it and is not read.
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

	Oldest    time.Duration `json:"oldest_ns"`
	Congested bool          `json:"congested"`
	// WaitsFor says who has to act: see WaitsFor's values.
	WaitsFor string `json:"waits_for"`
}

// Who has to act.
const (
	WaitsForNobody     = "nobody"             // it goes on
	WaitsForReader     = "reader"             // the process that owns the socket has to read
	WaitsForReceiver   = "receiver"           // the socket there has to read: it is congested
	WaitsForConnection = "connection"         // there is none: rdsctl peers says why
	WaitsForCredits    = "credits"            // the peer's daemon has no buffer for more
	WaitsForAck        = "ack"                // the peer's daemon
	WaitsForTurn       = "turn"               // others' messages on the same connection
	WaitsForCopy       = "copy"               // same host: the engine copies
	WaitsForQuota      = "quota.destinations" // other destinations of its user with messages under way hold all places
	WaitsForRoom       = "room"               // there are as many peers as the daemon can have
	WaitsForOperator   = "administrator"      // drained: rdsctl daemon resume, peer resume
)

// KeyInfo is one registered region. The key itself is a right, and not told.
type KeyInfo struct {
	Addr    netip.Addr `json:"addr"`
	Port    uint16     `json:"port"`
	Owner   Owner      `json:"owner"`
	Buffer  uint32     `json:"buffer"` // of the process
	Offset  uint64     `json:"offset_bytes"`
	Length  uint64     `json:"length_bytes"`
	Rights  string     `json:"rights"` // of "read", "write", "atomic", joined by +
	UseOnce bool       `json:"use_once"`
	State   string     `json:"state"`  // "live", "revoking", "dead"
	Grants  int        `json:"grants"` // sockets, or whole peers, that may use it
}

// BarrierInfo counts the operations of one socket towards one address.
type BarrierInfo struct {
	Addr    netip.Addr `json:"addr"`
	Port    uint16     `json:"port"`
	Dest    netip.Addr `json:"dest"`
	Lane    uint8      `json:"lane"`
	Owner   Owner      `json:"owner"`
	Issued  uint64     `json:"last_issued,string"`
	HWM     uint64     `json:"high_water_mark,string"` // all up to here are complete
	Pending uint64     `json:"pending_operations"`
}

// CongestedInfo is a congested port: of this host, or of a peer as far as
// somebody here sends to it.
type CongestedInfo struct {
	Where   string     `json:"where"` // "here", "peer"
	Addr    netip.Addr `json:"addr"`
	Port    uint16     `json:"port"`
	Since   time.Time  `json:"since,omitzero"` // of ports here
	Owner   *Owner     `json:"owner"`          // of ports here
	Unread  uint64     `json:"unread_bytes"`
	Limit   uint64     `json:"limit_bytes"`
	Senders uint64     `json:"waiting_destinations"` // of sockets here that lead there
}

// StallInfo is a connection with something under way or waiting.
type StallInfo struct {
	Local     netip.Addr `json:"local"`
	Remote    netip.Addr `json:"remote"`
	Lane      uint8      `json:"lane"`
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
}

// EventInfo is something that happened: what the daemon's log has, too.
type EventInfo struct {
	Seq   uint64     `json:"seq,string"`
	Time  time.Time  `json:"time"`
	Level string     `json:"level"` // "info", "warn", "error"
	Event string     `json:"event"`
	Local netip.Addr `json:"local,omitzero"`
	Peer  netip.Addr `json:"peer,omitzero"`
	UID   *uint32    `json:"uid"` // of the process it is about, null: none
	PID   int        `json:"pid"` // 0: none
	Error string     `json:"error"`
}

// ErrorInfo is all events of one kind about one peer or user that had an error
// or were more than information.
type ErrorInfo struct {
	Event string     `json:"event"`
	Level string     `json:"level"`
	Peer  netip.Addr `json:"peer,omitzero"`
	UID   *uint32    `json:"uid"`
	Count uint64     `json:"count"`
	First time.Time  `json:"first"`
	Last  time.Time  `json:"last"`
	Error string     `json:"error"` // of the last one
}

// CounterInfo is a counter as rdsctl counters prints it.
type CounterInfo struct {
	Name  string   `json:"name"`
	Value uint64   `json:"value"`
	Rate  *float64 `json:"rate_per_second"` // since the line before, null: there is none
}

// look answers the kinds that list; false: r is of another.
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
