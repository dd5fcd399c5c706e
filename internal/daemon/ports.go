package daemon

// portTable maps the ports of one address to sockets: two levels, so that an
// address with few sockets costs little and a lookup two loads.
type portTable struct {
	dir [256]*[256]*socket
	n   int
}

func (t *portTable) get(port uint16) *socket {
	if p := t.dir[port>>8]; p != nil {
		return p[port&255]
	}
	return nil
}

func (t *portTable) set(port uint16, s *socket) {
	p := t.dir[port>>8]
	if p == nil {
		p = new([256]*socket)
		t.dir[port>>8] = p
	}
	switch {
	case p[port&255] == nil && s != nil:
		t.n++
	case p[port&255] != nil && s == nil:
		t.n--
	}
	p[port&255] = s
}
