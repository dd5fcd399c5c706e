package soft

// A consumer that limits what one peer may send tells a queue pair to stop
// reading its connection: TCP's window does the rest, on whatever the peer sends,
// RDMA that completes nothing here included.

// Hold has nothing read from the connection until it is called with false. What
// was read is handled, a thread ends the segment that it reads, sending goes on,
// and a connection that the peer breaks off is noticed; its orderly end is not.
// Owner only.
func (q *qp) Hold(on bool) {
	if q.held = on; on {
		q.enough()
	}
	q.listen()
}

// Meter has f told of every read from the connection, how many bytes it brought:
// frames with their payload, with TLS its records. f may call Hold. nil: nobody is
// told. Owner only.
func (q *qp) Meter(f func(n int)) { q.meter = f }

func (q *qp) metered(n int) {
	if q.meter != nil {
		q.meter(n)
	}
}
