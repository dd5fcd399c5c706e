package soft

// servedDepth is how many READs and atomics of the peer may wait. Linux siw
// rounds the depth it was granted up to a power of two, as the ring is, and uses
// all of that.
func (q *qp) servedDepth() uint64 {
	s := &q.serve
	if q.known || s.limit == 0 {
		return s.limit
	}
	return uint64(len(s.r))
}
