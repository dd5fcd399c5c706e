package engine

// No process decides about a planned restart. An error in what one process has is a
// handover.Fault of it, in the engine that is handed over and in the one that takes over: the
// process ends by Expel, and the hand-over begins anew. An error of a part that is shared, and what
// the engine that takes over lacks (addresses, memory, a device's resources), is none.

// fail keeps the first error.
func (h *handing) fail(err error) {
	if h.err == nil && err != nil {
		h.err, h.errOf = err, h.of
	}
}

// part says whose part is read and checked from here on, nil: a part that is shared.
func (t *taking) part(c *Client) {
	if c == nil {
		t.r.Shared()
		return
	}
	t.r.Of(t.names[c])
}
