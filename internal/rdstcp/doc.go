// Package rdstcp makes, accepts and drives the TCP connections of RDS/TCP. What
// travels on them is package conn's.
//
// A Net belongs to its owner's thread, which calls Poll; nothing there blocks or
// allocates. Listening and connecting are done by goroutines that leave what they
// made for the next Poll.
package rdstcp
