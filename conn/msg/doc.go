// Package msg has the record of a message on its way to a peer, and what connections of every kind
// do with it: lists, runs cut into single datagrams, and messages of the connection's own.
//
// A [Msg] is one record from the host's Send to its MsgDone. The host and the connection each have a
// part of it.
//
// Not covered by docs/stability.md: any release may change this package.
package msg
