package engine

// No process decides about a planned restart. An error in what one process has is a
// handover.Fault of it, in the engine that is handed over and in the one that takes over: the
// process ends by Expel, and the hand-over begins anew. An error of a part that is shared, and what
// the engine that takes over lacks (addresses, memory, a device's resources), is none.

// part says whose part goes over from here on, nil: a part that is shared.
func (x *crossing) part(c *Client) {
	if c == nil {
		x.s.Shared()
		return
	}
	x.s.Of(c.session)
}
