package main

import (
	"context"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
)

// allWell is what every view says if nothing is wrong.
const allWell = "all is well"

// facts asks for what ctl.Judge needs beside s. What the daemon does not answer is left out; peers are then taken from its
// mapping. An engine that does not turn, or has not answered about peers, is asked nothing more, so that there is one wait at most.
func (a *app) facts(ctx context.Context, o *options, s *ctl.Status) *ctl.Facts {
	f := &ctl.Facts{Now: time.Now(), Status: s}
	ask := func(k ctl.Kind) (*ctl.Response, error) {
		_, r, err := a.once(ctx, o, ctl.Request{Kind: k})
		return r, err
	}
	turns := s.Engine.Late < ctl.StallAfter
	if turns {
		r, err := ask(ctl.KindPeers)
		if turns = err == nil; turns {
			f.Peers = r.Peers
		}
	}
	if !turns {
		f.Peers = a.factsOffline(s.Stats, s).Peers
	}
	if turns {
		if r, err := ask(ctl.KindCongested); err == nil {
			f.Congested = r.Congested
		}
		if r, err := ask(ctl.KindBacklog); err == nil {
			f.Backlog = r.Backlog
		}
	}
	if r, err := ask(ctl.KindErrors); err == nil {
		f.Errors = r.Errors
	}
	return f
}

// factsOffline is facts from the mapping at path alone.
func (a *app) factsOffline(path string, s *ctl.Status) *ctl.Facts {
	f := &ctl.Facts{Now: time.Now(), Status: s}
	if r, _, err := a.offlineList(path, ctl.OfflinePeers); err == nil {
		f.Peers = r.Peers
	}
	return f
}

// remedy says who has to act, what helps, and the command that tells more.
func remedy(f *ctl.Finding) string {
	s := f.Who
	if f.Fix != "" {
		s += ": " + f.Fix
	}
	if f.Do != "" {
		s += "; " + f.Do + " tells more"
	}
	return s
}
