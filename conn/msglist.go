package conn

// msgList is an intrusive list of messages.
type msgList struct {
	head, tail *Msg
	n, bytes   int
	datagrams  int    // runs have several
	ops        uint64 // bytes of their operations
}

func (l *msgList) push(m *Msg) {
	p := &m.priv
	p.list, p.prev, p.next = l, l.tail, nil
	if l.tail != nil {
		l.tail.priv.next = m
	} else {
		l.head = m
	}
	l.tail = m
	l.count(m, 1)
}

// insert puts m ahead of behind, which is in l, or last if behind is nil.
func (l *msgList) insert(m, behind *Msg) {
	if behind == nil {
		l.push(m)
		return
	}
	p, q := &m.priv, &behind.priv
	p.list, p.prev, p.next = l, q.prev, behind
	if q.prev != nil {
		q.prev.priv.next = m
	} else {
		l.head = m
	}
	q.prev = m
	l.count(m, 1)
}

// count adds m to the sums, or with a sign of -1 takes it out.
func (l *msgList) count(m *Msg, sign int) {
	bytes, datagrams := m.size()
	l.n += sign
	l.bytes += sign * bytes
	l.datagrams += sign * datagrams
	if m.Op != nil {
		l.ops += uint64(sign) * m.opBytes()
	}
}

func (l *msgList) remove(m *Msg) {
	p := &m.priv
	if p.prev != nil {
		p.prev.priv.next = p.next
	} else {
		l.head = p.next
	}
	if p.next != nil {
		p.next.priv.prev = p.prev
	} else {
		l.tail = p.prev
	}
	p.list, p.prev, p.next = nil, nil, nil
	l.count(m, -1)
}

// prepend moves all of f to the front of l.
func (l *msgList) prepend(f *msgList) {
	if f.head == nil {
		return
	}
	for m := f.head; m != nil; m = m.priv.next {
		m.priv.list = l
	}
	if l.head != nil {
		f.tail.priv.next, l.head.priv.prev = l.head, f.tail
	} else {
		l.tail = f.tail
	}
	l.head = f.head
	l.n += f.n
	l.bytes += f.bytes
	l.datagrams += f.datagrams
	l.ops += f.ops
	*f = msgList{}
}
