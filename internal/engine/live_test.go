package engine

import "testing"

// TestApply: what a reload changes holds at once, and peers are asked about again.
func TestApply(t *testing.T) {
	e := newWorld(t, 1, Config{}).es[0]
	l := e.Live()
	l.HardCap, l.MaxSockets, l.Silence, l.Rates = 1<<20, 7, 5*ms, Rates{Messages: 3000, Bytes: 1 << 20}
	e.Apply(l)
	if got := e.Live(); got != l {
		t.Errorf("holds %+v, want %+v", got, l)
	}
	if r := e.throttle.rates; !e.throttle.on || r[rateControl].limit != 0 || r[rateMessages].limit != 3000 || r[rateBytes].limit != 1<<20 {
		t.Errorf("limits of peers: %+v", r)
	}
}
