// Package tidy holds the tests that keep the source tree as docs/architecture.md describes
// it: who imports whom, which packages are pure, where unsafe and cgo may be used, that
// everything public is documented. A failure names the file, the rule and what to do.
package tidy
