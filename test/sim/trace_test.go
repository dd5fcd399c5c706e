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

// traced checks the traceparent with which x was received. A message too short for an id may be
// taken for another one.
func (x *message) traced(m *rds.Received) {
	switch want := traceOf(x.id); {
	case x.n < idLen:
	case m.Traceparent == want:
		if want != "" {
			x.flow.src.w.saw("traceparent")
		}
	case m.Traceparent != "":
		broken("traceparent", "message %d came with %s", x.id, m.Traceparent)
	case !x.untraced && !x.flow.byTCP() && x.n <= rds.MaxMessage-26:
		broken("traceparent", "message %d came without", x.id)
	}
}

// forgetTraces notes that a daemon has taken over at h that knows no traceparents.
func (w *world) forgetTraces(h *host) {
	for _, m := range w.msgs {
		m.untraced = m.untraced || m.flow.src.h == h || w.hostOf(m.flow.dst.Addr()) == h
	}
}
