package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

const (
	// maxParts bounds the parts of a striped disk.
	maxParts = 16

	// minUnit and maxUnit bound the bytes of a part in one stripe.
	minUnit     = store.MinBlock
	maxUnit     = 64 << 20
	defaultUnit = store.DefaultBlock
)

// unitFits reports whether a part may have n bytes of a stripe.
func unitFits(n int) bool { return n >= minUnit && n <= maxUnit && n&(n-1) == 0 }

// parseUnit parses the size that -stripe gives: bytes, or KiB and MiB with K and M.
func parseUnit(s string) (int, error) {
	number, shift := strings.ToUpper(s), 0
	switch {
	case strings.HasSuffix(number, "K"):
		number, shift = number[:len(number)-1], 10
	case strings.HasSuffix(number, "M"):
		number, shift = number[:len(number)-1], 20
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > maxUnit>>shift || !unitFits(n<<shift) {
		return 0, &store.UsageError{Text: fmt.Sprintf("-stripe %s: want a power of two from 4K to 64M", s)}
	}
	return n << shift, nil
}

// geometry says which bytes of a volume are in which part. The first unit bytes are in the
// first part, the next ones in the next part, and so on by turns.
type geometry struct {
	unit  uint64
	parts uint64
}

// oneUnit is the unit of a volume with one part.
const oneUnit = 1 << 62

// place returns the part that has the byte at offset off of the volume, the byte's offset in
// the part, and how many bytes from there on are in the same part without a gap.
func (g geometry) place(off uint64) (part int, at, left uint64) {
	u, in := off/g.unit, off%g.unit
	return int(u % g.parts), u/g.parts*g.unit + in, g.unit - in
}

// before returns how many of the first n bytes of the volume are in the part.
func (g geometry) before(part int, n uint64) uint64 {
	u, in := n/g.unit, n%g.unit
	whole := u / g.parts * g.unit
	switch turn := int(u % g.parts); {
	case turn > part:
		return whole + g.unit
	case turn == part:
		return whole + in
	}
	return whole
}

// pieces bounds the pieces of a request for n bytes, if a piece has block bytes.
func (g geometry) pieces(n, block uint64) int {
	if g.parts == 1 {
		return int((n + block - 1) / block)
	}
	return int((n/g.unit + 2) * ((g.unit + block - 1) / block))
}
