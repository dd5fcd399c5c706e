// Package conn carries the datagrams and RDMA operations of all sockets between
// two hosts over one connection, in order and exactly once, however often the
// queue pair beneath it breaks.
//
// A [Conn] is one end of such a connection. It is a pure state machine: it has no clock,
// goroutine, lock or I/O of its own. Its owner, the engine or a test, calls it
// with events and the time. A Conn posts work requests to the queue pair that
// its [Host] made, and calls the Host before its own methods return.
//
// The example shows two Conns, their Hosts and the loop that drives them.
// docs/protocol.md describes the frames.
//
// Not covered by docs/stability.md: any release may change this package.
package conn
