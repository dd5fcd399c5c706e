package main

import (
	"context"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
)

// allWell is what every view says if nothing is wrong.
const allWell = "all is well"

// facts asks for what ctl.Judge needs beside s. What the daemon does not answer is left out; peers are then taken from its
// mapping.
func (a *app) facts(ctx context.Context, o *options, s *ctl.Status) *ctl.Facts {
	f := &ctl.Facts{Now: time.Now(), Status: s}
	for _, k := range []ctl.Kind{ctl.KindPeers, ctl.KindCongested, ctl.KindBacklog, ctl.KindErrors} {
		_, r, err := a.once(ctx, o, ctl.Request{Kind: k})
		switch {
		case err != nil && k == ctl.KindPeers:
			f.Peers = a.factsOffline(s.Stats, s).Peers
		case err == nil && k == ctl.KindPeers:
			f.Peers = r.Peers
		case err == nil && k == ctl.KindCongested:
			f.Congested = r.Congested
		case err == nil && k == ctl.KindBacklog:
			f.Backlog = r.Backlog
		case err == nil:
			f.Errors = r.Errors
		}
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
