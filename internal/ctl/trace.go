package ctl

import (
	"net/netip"
	"time"
)

// Limits of a trace.
const (
	DefaultTraceTime = 10 * time.Second
	MaxTraceTime     = time.Hour
	DefaultTraceRate = 1000   // messages a second
	MaxTraceRate     = 10_000 // messages a second
	TraceAnswer      = 4096   // events in one answer
)

// TraceSpec says which messages a trace follows. A field that is zero selects all. Local is
// the socket of this host, whether it sends or receives, and Remote the other end.
type TraceSpec struct {
	Local      netip.Addr    `json:"local,omitzero"`
	LocalPort  uint16        `json:"local_port,omitzero"`
	Remote     netip.Addr    `json:"remote,omitzero"`
	RemotePort uint16        `json:"remote_port,omitzero"`
	Every      uint64        `json:"every,omitzero"`       // only those whose sequence is a multiple of it
	Count      uint64        `json:"count,omitzero"`       // only the first so many
	Duration   time.Duration `json:"duration_ns,omitzero"` // 0 means DefaultTraceTime; MaxTraceTime is the most
	Rate       int           `json:"rate,omitzero"`        // messages a second; 0 means DefaultTraceRate; MaxTraceRate is the most
}

// check sets defaults.
func (s *TraceSpec) check() *Error {
	if s.Duration == 0 {
		s.Duration = DefaultTraceTime
	}
	if s.Rate == 0 {
		s.Rate = DefaultTraceRate
	}
	switch {
	case s.Duration < 0 || s.Duration > MaxTraceTime:
		return errorf(CodeBadRequest, "trace: duration %v is not between 0 and %v", s.Duration, MaxTraceTime)
	case s.Rate < 0 || s.Rate > MaxTraceRate:
		return errorf(CodeBadRequest, "trace: rate %d is not between 1 and %d messages a second", s.Rate, MaxTraceRate)
	}
	s.Local, s.Remote = s.Local.Unmap(), s.Remote.Unmap()
	return nil
}

// TraceEvent is a step in the life of one message. The names of the steps are in
// docs/operations.md. A message has the same lane and sequence at both ends, local and
// remote exchanged.
type TraceEvent struct {
	Time       time.Time  `json:"time"`
	Step       string     `json:"step"`
	Local      netip.Addr `json:"local"`
	LocalPort  uint16     `json:"local_port"`
	Remote     netip.Addr `json:"remote"`
	RemotePort uint16     `json:"remote_port"`
	Lane       uint8      `json:"lane"`
	Path       uint8      `json:"path,omitzero"`
	Seq        uint64     `json:"seq"`          // between sockets of one host a number that the daemon gives it
	Datagrams  uint64     `json:"datagrams"`    // of a run; else 1
	Bytes      uint64     `json:"length_bytes"` // as it travels: those of a run have a length each
	Ops        int        `json:"operations"`
	Outcome    string     `json:"outcome"` // of the steps settled and ended, else ""
}

// TraceState says how far a trace is.
type TraceState struct {
	Messages uint64 `json:"messages"`         // followed so far
	Dropped  uint64 `json:"dropped_events"`   // the reader was too slow
	Skipped  uint64 `json:"skipped_messages"` // beyond the rate
	Full     bool   `json:"full"`             // no more messages are chosen, because of the spec's count
	Over     bool   `json:"over"`             // its time is over; what it had to tell was told
}

// Tracer follows single messages. There is at most one trace for each connection of rdsctl.
type Tracer interface {
	// BeginTrace begins a trace of what who may see. Its error says who has all traces.
	BeginTrace(who Caller, spec TraceSpec) error
	// ReadTrace returns at most TraceAnswer events that were not read before. Its error is
	// ErrNotFound if there is no trace.
	ReadTrace() ([]TraceEvent, TraceState, error)
	// EndTrace ends the trace, if there is one.
	EndTrace()
}

func trace(r *Request, who Caller, b Backend, resp *Response) (err error) {
	switch r.Do {
	case DoBegin:
		spec := TraceSpec{}
		if r.Trace != nil {
			spec = *r.Trace
		}
		if e := spec.check(); e != nil {
			return e
		}
		err = b.BeginTrace(who, spec)
		resp.TraceState = &TraceState{}
	case DoRead:
		var s TraceState
		resp.Trace, s, err = b.ReadTrace()
		resp.TraceState = &s
	case DoEnd:
		b.EndTrace()
		resp.TraceState = &TraceState{Over: true}
	default:
		return errorf(CodeBadRequest, "trace: do %q is none of begin, read, end", r.Do)
	}
	resp.Trace = nonNil(resp.Trace)
	return err
}

// The steps of a request for a trace or capture: Request.Do.
const (
	DoBegin = "begin"
	DoRead  = "read"
	DoEnd   = "end"
)

// MergedMessage is one message in the traces of both ends. Its times are by the clock of the
// first trace; the others are since Submitted, or since the first thing that is known.
type MergedMessage struct {
	Submitted time.Time      `json:"submitted"`
	From      netip.Addr     `json:"from"`
	FromPort  uint16         `json:"from_port"`
	To        netip.Addr     `json:"to"`
	ToPort    uint16         `json:"to_port"`
	Lane      uint8          `json:"lane"`
	Path      uint8          `json:"path,omitzero"`
	Seq       uint64         `json:"seq"`
	Datagrams uint64         `json:"datagrams"`
	Bytes     uint64         `json:"length_bytes"`
	Ops       int            `json:"operations"`
	Posted    *time.Duration `json:"posted_ns"` // null: not known
	Arrived   *time.Duration `json:"arrived_ns"`
	Delivered *time.Duration `json:"delivered_ns"`
	Read      *time.Duration `json:"read_ns"`
	Placed    *time.Duration `json:"placed_ns"`
	Local     *time.Duration `json:"local_ns"`
	Acked     *time.Duration `json:"acked_ns"`
	Settled   *time.Duration `json:"settled_ns"`
	Outcome   string         `json:"outcome"`
	Resent    int            `json:"resent"` // how often it was posted again
}

// ClockOffset is how far the clock of the second trace is ahead of that of the first, as the
// messages that are in both say.
type ClockOffset struct {
	Offset   time.Duration  `json:"offset_ns"`
	Error    *time.Duration `json:"error_ns"` // the most that Offset is wrong; null: it may be less by any amount
	Messages int            `json:"messages"`
	Drifted  bool           `json:"drifted"` // no offset fits all messages: the clocks do not run alike
}
