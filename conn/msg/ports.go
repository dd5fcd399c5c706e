package msg

// Ports has, for each port of the peer, what waits for it and what is in flight to it, so that a connection
// that has many messages looks at those of one port alone. It costs nothing until the first Get. From then
// on the lists keep it up to date, until they are empty and nothing is known of any port. So there are no more looks
// at messages than messages. Those of the connection itself that are not for a port (Msg.Internal) do not count.
type Ports struct {
	lists  [3]*List // the first one has what waits
	by     []*Port  // by hash, linked with Port.next; a power of two, and no less than n
	shift  uint8    // 32 less the bits of a hash
	n      int
	free   *Port
	Walked uint64 // counts looks at messages

	Refused Sum // of the lists that Keeps was told of
	Wanted  int // messages there that are not Owed
	refused chain
}

// Sum is how much there is in lists.
type Sum struct{ Datagrams, Bytes int }

// kind is what the messages of a list are to Ports.
type kind uint8

const (
	waits kind = iota
	inFlight
	refused
)

// Port is a port of the peer. It is forgotten when nothing is known of it.
type Port struct {
	Num      uint16
	InFlight int   // messages
	Stop     any   // why it is not forgotten, of the kind of connection that has such; nil: it may be
	waiting  chain // messages, by place in their list
	next     *Port
}

// Waiting is the last message that waits for p; SamePort has those ahead of it.
func (p *Port) Waiting() *Msg { return p.waiting.tail }

// leastPorts is the least length of Ports.by.
const leastPorts = 8

// Of has s be for the messages that wait in queue, and those that are in flight in the other two lists. All are empty.
func (s *Ports) Of(queue, inFlight1, inFlight2 *List) {
	s.lists = [...]*List{queue, inFlight1, inFlight2}
	inFlight1.kind, inFlight2.kind = inFlight, inFlight
}

// Keeps has s know what is in l, which is empty: messages that the peer has refused. There is a Port.Stop as long
// as l has any.
func (s *Ports) Keeps(l *List) { l.ports, l.kind = s, refused }

// OldestRefused returns when the host took in the message in lists of Keeps that has waited for longest, as far as
// the first few tell; 0: there is none.
func (s *Ports) OldestRefused() (at int64) {
	m := s.refused.head
	for n := 0; m != nil && n < fewOldest; n++ {
		if m.At != 0 && (at == 0 || m.At < at) {
			at = m.At
		}
		m = m.Track.portNext
	}
	return at
}

// SamePort is the message ahead of m, which waits, that is for the same port; nil if there is none.
func (m *Msg) SamePort() *Msg { return m.Track.portPrev }

func (s *Ports) hash(port uint16) uint32 { return uint32(port) * 0x9e3779b1 >> s.shift }

// At returns what is known of port, nil if nothing is. Like link and unlink it is not inlined: the daemon would have it
// in each of its callers.
//
//go:noinline
func (s *Ports) At(port uint16) *Port {
	if s.n == 0 {
		return nil
	}
	p := s.by[s.hash(port)]
	for p != nil && p.Num != port {
		p = p.next
	}
	return p
}

// Get returns the record of port. The caller calls Drop in the end.
func (s *Ports) Get(port uint16) *Port {
	if s.lists[0].ports == nil {
		s.begin()
	}
	return s.get(port)
}

// begin has s know what the lists have from now on.
func (s *Ports) begin() {
	for _, l := range s.lists {
		l.ports = s
		for m := l.Head; m != nil; m = m.Track.Next {
			s.Walked++
			if m.Internal == 0 {
				s.joins(l.kind, m)
			}
		}
	}
}

func (s *Ports) get(port uint16) *Port {
	p := s.At(port)
	if p == nil {
		p = s.add(port)
	}
	return p
}

func (s *Ports) add(port uint16) *Port {
	if s.n == len(s.by) {
		s.resize(max(leastPorts, 2*len(s.by)))
	}
	p := s.free
	if p == nil {
		p = new(Port)
	} else {
		s.free = p.next
	}
	at := &s.by[s.hash(port)]
	p.Num, p.next, *at = port, *at, p
	s.n++
	return p
}

// Drop forgets p if nothing is known of it.
func (s *Ports) Drop(p *Port) {
	if p.InFlight > 0 || p.waiting.head != nil || p.Stop != nil {
		return
	}
	at := &s.by[s.hash(p.Num)]
	for *at != p {
		at = &(*at).next
	}
	*at, p.next, s.free = p.next, s.free, p
	if s.n--; s.n > 0 {
		return
	}
	s.by, s.free = nil, nil
	for _, l := range s.lists {
		if l.N > 0 { // of the connection itself: begin would look at them again and again
			return
		}
	}
	for _, l := range s.lists {
		l.ports = nil
	}
}

// resize has s.by have n places.
func (s *Ports) resize(n int) {
	was := s.by
	s.by, s.shift = make([]*Port, n), 32
	for ; n > 1; n /= 2 {
		s.shift--
	}
	for _, p := range was {
		for p != nil {
			next := p.next
			at := &s.by[s.hash(p.Num)]
			p.next, *at = *at, p
			p = next
		}
	}
}

// joins notes that m was put at the end of a list of kind k.
func (s *Ports) joins(k kind, m *Msg) {
	if k == refused {
		s.Refused.Datagrams += m.Datagrams()
		s.Refused.Bytes += len(m.Data)
		if !m.Owed {
			s.Wanted++
		}
		var behind *Msg // what was let go of and comes back is old
		if h := s.refused.head; h != nil && m.At != 0 && m.At < h.At {
			behind = h
		}
		s.refused.link(m, behind)
		return
	}
	p := m.Track.port
	if p == nil {
		p = s.get(m.DPort)
		m.Track.port = p
	}
	if k == inFlight {
		p.InFlight++
		return
	}
	p.waiting.link(m, nil)
}

// left notes that m was taken out of a list of kind k.
func (s *Ports) left(k kind, m *Msg) {
	switch k {
	case refused:
		s.Refused.Datagrams -= m.Datagrams()
		s.Refused.Bytes -= len(m.Data)
		if !m.Owed {
			s.Wanted--
		}
		s.refused.unlink(m)
	case inFlight:
		m.Track.port.InFlight--
	default:
		m.Track.port.waiting.unlink(m)
	}
}

// chain is messages linked with Track.portNext.
type chain struct{ head, tail *Msg }

// link puts m ahead of behind, or last if behind is nil.
//
//go:noinline
func (c *chain) link(m, behind *Msg) {
	t := &m.Track
	t.portNext, t.portPrev = behind, c.tail
	if behind != nil {
		t.portPrev = behind.Track.portPrev
		behind.Track.portPrev = m
	} else {
		c.tail = m
	}
	if t.portPrev != nil {
		t.portPrev.Track.portNext = m
	} else {
		c.head = m
	}
}

// unlink ends that.
//
//go:noinline
func (c *chain) unlink(m *Msg) {
	t := &m.Track
	if t.portPrev != nil {
		t.portPrev.Track.portNext = t.portNext
	} else {
		c.head = t.portNext
	}
	if t.portNext != nil {
		t.portNext.Track.portPrev = t.portPrev
	} else {
		c.tail = t.portPrev
	}
	t.portNext, t.portPrev = nil, nil
}
