package engine

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
