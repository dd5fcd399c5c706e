package main

import "fmt"

// manualVerb writes the manual.
const manualVerb = "__manual"

func (a *app) manual(args []string) int {
	fmt.Fprintln(a.stderr, "rdsctl: no manual")
	return exitFailed
}
