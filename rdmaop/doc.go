// Package rdmaop follows RDMA operations above a queue pair: an initiator's
// operation from its submission to its status ([Op]), the keys that an initiator
// may use ([Grants]), and the peers to which a target has opened a region
// ([Export]).
//
// An operation becomes a chain of unsignaled RDMA work requests, and the
// connection posts the SEND of the operation's message behind them. An operation ends
// in two independent steps:
//
//   - It is locally complete when no work request can touch its local buffers any
//     more. The barrier's high-water mark then rises. That says nothing about
//     success.
//   - It is settled when its status is known. It has one status.
//
// Everything here is a pure state machine with one owner: it has no I/O, clock, lock
// or goroutine, and allocates nothing in steady state.
//
// Not covered by docs/stability.md: any release may change this package.
package rdmaop
