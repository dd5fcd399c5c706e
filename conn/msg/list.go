package msg

import "iter"

// FrameWork is what a message costs besides its payload, in bytes copied.
const FrameWork = 64

// List is an intrusive list of messages.
type List struct {
	Head, Tail *Msg
	N, Bytes   int
	more       int    // datagrams of runs beyond one each
	Ops        uint64 // bytes of the operations that are not posted
	Again      int    // work of those that were posted before, as Conn.Queued counts it
	ports      *Ports // that know of its messages, nil: none do now
	kind       kind   // what they are to ports
	owed       int    // messages that are Owed
}

// Push puts m, which is in no list, at the end of l.
func (l *List) Push(m *Msg) {
	p := &m.Track
	p.List, p.Prev, p.Next = l, l.Tail, nil
	if l.Tail != nil {
		l.Tail.Track.Next = m
	} else {
		l.Head = m
	}
	l.Tail = m
	l.N++
	l.Bytes += len(m.Data)
	if m.Run != 0 {
		l.more += m.Run - 1
	}
	if m.OpNew() {
		l.Ops += m.opBytes()
	}
	if p.Again = p.Posted; p.Again {
		l.Again += len(m.Data) + FrameWork
	}
	if l.ports != nil && m.Internal == 0 {
		l.ports.joins(l.kind, m)
	}
	if m.Owed {
		l.owed++
	}
}

// Insert puts m ahead of behind, which is in l, or last if behind is nil. If l has what waits for
// Ports, behind is for the same port.
func (l *List) Insert(m, behind *Msg) {
	if behind == nil {
		l.Push(m)
		return
	}
	last := l.Tail
	l.Tail = behind.Track.Prev // for a moment the list ends ahead of behind
	l.Push(m)
	m.Track.Next, behind.Track.Prev, l.Tail = behind, m, last
	if p := m.Track.port; p != nil && l.kind == waits {
		p.waiting.unlink(m)
		p.waiting.link(m, behind)
	}
}

// resize has m, a run in l, be n datagrams, in data.
func (l *List) resize(m *Msg, data []byte, n int) {
	bytes, datagrams := len(data)-len(m.Data), max(n, 1)-max(m.Run, 1)
	l.Bytes += bytes
	if m.Track.Again {
		l.Again += bytes
	}
	l.more += datagrams
	if l.kind == refused {
		l.ports.Refused.Bytes += bytes
		l.ports.Refused.Datagrams += datagrams
	}
	m.Data, m.Run = data, n
}

// Wanted is how many messages of l are not Owed.
func (l *List) Wanted() int { return l.N - l.owed }

// Owe makes m, wherever it is, one that is Owed.
func (m *Msg) Owe() {
	if m.Owed {
		return
	}
	m.Owed = true
	if l := m.Track.List; l != nil {
		l.owed++
	}
}

// Datagrams is how many datagrams l has.
func (l *List) Datagrams() int { return l.N + l.more }

// Remove takes m out of l.
func (l *List) Remove(m *Msg) {
	l.Leave(m)
	if p := m.Track.port; p != nil {
		m.Track.port = nil
		if p.InFlight == 0 && p.waiting.head == nil {
			l.ports.Drop(p)
		}
	}
}

// Leave is Remove for an m that is put into a list of the same Ports before anything else is done with them.
func (l *List) Leave(m *Msg) {
	p := &m.Track
	if p.Prev != nil {
		p.Prev.Track.Next = p.Next
	} else {
		l.Head = p.Next
	}
	if p.Next != nil {
		p.Next.Track.Prev = p.Prev
	} else {
		l.Tail = p.Prev
	}
	p.List, p.Prev, p.Next = nil, nil, nil
	l.N--
	l.Bytes -= len(m.Data)
	if m.Run != 0 {
		l.more -= m.Run - 1
	}
	if m.OpNew() {
		l.Ops -= m.opBytes()
	}
	if p.Again {
		l.Again -= len(m.Data) + FrameWork
	}
	if l.ports != nil && m.Internal == 0 {
		l.ports.left(l.kind, m)
	}
	if m.Owed {
		l.owed--
	}
}

// All yields the messages of l. The one that is yielded may leave l.
func (l *List) All() iter.Seq[*Msg] {
	return func(yield func(*Msg) bool) {
		for m := l.Head; m != nil; {
			next := m.Track.Next
			if !yield(m) {
				return
			}
			m = next
		}
	}
}

// Matching yields those of All that are the host's and for which match is true, but for runs of which
// a part is under way.
func (l *List) Matching(match func(*Msg) bool) iter.Seq[*Msg] {
	return func(yield func(*Msg) bool) {
		for m := range l.All() {
			if !m.Track.Own && !m.IsCut() && match(m) && !yield(m) {
				return
			}
		}
	}
}

// Prepend moves all of f to the front of l. If Ports are of one of the two, both have what is in
// flight, or what was refused.
func (l *List) Prepend(f *List) {
	if f.Head == nil {
		return
	}
	for m := f.Head; m != nil; m = m.Track.Next {
		m.Track.List = l
	}
	if l.Head != nil {
		f.Tail.Track.Next, l.Head.Track.Prev = l.Head, f.Tail
	} else {
		l.Tail = f.Tail
	}
	l.Head = f.Head
	l.N += f.N
	l.Bytes += f.Bytes
	l.more += f.more
	l.Ops += f.Ops
	l.Again += f.Again
	l.owed += f.owed
	*f = List{ports: f.ports, kind: f.kind}
}

// fewOldest is how many messages are looked at for the oldest.
const fewOldest = 8

// Oldest returns when the host took in the message of l that has waited for longest,
// as far as the first few tell; 0: none of them is the host's.
func (l *List) Oldest() int64 {
	m := l.Head
	for n := 0; m != nil && m.At == 0 && n < fewOldest; n++ { // those of the connection itself may be ahead
		m = m.Track.Next
	}
	if m == nil {
		return 0
	}
	return m.At
}
