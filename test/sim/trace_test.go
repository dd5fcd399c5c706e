package sim

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/rdmaop"
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

// trace gets the events that the engine reports to operators.
func (h *host) trace(about engine.Place, what string, err error) {
	w, remote := h.w, about.Remote
	h.at("report")
	text := fmt.Sprintf("%v %v", remote, err)
	w.logText(h, what, 0, 0, 0, text)
	if remote == kwKernel {
		w.kernel.saw[what]++
		return
	}
	switch {
	case what == "up":
		h.met[remote] = w.hostOf(remote).life
		h.ups[remote]++
	case what == "forgotten": // the forgotten peer takes it for a restart
		h.crashAt = w.now()
		h.forgot++
		w.saw("forgotten")
		for _, f := range w.flowsV {
			if f.src.h == h && f.src.open && f.dst.Addr() == remote && f.delivered > 0 && f.src.c.roomy() {
				broken("forgotten", "host %d forgot %v, where %v sends to %v", h.n, remote, f.src.ap, f.dst)
			}
			if f.src.h.addr == remote && f.dst.Addr() == h.addr {
				f.heard = false // the sender's daemon has met nobody there when it meets this one anew
			}
		}
		for _, r := range w.regions {
			r.forget(h.addr)
			r.forget(remote)
		}
	case what == "down":
		w.breaks++
		if strings.Contains(text, "status 10") && w.opt.revokeTimeout >= 1e9 {
			broken("one bad key", "an operation broke the connection to %s", text)
		}
	case what == "grant refused" && w.opt.scarce() && errors.Is(err, rdmaop.ErrTooManyGrants):
		w.saw("a table was full")
	case what == "operation state", what == "grant refused", what == "revoke", what == "revoked":
		broken("engine", "%s: %s", what, text)
	}
	if err != nil && strings.Contains(text, "broke the protocol") {
		broken("protocol", "%s: %s", what, text)
	}
}
