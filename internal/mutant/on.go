//go:build mutant

package mutant

import (
	"fmt"
	"os"
	"slices"
	"sync"
)

// active is asked for at the first On. It panics for what is no variant: a
// check of nothing checks nothing.
var active = sync.OnceValue(func() Name {
	n := Name(os.Getenv("RDSD_MUTANT"))
	if n != "" && !slices.Contains(Names(), n) {
		panic(fmt.Sprintf("RDSD_MUTANT: %q is none of %q", n, Names()))
	}
	return n
})

// On reports whether variant n is to be run. Safe for any goroutine.
func On(n Name) bool { return active() == n }
