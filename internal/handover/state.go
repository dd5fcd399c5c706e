package handover

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrFormat is what every error of a State that is read matches, but for those that Refuse was given.
var ErrFormat = errors.New("hand-over state")

// State is a state that is written, or one that is read. Its methods go in both directions: each is
// given the place of a value, and writes the value or sets it. So one function says what a type
// hands over, in which order and in which versions.
//
// What is written is the daemon's own, so a value that the format cannot hold is a bug and panics.
// Of what is read the first error stays: from then on every value is 0 and every list is empty,
// so a caller may ask for Err once, at the end.
type State struct {
	b       []byte // the whole state, or what was written of it
	reads   bool
	version uint16
	open    []section
	of      uint32 // Of, else NoFile
	faults  Faults
	err     error

	at, end int // of the section that is being read
}

type section struct {
	tag   Tag
	outer int // end of the one around it; of one that is written: where its body begins
}

// Write returns a State that is written in a version from Oldest to Newest.
func Write(version uint16) *State {
	if version < Oldest || version > Newest {
		panic(fmt.Sprintf("handover: write version %d", version))
	}
	s := &State{version: version, of: NoFile, b: append(make([]byte, 0, 128), magic...)}
	s.b = binary.LittleEndian.AppendUint16(s.b, version)
	s.b = binary.LittleEndian.AppendUint16(s.b, 0)
	return s
}

// Read returns a State that is read from b, which must not change any more.
func Read(b []byte) (*State, error) {
	if len(b) < headLen || string(b[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: does not begin with %q", ErrFormat, magic)
	}
	s := &State{b: b[:len(b):len(b)], reads: true, end: len(b), at: len(magic), of: NoFile}
	var zero uint16
	s.U16(&s.version)
	if s.U16(&zero); zero != 0 {
		s.Fail("byte %d is not 0", headLen-2)
	}
	if s.version < Oldest || s.version > Newest {
		s.Fail("version %d, this daemon reads %d to %d", s.version, Oldest, Newest)
	}
	return s, s.err
}

// Encode returns what both writes, in a version from Oldest to Newest.
func Encode(version uint16, both func(*State)) ([]byte, error) {
	if version < Oldest || version > Newest {
		return nil, fmt.Errorf("hand over in version %d: there are %d to %d", version, Oldest, Newest)
	}
	s := Write(version)
	if both(s); s.err != nil {
		return nil, s.err
	}
	return s.Bytes(), nil
}

// Adopt has both read state, all of it.
func Adopt(state []byte, both func(*State)) error {
	s, err := Read(state)
	if err != nil {
		return err
	}
	both(s)
	return s.Close()
}

// Version is the version of the state.
func (s *State) Version() uint16 { return s.version }

// Reads reports whether the state is read. Otherwise it is written.
func (s *State) Reads() bool { return s.reads }

// Err returns the first error.
func (s *State) Err() error { return s.err }

// Fail makes s fail, if it has not: what was read is not acceptable. It does nothing to a State
// that is written.
func (s *State) Fail(format string, args ...any) {
	if s.err != nil || !s.reads {
		return
	}
	where := fmt.Sprintf("byte %d", s.at)
	if n := len(s.open); n > 0 {
		where = fmt.Sprintf("section %d, byte %d", s.open[n-1].tag, s.at)
	}
	s.err = fmt.Errorf("%w: %s: %s", ErrFormat, where, fmt.Sprintf(format, args...))
	if s.of != NoFile {
		s.err = &Fault{s.of, s.err}
	}
}

// Refuse makes s fail with err, unless that is nil: what is written cannot be handed over, or what
// was read is not acceptable. If what is written is one session's alone, err is a Fault of it, one at
// most, until Faulty.
func (s *State) Refuse(err error) {
	switch {
	case err == nil:
	case s.reads:
		s.Fail("%v", err)
	case s.of == NoFile:
		s.err = cmp.Or(s.err, err)
	case !slices.ContainsFunc(s.faults, func(f *Fault) bool { return f.Session == s.of }):
		s.faults = append(s.faults, &Fault{s.of, err})
	}
}

// Of says that what follows is one session's alone: the first error is a Fault of it.
func (s *State) Of(session uint32) {
	s.of = session
}

// Shared says that what follows is not one session's alone.
func (s *State) Shared() { s.of = NoFile }

// Alone has section t, which is one session's alone, go over with both. A Fault in one that is read
// does not make s fail: s goes on behind the section, until Faulty. Before version 3 there is no such
// section.
func (s *State) Alone(t Tag, session uint32, both func()) {
	framed := s.version >= 3 && s.err == nil
	if framed {
		s.Begin(t)
	}
	if s.err != nil {
		return
	}
	depth, end := len(s.open), s.end
	s.Of(session)
	both()
	s.Of(session)
	if framed {
		s.End()
	}
	s.Shared()
	if f, is := s.err.(*Fault); is && framed {
		s.faults = append(s.faults, f)
		s.err, s.at, s.end, s.open = nil, end, s.open[depth-1].outer, s.open[:depth-1]
	}
}

// Faulty makes s fail if there are faults that have not, and reports whether s has failed.
func (s *State) Faulty() bool {
	if s.err == nil && len(s.faults) > 0 {
		s.err = s.faults
	}
	return s.err != nil
}

// Begin begins the next section, which is t.
func (s *State) Begin(t Tag) {
	if !s.reads {
		s.b = binary.LittleEndian.AppendUint32(s.b, uint32(t))
		s.b = binary.LittleEndian.AppendUint32(s.b, 0) // its length, see End
		s.open = append(s.open, section{t, len(s.b)})
		return
	}
	var got, zero uint16
	var n uint32
	s.U16(&got)
	s.U16(&zero)
	s.U32(&n)
	switch {
	case s.err != nil:
	case Tag(got) != t:
		s.Fail("section %d, not %d", got, t)
	case zero != 0:
		s.Fail("the head of section %d is malformed", t)
	case uint64(n) > uint64(s.end-s.at):
		s.Fail("section %d has %d bytes, %d are left", t, n, s.end-s.at)
	default:
		s.open = append(s.open, section{t, s.end})
		s.end = s.at + int(n)
	}
}

// End ends the section that was begun last. All of it was read.
func (s *State) End() {
	if s.err != nil && s.reads {
		return
	}
	if s.reads && s.at != s.end {
		s.Fail("%d bytes are too many", s.end-s.at)
		return
	}
	last := s.open[len(s.open)-1]
	s.open = s.open[:len(s.open)-1]
	if s.reads {
		s.end = last.outer
	} else {
		binary.LittleEndian.PutUint32(s.b[last.outer-4:], size(len(s.b)-last.outer))
	}
}

// Grow makes room for n bytes more, of a state that is written.
func (s *State) Grow(n int) {
	if !s.reads {
		s.b = slices.Grow(s.b, n)
	}
}

// Bytes returns what was written. All sections have ended.
func (s *State) Bytes() []byte {
	if s.reads || len(s.open) > 0 {
		panic("handover: a section has not ended")
	}
	return s.b
}

// Close returns the first error of a State that is read; bytes behind the last section are one.
func (s *State) Close() error {
	if s.err == nil && s.at != len(s.b) {
		s.Fail("%d bytes are too many", len(s.b)-s.at)
	}
	return s.err
}

// take returns the next n bytes, nil if there are not so many.
func (s *State) take(n int) []byte {
	if s.err == nil && n > s.end-s.at {
		s.Fail("%d bytes are missing", n-(s.end-s.at))
	}
	if s.err != nil {
		return nil
	}
	b := s.b[s.at : s.at+n : s.at+n]
	s.at += n
	return b
}

func size(n int) uint32 {
	if n < 0 || n > math.MaxUint32 {
		panic(fmt.Sprintf("handover: a length of %d", n))
	}
	return uint32(n)
}
