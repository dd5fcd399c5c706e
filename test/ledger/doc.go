// Package ledger runs campaigns against rdsd from outside. A campaign has three daemons, a dozen
// application processes that log what they do and what they are notified of, and every fault
// that can happen to them. Afterwards a judge accounts for every message and operation, from the
// applications' logs alone.
//
// Package plan draws a campaign from its seed. Package worker is an application, package book is
// its log. Package judge finds broken promises. This package runs the campaign and checks what
// the daemons leave behind.
//
// docs/testing.md, The ledger, says how to use it.
package ledger
