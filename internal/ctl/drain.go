package ctl

import "net/netip"

// Drain is the progress of a drain, of one peer or of the daemon.
type Drain struct {
	Addr    netip.Addr `json:"addr,omitzero"` // absent for the daemon
	Drained bool       `json:"drained"`       // nothing new is accepted
	Done    bool       `json:"done"`          // drained, and nothing is left

	Messages uint64 `json:"messages"` // with the daemon, or sent and not acked
	Bytes    uint64 `json:"bytes"`
	Ops      uint64 `json:"operations"`   // not settled
	Unread   uint64 `json:"unread_bytes"` // arrived and not read; a drain does not wait for it
}

// What a drain request may do.
const (
	DrainBegin  = "begin"
	DrainResume = "resume"
	DrainLook   = "look"
)

// Operator carries out what an administrator asks for.
type Operator interface {
	// Drain begins, ends or reports a drain, as do says. During a drain of addr, senders to
	// addr wait. During a drain of all peers (the zero Addr), all senders wait and new
	// sockets are refused. Its error is ErrNotFound.
	Drain(addr netip.Addr, do string) (Drain, error)
}

func drain(r *Request, admin bool, b Backend) (*Drain, error) {
	if !admin {
		return nil, errorf(CodePermission, "drain: only root and the daemon's own user may do that")
	}
	switch r.Do {
	case DrainBegin, DrainResume, DrainLook:
	default:
		return nil, errorf(CodeBadRequest, "drain: %q is none of begin, resume, look", r.Do)
	}
	d, err := b.Drain(r.Addr, r.Do)
	d.Addr = r.Addr
	return &d, err
}
