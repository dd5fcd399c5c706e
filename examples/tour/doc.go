// Package tour has the tests of docs/tour-developers.md: they run each of its snippets.
package tour
