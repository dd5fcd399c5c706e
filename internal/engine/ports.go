package engine

// portTable maps the ports of one address to sockets. It has two levels, so that an address
// with few sockets needs little memory and a lookup is two loads.
type portTable struct {
	dir [256]*portPage
	n   int
}

type portPage struct {
	socks [256]*socket
	n     int
}

func (t *portTable) get(port uint16) *socket {
	if p := t.dir[port>>8]; p != nil {
		return p.socks[port&255]
	}
	return nil
}

func (t *portTable) set(port uint16, s *socket) {
	p := t.dir[port>>8]
	if p == nil {
		p = new(portPage)
		t.dir[port>>8] = p
	}
	at := &p.socks[port&255]
	switch {
	case *at == nil && s != nil:
		t.n++
		p.n++
	case *at != nil && s == nil:
		t.n--
		p.n--
	}
	*at = s
}

// nextFree is the lowest port from from on that is not bound; false: there is
// none. Pages that are full take one step.
func (t *portTable) nextFree(from uint16) (uint16, bool) {
	for p := uint32(from); p <= 0xffff; {
		page := t.dir[p>>8]
		switch {
		case page == nil || page.socks[p&255] == nil:
			return uint16(p), true
		case page.n == len(page.socks):
			p = (p | 255) + 1
		default:
			p++
		}
	}
	return 0, false
}
