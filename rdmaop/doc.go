// Package rdmaop is RDMA above a queue pair: the operation that rides ahead of
// a message and its life (Op), which keys an initiator may use (Grants), and
// to whom a target has opened a region (Export).
//
// An operation becomes a chain of unsignaled RDMA work requests followed by
// the SEND of its message, which its connection adds. Two things are told
// apart throughout:
//
//   - Locally complete: no work request can touch the local buffers any more.
//     This raises the barrier's high-water mark and says nothing of success.
//   - Settled: the operation's one status is known.
//
// Everything here is a pure state machine owned by one goroutine: no I/O,
// clock, lock or goroutine, and no allocation in steady state.
package rdmaop
