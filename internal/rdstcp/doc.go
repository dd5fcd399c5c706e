// Package rdstcp makes, accepts and drives the TCP connections to hosts that speak RDS/TCP,
// such as Linux kernels. Package conn/tcp decides what travels on them.
//
// A Net belongs to its owner's thread, which calls Poll. Calls on that thread do not block
// or allocate. Goroutines listen and connect. They leave new connections for the next Poll.
package rdstcp
