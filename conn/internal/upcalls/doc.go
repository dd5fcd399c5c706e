// Package upcalls checks which methods of a connection its host calls from inside which up-calls.
//
// conn.Host says what may be called. In a build with the tag upcalls each method of a conn.Conn or
// tcp.Conn that does more than read first tells its [Calls] of which kind it is, and each up-call
// enters and leaves.
package upcalls
