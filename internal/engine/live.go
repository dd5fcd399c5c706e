package engine

import "github.com/rdsd/rdsd/internal/config"

// Live is the part of Config that can change while the engine runs.
type Live struct {
	HardCap    int
	MaxSockets int
	Policy     *config.Policy // of processes that attach and sockets that are bound from now on
	Rates      Rates
	Silence    int64 // ns; also of the present connections by queue pairs
}

// Live returns what holds. The engine's goroutine only.
func (e *Engine) Live() Live {
	return Live{e.cfg.HardCap, e.cfg.MaxSockets, e.cfg.Policy, e.cfg.Rates, e.cfg.Silence}
}

// Apply has l hold from now on. It also asks Config.Allowed again of every peer, and
// breaks off who is not allowed any more. The engine's goroutine only.
func (e *Engine) Apply(l Live) {
	e.cfg.HardCap, e.cfg.MaxSockets, e.cfg.Policy = l.HardCap, l.MaxSockets, l.Policy
	if l.Rates != e.cfg.Rates {
		e.cfg.Rates = l.Rates
		e.SetRates(l.Rates)
	}
	e.SetSilence(l.Silence)
	for _, p := range e.peers.all {
		e.peers.allowedAnew(p)
	}
}

// SetSilence says how long in ns a peer that owes an answer may send nothing
// before its connection is broken off. It holds for the present connections by
// queue pairs, too, from now on; RDS/TCP has a limit of its own.
func (e *Engine) SetSilence(ns int64) {
	if ns == e.cfg.Silence {
		return
	}
	e.cfg.Silence = ns
	for _, p := range e.peers.all {
		p.c.SetSilence(e.now, ns)
	}
}
