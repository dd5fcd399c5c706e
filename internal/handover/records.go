package handover

// Records are the records of one kind in a state, by their numbers. T is the record, and P its pointer.
type Records[T any, P Record[T]] struct{ All []*T }

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

// Ref has a reference to a record go over. what says what it refers to, in errors.
func (r *Records[T, P]) Ref(s *State, x **T, what string) {
	n := NoNumber
	if !s.reads {
		n = r.Number(*x)
	}
	if s.U32(&n); s.reads {
		*x = r.at(s, n, what)
	}
}

// RefOrNil is Ref of a reference that may be nil.
func (r *Records[T, P]) RefOrNil(s *State, x **T, what string) {
	n := NoNumber
	if !s.reads {
		n = r.Number(*x)
	}
	if s.U32(&n); s.reads {
		if *x = nil; n != NoNumber {
			*x = r.at(s, n, what)
		}
	}
}

// at returns record n, nil after an error.
func (r *Records[T, P]) at(s *State, n uint32, what string) *T {
	if s.err == nil && uint64(n) >= uint64(len(r.All)) {
		s.Fail("%s %d of %d", what, n, len(r.All))
	}
	if s.err != nil {
		return nil
	}
	return r.All[n]
}
