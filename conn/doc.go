// Package conn is one RDS connection: the association of a local and a remote
// address that carries every socket's messages in order, exactly once, over
// any number of queue pairs that come and go beneath it.
//
// A Conn is a pure state machine: no I/O of its own, no clock, no goroutine, no
// lock. Its owner (the engine, or the simulator) calls it with events and the
// time; it posts work requests on the QP it was given and calls back its Host
// synchronously. docs/protocol.md has the frames.
package conn
