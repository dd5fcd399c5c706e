package engine

// No process decides about a planned restart. An error in what one process has is a
// handover.Fault of it, in the engine that is handed over and in the one that takes over: the
// process ends by Expel, and the hand-over begins anew. An error of a part that is shared, and what
// the engine that takes over lacks (addresses, memory, a device's resources), is none.

// part says whose part is written from here on, nil: a part that is shared.
func (h *handing) part(c *Client) {
	if c == nil {
		h.w.State().Shared()
		return
	}
	h.w.State().Of(h.name(c))
}

// fail keeps the first error of each part.
func (h *handing) fail(err error) { h.w.State().Refuse(err) }

// part says whose part is read and checked from here on, nil: a part that is shared.
func (t *taking) part(c *Client) {
	if c == nil {
		t.r.Shared()
		return
	}
	t.r.Of(t.names[c])
}
