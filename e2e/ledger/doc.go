// Package ledger holds campaigns against rdsd from outside: three daemons, a
// dozen application processes that write down what they do and are told, and
// everything that can happen to them. Afterwards a judge accounts for every
// message and operation from the applications' logs alone.
//
//	plan    draws a campaign from its seed
//	worker  is an application
//	book    is its log
//	judge   finds what cannot be
//
// This package runs a campaign and looks for what the daemons have left.
// docs/testing.md, The ledger, says how to use it.
package ledger
