package cmsg

// Set is a set of control message types.
type Set uint32

// Of returns the set of types.
func Of(types ...Type) (s Set) {
	for _, t := range types {
		s |= 1 << t
	}
	return s
}

// Has reports whether t is in the set.
func (m Set) Has(t Type) bool { return t >= 0 && t < 32 && m&(1<<t) != 0 }

// The kernel sorts what a message may carry into two groups that exclude each
// other: operations (1), and what describes the message itself (2).
const (
	atomics Set = 1<<TypeAtomicFAdd | 1<<TypeAtomicCSwp | 1<<TypeMaskedAtomicFAdd | 1<<TypeMaskedAtomicCSwp
	group1  Set = 1<<TypeRDMAArgs | atomics
	group2  Set = 1<<TypeRDMADest | 1<<TypeRDMAMap | 1<<TypeZcopyCookie
)

// Send is the control data of one sendmsg. Present says which of the other fields
// are set.
type Send struct {
	Present     Set
	Args        RDMAArgs   // TypeRDMAArgs
	Dest        uint64     // TypeRDMADest: a cookie of the sending socket
	Map         GetMRArgs  // TypeRDMAMap
	Atomic      AtomicArgs // one of the atomic types
	ZcopyCookie uint32     // TypeZcopyCookie
}

// AtomicType returns the type of the atomic operation in s; 0 if it has none.
func (s *Send) AtomicType() Type {
	for t := TypeAtomicFAdd; t <= TypeMaskedAtomicCSwp; t++ {
		if s.Present.Has(t) {
			return t
		}
	}
	return 0
}

// Parse decodes a control buffer. It ignores messages of other levels, and does not
// check values: see RDMAArgs.Check. EINVAL:
//
//   - a malformed chain, a message that is too short, or one that cannot be sent;
//   - an operation together with Dest, Map or ZcopyCookie, or Dest together with
//     Map;
//   - a message that comes twice, except ZcopyCookie, of which the last one
//     counts.
//
// After an error the content of s is undefined.
func (s *Send) Parse(control []byte) error {
	*s = Send{}
	for {
		m, rest, ok, err := Next(control)
		if err != nil || !ok {
			return err
		}
		control = rest
		if m.Level != SOLRDS {
			continue
		}
		if !(group1 | group2).Has(m.Type) {
			return invalid("control message type %d cannot be sent", m.Type)
		}
		if err := s.decode(m); err != nil {
			return err
		}
		if err := s.add(m.Type); err != nil {
			return err
		}
	}
}

func (s *Send) decode(m Message) error {
	switch m.Type {
	case TypeRDMAArgs:
		return s.Args.Parse(m.Data)
	case TypeRDMAMap:
		return s.Map.Parse(m.Data)
	case TypeRDMADest:
		if err := need("RDMA_DEST", m.Data, 8); err != nil {
			return err
		}
		s.Dest = order.Uint64(m.Data)
	case TypeZcopyCookie:
		if err := need("ZCOPY_COOKIE", m.Data, 4); err != nil {
			return err
		}
		s.ZcopyCookie = order.Uint32(m.Data)
	default:
		return s.Atomic.Parse(m.Data)
	}
	return nil
}

// add notes that t is present and checks the grouping rules.
func (s *Send) add(t Type) error {
	was := s.Present
	s.Present |= 1 << t
	switch {
	case was.Has(t) && t != TypeZcopyCookie:
		return invalid("control message type %d twice", t)
	case atomics.Has(t) && was&atomics != 0:
		return invalid("two atomic operations")
	case s.Present&group1 != 0 && s.Present&group2 != 0:
		return invalid("an operation together with RDMA_DEST, RDMA_MAP or ZCOPY_COOKIE")
	case s.Present.Has(TypeRDMADest) && s.Present.Has(TypeRDMAMap):
		return invalid("RDMA_DEST together with RDMA_MAP")
	}
	return nil
}

// Append appends s as a control buffer, in the order of the types. EINVAL: Present
// has a combination that Parse refuses.
func (s *Send) Append(b []byte) ([]byte, error) {
	var check Send
	start := len(b)
	for t := TypeRDMAArgs; t < 32; t++ {
		if !s.Present.Has(t) {
			continue
		}
		if !(group1 | group2).Has(t) {
			return b[:start], invalid("control message type %d cannot be sent", t)
		}
		if err := check.add(t); err != nil {
			return b[:start], err
		}
		b = s.appendOne(b, t)
	}
	return b, nil
}

func (s *Send) appendOne(b []byte, t Type) []byte {
	switch t {
	case TypeRDMAArgs:
		return s.Args.Append(appendHeader(b, SOLRDS, t, RDMAArgsSize))
	case TypeRDMADest:
		return order.AppendUint64(appendHeader(b, SOLRDS, t, 8), s.Dest)
	case TypeRDMAMap:
		return s.Map.Append(appendHeader(b, SOLRDS, t, GetMRArgsSize))
	case TypeZcopyCookie:
		return pad(order.AppendUint32(appendHeader(b, SOLRDS, t, 4), s.ZcopyCookie), 4)
	}
	return s.Atomic.Append(appendHeader(b, SOLRDS, t, AtomicArgsSize))
}
