package sim

import (
	"fmt"

	"github.com/rdsd/rdsd/rds"
)

// traceOf returns the traceparent of message id, "" if it has none: one in five has one.
func traceOf(id uint64) string {
	if id%5 != 1 {
		return ""
	}
	return fmt.Sprintf("00-0af7651916cd43dd8448eb211c80319c-%016x-01", id)
}

// traced checks the traceparent with which m was received. A message too short for an id may be
// taken for another one.
func (m *message) traced(r *rds.Received) {
	switch want := traceOf(m.id); {
	case m.n < idLen:
	case r.Traceparent == want:
		if want != "" {
			m.flow.src.w.saw("traceparent")
		}
	case r.Traceparent != "":
		broken("traceparent", "message %d came with %s", m.id, r.Traceparent)
	case !m.untraced && !m.flow.byTCP() && m.n <= rds.MaxMessage-26:
		broken("traceparent", "message %d came without", m.id)
	}
}

// forgetTraces notes that a daemon has taken over at h that knows no traceparents.
func (w *world) forgetTraces(h *host) {
	for _, m := range w.msgs {
		m.untraced = m.untraced || m.flow.src.h == h || w.hostOf(m.flow.dst.Addr()) == h
	}
}
