package conn

// msgList is an intrusive list of messages.
type msgList struct {
	head, tail *Msg
	n, bytes   int
	more       int    // datagrams of runs beyond one each
	ops        uint64 // bytes of the operations that are not posted
	again      int    // work of those that were posted before, as Conn.Queued counts it
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
	l.n++
	l.bytes += len(m.Data)
	if m.Run != 0 {
		l.more += m.Run - 1
	}
	if m.opNew() {
		l.ops += m.opBytes()
	}
	if p.again = p.posted; p.again {
		l.again += len(m.Data) + frameWork
	}
}

// insert puts m ahead of behind, which is in l, or last if behind is nil.
func (l *msgList) insert(m, behind *Msg) {
	if behind == nil {
		l.push(m)
		return
	}
	last := l.tail
	l.tail = behind.priv.prev // for a moment the list ends ahead of behind
	l.push(m)
	m.priv.next, behind.priv.prev, l.tail = behind, m, last
}

// datagrams is how many datagrams l has.
func (l *msgList) datagrams() int { return l.n + l.more }

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
	l.n--
	l.bytes -= len(m.Data)
	if m.Run != 0 {
		l.more -= m.Run - 1
	}
	if m.opNew() {
		l.ops -= m.opBytes()
	}
	if p.again {
		l.again -= len(m.Data) + frameWork
	}
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
	l.more += f.more
	l.ops += f.ops
	l.again += f.again
	*f = msgList{}
}
