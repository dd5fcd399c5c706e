package ctl

import "net/netip"

// Drain is how far a drain is: of one peer, or of the daemon.
type Drain struct {
	Addr    netip.Addr `json:"addr,omitzero"` // absent: the daemon
	Drained bool       `json:"drained"`       // nothing new is let in
	Done    bool       `json:"done"`          // and nothing is left

	Messages uint64 `json:"messages"` // with the daemon, or sent and not acked
	Bytes    uint64 `json:"bytes"`
	Ops      uint64 `json:"operations"`   // not settled
	Unread   uint64 `json:"unread_bytes"` // arrived, not read: no drain waits for it
}

// Drains, of a Request.
const (
	DrainBegin  = "begin"
	DrainResume = "resume"
	DrainLook   = "look"
)

// Operator changes what the daemon does.
type Operator interface {
	// Drain has senders wait, those to addr or (the zero Addr) all, and with
	// all refuses new sockets, until DrainResume. Errors: ErrNotFound.
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
