// Package ports maps the ports of one address to what is bound to them.
package ports

// Pages is how many pages a table has, and pageLen how many ports each of them.
const (
	Pages   = 256
	pageLen = 1 << 16 / Pages
)

// Table maps ports. It has two levels, so that an address with few ports in use needs little memory
// and a lookup is two loads. The zero value has no port.
type Table[T any] struct {
	dir [Pages]*page[T]
	n   int
}

type page[T any] struct {
	of [pageLen]*T
	n  int
}

// Len returns how many ports are bound.
func (t *Table[T]) Len() int { return t.n }

// Get returns what is bound to port, nil if nothing is.
func (t *Table[T]) Get(port uint16) *T {
	if p := t.dir[port>>8]; p != nil {
		return p.of[port&255]
	}
	return nil
}

// Set binds x to port, nil: nothing.
func (t *Table[T]) Set(port uint16, x *T) {
	p := t.dir[port>>8]
	if p == nil {
		p = new(page[T])
		t.dir[port>>8] = p
	}
	at := &p.of[port&255]
	switch {
	case *at == nil && x != nil:
		t.n++
		p.n++
	case *at != nil && x == nil:
		t.n--
		p.n--
	}
	*at = x
}

// NextFree returns the lowest port from from on that is not bound; false: there is
// none. Pages that are full take one step.
func (t *Table[T]) NextFree(from uint16) (uint16, bool) {
	for p := uint32(from); p <= 0xffff; {
		page := t.dir[p>>8]
		switch {
		case page == nil || page.of[p&255] == nil:
			return uint16(p), true
		case page.n == pageLen:
			p = (p | 255) + 1
		default:
			p++
		}
	}
	return 0, false
}

// Each calls f for what is bound to the ports of so many pages from page first on.
func (t *Table[T]) Each(first, pages int, f func(*T)) {
	for _, p := range t.dir[first : first+pages] {
		if p == nil {
			continue
		}
		for _, x := range p.of {
			if x != nil {
				f(x)
			}
		}
	}
}
