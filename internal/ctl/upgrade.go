package ctl

import (
	"path/filepath"
	"time"
)

// Upgrade says how often daemons have taken over from each other until this one, and what
// became of the last attempt. A successor keeps the number of the attempt that made it.
type Upgrade struct {
	// Generation is 1 for a daemon that took over from nobody. A successor's is one higher
	// than its predecessor's.
	Generation uint32 `json:"generation"`
	PID        int    `json:"pid"`
	Version    string `json:"version"`
	// Running says that an attempt is in progress. Its number is Attempt.
	Running bool   `json:"running"`
	Attempt uint64 `json:"attempt"` // number of the last one that has begun; 0: none
	Program string `json:"program"` // that it starts; "": the one at the path of the daemon's own program
	// What follows is of the last attempt that has ended.
	At    time.Time     `json:"at,omitzero"`  // when it ended
	Took  time.Duration `json:"took_ns"`      // from its begin
	Pause time.Duration `json:"pause_ns"`     // how much of Took no daemon took messages in
	From  string        `json:"from_version"` // the predecessor's version; "": it failed, or there was none
	// State is the version of the format in which the predecessor passed its state on
	// (internal/handover); 0: the attempt failed, or there was none.
	State uint16 `json:"state_version"`
	Error string `json:"error"` // why it failed; "": it did not
}

// DoLook reports an upgrade, and DoBegin begins one.
const DoLook = "look"

// Upgrader replaces the running daemon by a new process that takes over from it.
type Upgrader interface {
	// BeginUpgrade begins an upgrade and does not wait for its end. binary is the absolute
	// path of the program to start; "" is the path of the daemon's own program. Its error is
	// EBUSY if an upgrade is in progress, and ENOTSUP if this daemon cannot start another.
	BeginUpgrade(binary string) (Upgrade, error)
	// Upgrade does not ask the engine, which may stand still.
	Upgrade() Upgrade
}

func upgrade(r *Request, admin bool, b Backend) (*Upgrade, error) {
	if !admin {
		return nil, errorf(CodePermission, "upgrade: only root and the daemon's own user may do that")
	}
	var u Upgrade
	var err error
	switch r.Do {
	case DoBegin:
		if r.Program != "" && !filepath.IsAbs(r.Program) {
			return nil, errorf(CodeBadRequest, "upgrade: %q is not an absolute path", r.Program)
		}
		u, err = b.BeginUpgrade(r.Program)
	case DoLook:
		u = b.Upgrade()
	default:
		return nil, errorf(CodeBadRequest, "upgrade: do %q is none of begin, look", r.Do)
	}
	return &u, err
}

// shownTo leaves out what a caller that is no administrator may not see: the error of an
// attempt can name a process of another user.
func (u *Upgrade) shownTo(who Caller) {
	if !who.Admin && u.Error != "" {
		u.Error = "only root and the daemon's own user may see why"
	}
}
