package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
)

// noting is direct, and notes what is asked.
type noting struct {
	direct
	kinds *[]ctl.Kind
}

func (n noting) Call(ctx context.Context, req []byte) ([]byte, error) {
	var r ctl.Request
	if err := json.Unmarshal(req, &r); err != nil {
		return nil, err
	}
	*n.kinds = append(*n.kinds, r.Kind)
	return n.direct.Call(ctx, req)
}

// TestFactsWait: an engine that does not answer is waited for once at most.
func TestFactsWait(t *testing.T) {
	for _, tc := range []struct {
		late  time.Duration
		err   error
		asked []ctl.Kind
	}{
		{0, nil, []ctl.Kind{ctl.KindPeers, ctl.KindCongested, ctl.KindBacklog, ctl.KindErrors}},
		{0, errors.New("no answer"), []ctl.Kind{ctl.KindPeers, ctl.KindErrors}},
		{time.Minute, nil, []ctl.Kind{ctl.KindErrors}},
	} {
		var asked []ctl.Kind
		a := &app{paths: []string{"/a.sock"}, dial: func(context.Context, string) (caller, error) {
			return noting{direct{&backend{err: tc.err}, true}, &asked}, nil
		}}
		a.facts(t.Context(), &options{timeout: time.Second}, &ctl.Status{Engine: ctl.EngineInfo{Late: tc.late}})
		if !slices.Equal(asked, tc.asked) {
			t.Errorf("late by %v, %v: asked %q, want %q", tc.late, tc.err, asked, tc.asked)
		}
	}
}
