package engine

import (
	"cmp"

	"github.com/rdsd/rdsd/internal/handover"
)

// No process decides about a planned restart. An error in what one process has is a
// handover.Fault of it, in the engine that is handed over and in the one that takes over: the
// process ends by Expel, and the hand-over begins anew. An error of a part that is shared, and what
// the engine that takes over lacks (addresses, memory, a device's resources), is none.

// fail keeps the first error of each part.
func (h *handing) fail(err error) {
	switch {
	case err == nil:
	case h.of == nil:
		h.err = cmp.Or(h.err, err)
	case h.fault[h.of] == nil:
		if h.fault == nil {
			h.fault = map[*Client]error{}
		}
		h.fault[h.of] = err
	}
}

// faults are those of processes, nil: there are none.
func (h *handing) faults() error {
	var all handover.Faults
	for _, c := range h.procs.all {
		if err := h.fault[c]; err != nil {
			all = append(all, &handover.Fault{Session: h.name(c), Err: err})
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// part says whose part is read and checked from here on, nil: a part that is shared.
func (t *taking) part(c *Client) {
	if c == nil {
		t.r.Shared()
		return
	}
	t.r.Of(t.names[c])
}
