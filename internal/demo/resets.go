package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
)

// resetter breaks the connection at random moments while a copy runs.
type resetter struct {
	d    *demo
	want int
	hit  int   // resets that broke a connection
	err  error // of rdsctl
}

// run resets until want resets have hit or ctx ends. The moments are random;
// that they fall into a copy of unknown speed is seen to by short pauses.
func (r *resetter) run(ctx context.Context) {
	for r.hit < r.want {
		pause := time.NewTimer(5*time.Millisecond + rand.N(25*time.Millisecond))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
		host, peer := r.d.hosts[rand.IntN(2)], ""
		for _, h := range r.d.hosts {
			if h != host {
				peer = h.addr
			}
		}
		answer, err := r.d.ctl(ctx, host, "peer", "reset", peer)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.err = err
			return
		case answer.PeerReset != nil && answer.PeerReset.Reset > 0:
			r.hit++
		}
	}
}

// ctl asks a daemon through rdsctl.
func (d *demo) ctl(ctx context.Context, h *host, words ...string) (*ctl.Response, error) {
	args := append([]string{"--socket", h.socket, "-o", "json"}, words...)
	out, err := d.procs.run(ctx, "rdsctl", nil, d.program("rdsctl"), args...)
	if err != nil {
		return nil, err
	}
	var answer ctl.Response
	if err := json.Unmarshal(out, &answer); err != nil {
		return nil, fmt.Errorf("rdsctl %v: %w", words, err)
	}
	if answer.Schema != ctl.Schema {
		return nil, fmt.Errorf("rdsctl %v: schema %q, this demo knows %q", words, answer.Schema, ctl.Schema)
	}
	return &answer, nil
}
