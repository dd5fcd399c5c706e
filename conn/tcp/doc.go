// Package tcp carries the datagrams of all sockets between this host and a Linux host by RDS/TCP, in
// order and exactly once as far as that protocol can.
//
// A [Conn] is one end of the connections to such a host. Like a Conn of package conn it is a state
// machine without clock, goroutine, lock or I/O: its owner brings events and the time. The streams
// come in as values.
//
// Not covered by docs/stability.md: any release may change this package.
package tcp
