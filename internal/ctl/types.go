// Package ctl is the language of rdsctl and the daemon: JSON requests and responses with
// one versioned schema, and the service that answers them. internal/ipc carries the bytes.
//
// The schema only grows: fields are added within rdsd.v2, never renamed, retyped or
// removed. Units are in the names (_bytes, _ns). Durations are in nanoseconds, times are
// RFC 3339. Counts and sequence numbers are numbers; sequence numbers exceed 2^53, so a
// reader needs integers of 64 bits. Instance ids are hexadecimal strings.
package ctl

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"
)

// Schema names the format of requests and responses.
const Schema = "rdsd.v2"

// Kind is the kind of a request and of its response.
type Kind string

const (
	KindStatus    Kind = "status"
	KindDevices   Kind = "devices"
	KindSockets   Kind = "sockets"
	KindProcesses Kind = "processes"
	KindPeers     Kind = "peers"
	KindPing      Kind = "ping"
	KindPeerReset Kind = "peer-reset"
	KindConfig    Kind = "config"
	KindReload    Kind = "config-reload"
	KindDiff      Kind = "config-diff"

	KindQueues    Kind = "queues"
	KindBacklog   Kind = "backlog"
	KindKeys      Kind = "keys"
	KindBarriers  Kind = "barriers"
	KindCongested Kind = "congested"
	KindStalls    Kind = "stalls"
	KindEvents    Kind = "events"
	KindErrors    Kind = "errors"
	KindStacks    Kind = "stacks"
	KindDrain     Kind = "drain"
	KindTrace     Kind = "trace"
	KindCapture   Kind = "capture"
	KindUpgrade   Kind = "upgrade"

	// KindPingReport is what rdsctl prints for a series of pings. The daemon does not
	// answer it.
	KindPingReport Kind = "ping-report"
	// KindStress and those below are what the verbs of rdsctl print whose names they are. The
	// daemon does not answer them either.
	KindStress   Kind = "stress"
	KindBench    Kind = "bench"
	KindCounters Kind = "counters"
	KindCheck    Kind = "check"
	KindDoctor   Kind = "doctor"
	KindMerged   Kind = "merged"
)

// Kinds lists all kinds of requests.
func Kinds() []Kind {
	return []Kind{KindStatus, KindDevices, KindSockets, KindProcesses, KindPeers, KindPing, KindPeerReset, KindConfig, KindReload, KindDiff,
		KindQueues, KindBacklog, KindKeys, KindBarriers, KindCongested, KindStalls, KindEvents, KindErrors, KindStacks, KindDrain, KindTrace, KindCapture, KindUpgrade}
}

// Request is a request of rdsctl.
type Request struct {
	Schema string `json:"schema"`
	Kind   Kind   `json:"kind"`
	// Addr is the peer of ping and peer-reset.
	Addr netip.Addr `json:"addr,omitzero"`
	// Lane and Path are those of peer-reset. If one is absent, all lanes, or all paths, are reset. Path is also that of ping.
	Lane *uint8 `json:"lane,omitempty"`
	Path *uint8 `json:"path,omitempty"`
	// Timeout is for ping. 0 means DefaultPingTimeout; MaxPingTimeout is the most.
	Timeout time.Duration `json:"timeout_ns,omitzero"`
	// Size is for ping: its payload in bytes, at most MaxPingSize.
	Size int `json:"size,omitzero"`
	// Limit bounds the items of queues, backlog, keys, barriers, congested, events and
	// errors. 0 means DefaultLimit; MaxLimit is the most.
	Limit int `json:"limit,omitzero"`
	// Queue is for queues: "send", "retrans", "recv", or "" for all.
	Queue string `json:"queue,omitzero"`
	// After is for events: the sequence of the last event that the caller has.
	After uint64 `json:"after,omitzero"`
	// Do is for drain: "begin", "resume", "look"; for trace and capture: "begin", "read", "end";
	// for upgrade: "begin", "look".
	Do string `json:"do,omitzero"`
	// Program is for "begin" of an upgrade: the absolute path of the program to start. If it
	// is absent, that is the path of the daemon's own program.
	Program string `json:"program,omitzero"`
	// Trace and Capture are for "begin": what to follow, and what to record.
	Trace   *TraceSpec   `json:"trace,omitempty"`
	Capture *CaptureSpec `json:"capture,omitempty"`
}

// Response is the response to a Request. It has the field of its kind, or Error.
type Response struct {
	Schema  string       `json:"schema"`
	Kind    Kind         `json:"kind"`
	Status  *Status      `json:"status,omitempty"`
	Devices *Devices     `json:"devices,omitempty"`
	Sockets []SocketInfo `json:"sockets,omitzero"`
	// OtherSockets counts the sockets of other users, which the caller may not see.
	OtherSockets uint64        `json:"other_sockets,omitzero"`
	Processes    []ProcessInfo `json:"processes,omitzero"`
	Peers        []PeerInfo    `json:"peers,omitzero"`
	Ping         *Ping         `json:"ping,omitempty"`
	PeerReset    *PeerReset    `json:"peer_reset,omitempty"`
	PingReport   *PingReport   `json:"ping_report,omitempty"`
	Config       []ConfigValue `json:"config,omitzero"`
	// Reload is what config-reload did, or what config-diff found to do.
	Reload *Reload `json:"reload,omitempty"`
	// The lists of look.go. Truncated says that the request's limit cut the list.
	Queues    []MessageInfo   `json:"queues,omitzero"`
	Backlog   []BacklogInfo   `json:"backlog,omitzero"`
	Keys      []KeyInfo       `json:"keys,omitzero"`
	Barriers  []BarrierInfo   `json:"barriers,omitzero"`
	Congested []CongestedInfo `json:"congested,omitzero"`
	Stalls    []StallInfo     `json:"stalls,omitzero"`
	Events    []EventInfo     `json:"events,omitzero"`
	Errors    []ErrorInfo     `json:"errors,omitzero"`
	Truncated bool            `json:"truncated,omitzero"`
	// Offline says that sockets and peers come from the daemon's mapping, as of AsOf.
	// Unlisted is how many more there are, without a row or with a row that was being
	// written.
	Offline  bool      `json:"offline,omitzero"`
	AsOf     time.Time `json:"as_of,omitzero"`
	Unlisted uint64    `json:"unlisted,omitzero"`
	Stacks   string    `json:"stacks,omitzero"`
	Drain    *Drain    `json:"drain,omitempty"`
	// Trace has the events since the last answer.
	Trace      []TraceEvent `json:"trace,omitzero"`
	TraceState *TraceState  `json:"trace_state,omitempty"`
	// Capture has the next bytes of a file in pcapng.
	Capture      []byte        `json:"capture,omitempty"`
	CaptureState *CaptureState `json:"capture_state,omitempty"`
	Upgrade      *Upgrade      `json:"upgrade,omitempty"`
	// Merged and Clocks are what rdsctl trace merge prints.
	Merged   []MergedMessage `json:"merged,omitzero"`
	Clocks   *ClockOffset    `json:"clocks,omitempty"`
	Counters []CounterInfo   `json:"counters,omitzero"` // set by rdsctl
	Error    *Error          `json:"error,omitempty"`
}

// ID is a 64-bit identity. In JSON it is 16 hexadecimal digits.
type ID uint64

func (id ID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// MarshalText implements encoding.TextMarshaler.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *ID) UnmarshalText(b []byte) error {
	n, err := strconv.ParseUint(string(b), 16, 64)
	*id = ID(n)
	return err
}

// Status is the state of the daemon. With Offline it comes only from the statistics
// mapping, and fields that the mapping does not have are empty.
type Status struct {
	Offline  bool          `json:"offline"`
	Version  string        `json:"version"`
	PID      int           `json:"pid"`
	Started  time.Time     `json:"started"`
	Uptime   time.Duration `json:"uptime_ns"`
	Instance ID            `json:"instance"`

	Socket  string           `json:"socket"`
	Stats   string           `json:"stats"`
	Upgrade Upgrade          `json:"upgrade"`
	Listen  []netip.AddrPort `json:"listen"`
	Metrics string           `json:"metrics"` // "" = off

	CRC        string      `json:"crc"` // "auto", "on", "off"
	TLS        TLS         `json:"tls"`
	Transports []Choice    `json:"transports"`
	Congestion Congestion  `json:"congestion_control"`
	Engine     EngineInfo  `json:"engine"`
	Counts     Counts      `json:"counts"`
	Memory     Memory      `json:"memory"`
	Sandbox    string      `json:"sandbox"` // which rights the daemon gave up, and which it kept and why
	Users      []User      `json:"users"`   // by uid, then by label; a caller that is no administrator sees only itself
	Warnings   []string    `json:"warnings"`
	Counters   CounterList `json:"counters"`

	// Of all sockets since the daemon started.
	MessageTime   Times `json:"message_time"`
	OperationTime Times `json:"operation_time"`
}

// TLS says how connections to peers are secured.
type TLS struct {
	Mode    string    `json:"mode"`             // "auto", "on", "off"
	Subject string    `json:"subject"`          // of this host's certificate, "" = none
	Expires time.Time `json:"expires,omitzero"` // when the first certificate of its chain expires

	Secured uint64 `json:"handshakes"`         // that succeeded, either way
	Failed  uint64 `json:"handshakes_failed"`  // incoming: mostly because of a certificate
	Plain   uint64 `json:"handshakes_plain"`   // incoming: without TLS although it is required, or with TLS although it is off
	Limited uint64 `json:"handshakes_limited"` // incoming: too many
}

// Choice is the daemon's decision about one transport, and why.
type Choice struct {
	Name string `json:"name"` // "soft", "ibv"
	Used bool   `json:"used"`
	Why  string `json:"why"`
}

// Congestion is the TCP congestion control of the connections to peers.
type Congestion struct {
	Wanted string `json:"wanted"`
	Used   string `json:"used"`
	Why    string `json:"why"` // why Used differs from Wanted, "" if it does not
}

// EngineInfo is the state of the engine's loop.
type EngineInfo struct {
	State    string        `json:"state"` // "starting", "running", "sleeping", "stopped"
	Late     time.Duration `json:"late_ns"`
	Turns    uint64        `json:"turns"`
	TurnMean time.Duration `json:"turn_mean_ns"`
	TurnP50  time.Duration `json:"turn_p50_ns"`
	TurnP99  time.Duration `json:"turn_p99_ns"`
	TurnMax  time.Duration `json:"turn_max_ns"`
	Stalls   uint64        `json:"stalls"`
	Wait     WaitInfo      `json:"wait"`
}

// WaitInfo is how the engine waits for work, and what it has measured.
type WaitInfo struct {
	Strategy   string        `json:"strategy"` // wait of the configuration: "auto", "block", "yield", "spin"
	Way        string        `json:"way"`      // in use: "block", "yield", "spin"
	Look       time.Duration `json:"look_ns"`  // mean of the waits that yield; 0: not measured
	Block      time.Duration `json:"block_ns"` // mean of the waits that block at once; 0: not measured
	SlowYields uint64        `json:"slow_yields"`
}

// String says which way is in use, and why.
func (w *WaitInfo) String() string {
	switch {
	case w.Strategy != "auto":
		return w.Way + ", as configured"
	case w.Look == 0 || w.Block == 0:
		return w.Way + "; the other way was not tried yet"
	}
	return fmt.Sprintf("%s; waits that yield take %v, that block %v; %d slow yields", w.Way, w.Look.Round(100), w.Block.Round(100), w.SlowYields)
}

// Counts is how much of each kind is open.
type Counts struct {
	Clients        uint64 `json:"clients"`
	Sockets        uint64 `json:"sockets"`
	Peers          uint64 `json:"peers"`
	PeersUp        uint64 `json:"peers_up"`
	CongestedPorts uint64 `json:"congested_ports"`
	Regions        uint64 `json:"regions"`
	OpsOutstanding uint64 `json:"ops_outstanding"`
}

// Memory is the memory that the daemon has for its clients and itself.
type Memory struct {
	Registered uint64 `json:"registered_bytes"` // clients' buffers for RDMA
	Limit      uint64 `json:"registered_limit_bytes"`
	Shared     uint64 `json:"shared_bytes"` // clients' rings, tables and arenas
	Pool       uint64 `json:"pool_bytes"`   // the daemon's own buffers
	Held       uint64 `json:"held_bytes"`   // arrived payload that waits for its reader
	HeldLimit  uint64 `json:"held_limit_bytes"`
}

// User is what all processes of one user have and may have.
type User struct {
	UID             *uint32 `json:"uid"` // null for an account of quota.accounts, which has a label instead
	Account         string  `json:"account,omitempty"`
	Clients         Usage   `json:"clients"`
	Sockets         Usage   `json:"sockets"`
	Destinations    Usage   `json:"destinations"`
	Waiting         uint64  `json:"waiting_destinations"` // that the quota makes wait
	Operations      Usage   `json:"operations"`
	Grants          Usage   `json:"grants"`
	RegisteredBytes Usage   `json:"registered_bytes"`
	QueuedBytes     Usage   `json:"queued_bytes"` // rings, tables and arenas
	HeldBytes       uint64  `json:"held_bytes"`   // arrived, and does not fit into the process's memory; see Memory
	// Unreceived is the descriptors that were sent to processes, which these have not
	// received. Its quota is the user's share of what all users have.
	Unreceived Usage `json:"unreceived_descriptors"`
}

// Usage is how much a user has of one resource.
type Usage struct {
	Used  uint64  `json:"used"`
	Quota *uint64 `json:"quota"` // null for none
}

// SocketInfo is one bound socket.
type SocketInfo struct {
	Addr         netip.Addr `json:"addr"`
	Port         uint16     `json:"port"`
	Incarnation  uint32     `json:"incarnation"`
	Owner        Owner      `json:"owner"`
	SendMessages uint64     `json:"send_queued_messages"`
	SendBytes    uint64     `json:"send_queued_bytes"`
	RecvBytes    uint64     `json:"recv_bytes"`
	RecvLimit    uint64     `json:"recv_limit_bytes"`
	Congested    bool       `json:"congested"`
	Ops          uint64     `json:"ops_outstanding"`
	Unrelieved   uint64     `json:"unrelieved_destinations"` // congested ones whose relief the process waits for; not known offline

	// OldestUnacked is the age of the oldest message that is not acked, sent or not; 0 for none.
	OldestUnacked time.Duration `json:"oldest_unacked_ns"`
	// What the socket has sent and received since it was bound.
	Sent          uint64 `json:"sent_messages"`
	SentBytes     uint64 `json:"sent_bytes"`
	Received      uint64 `json:"received_messages"`
	ReceivedBytes uint64 `json:"received_bytes"`
	Served
	MessageTime   Times `json:"message_time"`
	OperationTime Times `json:"operation_time"`
}

// PeerInfo is one connection: a local address, a peer's address, a lane and a path.
type PeerInfo struct {
	Local     netip.Addr `json:"local"`
	Remote    netip.Addr `json:"remote"`
	Lane      uint8      `json:"lane"`
	Path      uint8      `json:"path,omitzero"`
	State     string     `json:"state"` // "down", "connecting", "up", "error"
	Since     time.Time  `json:"since,omitzero"`
	Instance  ID         `json:"instance"` // of the peer, 0 = not known yet
	Kernel    bool       `json:"kernel"`   // the last connection was to a Linux kernel's RDS
	Transport string     `json:"transport"`
	Why       string     `json:"why"`                // why this transport is used, and not an RDMA device
	TCPLanes  int        `json:"tcp_lanes,omitzero"` // with transport "tcp": connections that are up
	TCPConns  []TCPConn  `json:"tcp_connections,omitempty"`
	CRC       bool       `json:"crc"`
	TLS       string     `json:"tls"` // cipher suite, "" if the connection is plain or not up

	// MaxSegment is the most bytes of a TCP segment of the connection, if larger packets do not pass on the way to
	// the peer; else 0.
	MaxSegment int `json:"max_segment,omitzero"`

	NextTxSeq uint64 `json:"next_tx_seq"`
	AckedSeq  uint64 `json:"acked_seq"`
	RxSeq     uint64 `json:"rx_seq"`

	QueuedMessages  uint64 `json:"queued_messages"` // not sent yet
	QueuedBytes     uint64 `json:"queued_bytes"`
	UnackedMessages uint64 `json:"unacked_messages"` // sent, not acked yet
	UnackedBytes    uint64 `json:"unacked_bytes"`
	SendCredits     int    `json:"send_credits"`
	RecvCredits     int    `json:"recv_credits"`

	Resets        uint64 `json:"resets"`
	Retransmitted uint64 `json:"retransmitted_messages"`
	DroppedOps    uint64 `json:"dropped_ops"`
	UnknownOps    uint64 `json:"unknown_ops"`
	Lost          uint64 `json:"lost_messages"`
	// "" = none, or the connection has been up for ten minutes since.
	LastError   string    `json:"last_error"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
	Wanted      bool      `json:"wanted"` // messages wait, or a socket that sends there was notified that it is not reached

	// RTT is the smoothed round-trip time between the daemons; 0 if none was measured. RTTAt is
	// when it was measured last. A look at an idle peer asks it for the next look's.
	RTT     time.Duration `json:"rtt_ns"`
	RTTLast time.Duration `json:"rtt_last_ns"`
	RTTMin  time.Duration `json:"rtt_min_ns"`
	RTTAt   time.Time     `json:"rtt_at,omitzero"`
	// OldestUnacked is the age of the oldest message that is not acked, sent or not; 0 for none.
	OldestUnacked time.Duration `json:"oldest_unacked_ns"`
	// Totals of all connections to the peer in this lane. Messages sent again count again.
	Sent          uint64 `json:"sent_messages"`
	SentBytes     uint64 `json:"sent_bytes"`
	Received      uint64 `json:"received_messages"`
	ReceivedBytes uint64 `json:"received_bytes"`
	WrittenBytes  uint64 `json:"rdma_written_bytes"` // by our RDMA writes
	ReadBytes     uint64 `json:"rdma_read_bytes"`    // by our RDMA reads
	Served
	MessageTime   Times `json:"message_time"`
	OperationTime Times `json:"operation_time"`

	// Limits of peers.*_per_s. They apply to the peer's host, over all its lanes.
	Limitable string        `json:"limitable"` // what they apply to: "all", "sends" (not RDMA), "none", "" = not known yet
	Held      bool          `json:"held"`      // the host is over a limit now, so nothing is read from it
	HeldBy    string        `json:"held_by"`   // the setting whose limit it was over last, "" if never
	Holds     uint64        `json:"holds"`     // how often
	HeldTime  time.Duration `json:"held_ns"`   // how long in total
}

// PeerReset is the answer to peer-reset.
type PeerReset struct {
	Addr  netip.Addr `json:"addr"`
	Reset int        `json:"reset"` // connections that were broken; each reconnects
}
