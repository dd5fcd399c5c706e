package e2e

import (
	"fmt"
	"os"
)

// runRole is the main function of a client process.
func runRole(role string) int {
	fmt.Fprintf(os.Stderr, "no role %q\n", role)
	return 2
}
