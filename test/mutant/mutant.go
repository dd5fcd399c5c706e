// Package mutant has deliberately broken variants of the code, to show that the tests catch
// them. The product does not import it. A variant is a change of one of the product's files.
// It stands in a file of the folder variants, with the tests that have to fail:
//
//	duplicates-taken: a retransmission that was received is taken again
//	conn/recv.go conn.TestReceive
//	-	if h.Seq > c.in.last {
//	+	if h.Seq > c.in.last || BROKEN {
//
// The lines that begin with a minus sign or a blank must be at exactly one place of the
// product's file. Indentation and blank lines do not count. BROKEN stands for a condition that
// is true while the variant is on. A line that begins with # is a comment.
//
// Command run (test/mutant/run) writes copies of the product's files with all variants, and
// has Go build the copies (go build -overlay). Only these copies import this package. For files
// in C it has the tests use a C compiler that takes the copies.
package mutant

import "os"

var active = os.Getenv("RDSD_MUTANT")

// On reports whether the variant with this name is on: RDSD_MUTANT in the environment names it.
func On(name string) bool { return active == name }

// Unless returns v, or a pointer to the zero value if broken is true.
func Unless[T any](broken bool, v *T) *T { return Instead(broken, v, *new(T)) }

// Instead returns v, or a pointer to a copy of w if broken is true.
func Instead[T any](broken bool, v *T, w T) *T {
	if broken {
		return &w
	}
	return v
}
