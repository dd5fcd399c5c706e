//go:build mutant

package mutant

import (
	"fmt"
	"os"
	"slices"
	"sync"
)

// active is read at the first On. It panics if RDSD_MUTANT names no variant: the check
// would check nothing.
var active = sync.OnceValue(func() Name {
	n := Name(os.Getenv("RDSD_MUTANT"))
	if n != "" && !slices.Contains(Names(), n) {
		panic(fmt.Sprintf("RDSD_MUTANT: %q is none of %q", n, Names()))
	}
	return n
})

// On reports whether variant n is on. Any goroutine may call it.
func On(n Name) bool { return active() == n }
