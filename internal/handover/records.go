package handover

// Records are the records of one kind in a state, by their numbers. T is the record, and P its pointer.
type Records[T any, P Record[T]] struct {
	All  []*T
	last *T // that Ref has written last, because the next reference is often to the same
	at   uint32
}

// Record is a record that states name by its number: it has InState in it.
type Record[T any] interface {
	*T
	place() *uint32
}

// InState is part of a record: its number in the state that is being written, or in one
// before it.
type InState struct{ n uint32 }

func (i *InState) place() *uint32 { return &i.n }

// NoNumber is the number of no record.
const NoNumber = ^uint32(0)

// Has reports whether x, not nil, has a number.
func (r *Records[T, P]) Has(x *T) bool {
	i := *P(x).place()
	return uint64(i) < uint64(len(r.All)) && r.All[i] == x
}

// Number returns the number of x, which gets the next one if it has none.
func (r *Records[T, P]) Number(x *T) uint32 {
	if x == nil {
		return NoNumber
	}
	if !r.Has(x) {
		*P(x).place() = uint32(len(r.All))
		r.All = append(r.All, x)
	}
	return *P(x).place()
}

// Mark gives element i of All, which was put there, its number.
func (r *Records[T, P]) Mark(i int) { *P(r.All[i]).place() = uint32(i) }

// Ref has a reference to a record go over. what says what it refers to, in errors.
func (r *Records[T, P]) Ref(s *State, x **T, what string) {
	if s.reads {
		*x = r.read(s, what, false)
		return
	}
	if r.last != *x || *x == nil {
		r.last, r.at = *x, r.Number(*x)
	}
	n := r.at
	s.U32(&n)
}

// RefOrNil is Ref of a reference that may be nil.
func (r *Records[T, P]) RefOrNil(s *State, x **T, what string) {
	if s.reads {
		*x = r.read(s, what, true)
		return
	}
	n := r.Number(*x)
	s.U32(&n)
}

// read returns the record of the number that follows, nil after an error.
func (r *Records[T, P]) read(s *State, what string, orNil bool) *T {
	n := s.u32()
	if s.err != nil || orNil && n == NoNumber {
		return nil
	}
	if uint64(n) >= uint64(len(r.All)) {
		s.Fail("%s %d of %d", what, n, len(r.All))
		return nil
	}
	return r.All[n]
}
