package handover

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"reflect"
	"time"
)

// Count has the length of a list go over, and returns it: n if the list is written. One that is read
// has at most most elements, each of least bytes or more. So what a caller makes for the list is
// bounded by the state's own size. A least below 1 panics: the size of a table goes over by Size.
func (s *State) Count(n, most, least int) int {
	if least < 1 {
		panic("handover: a list whose elements have no bytes")
	}
	if !s.reads {
		s.b = binary.LittleEndian.AppendUint32(s.b, size(n))
		return n
	}
	got := s.u32()
	if s.err == nil && uint64(got) > uint64(max(most, 0)) {
		s.Fail("a list of %d, at most %d are allowed", got, most)
	}
	if s.err == nil && uint64(got)*uint64(least) > uint64(s.end-s.at) {
		s.Fail("a list of %d elements does not fit into the %d bytes left", got, s.end-s.at)
	}
	if s.err != nil {
		return 0
	}
	return int(got)
}

// Size has the size of a table go over, and returns it: n if it is written. One that is read is most at
// most. No elements follow, so only most bounds what a caller makes for it.
func (s *State) Size(n, most int) int {
	if !s.reads {
		s.b = binary.LittleEndian.AppendUint32(s.b, size(n))
		return n
	}
	got := s.u32()
	if s.err == nil && uint64(got) > uint64(max(most, 0)) {
		s.Fail("a table of %d entries, at most %d are allowed", got, most)
	}
	if s.err != nil {
		return 0
	}
	return int(got)
}

// Slice has the length of *v go over as by Count, and returns *v. One that is read has so many elements
// of 0, for the caller to set.
func Slice[T any](s *State, v *[]T, most, least int) []T {
	n := s.Count(len(*v), most, least)
	if s.reads {
		*v = nil
		if n > 0 {
			*v = make([]T, n)
		}
	}
	return *v
}

// Nth returns element i of a list that is written. Of one that is read it returns 0, for the caller to
// set and to keep.
func Nth[T any](s *State, all []T, i int) (v T) {
	if !s.reads {
		v = all[i]
	}
	return v
}

// Table has a list of fixed length go over.
func (s *State) Table(all []uint64) {
	if n := s.Count(len(all), len(all), 8); n != len(all) {
		s.Fail("a list of %d numbers, not %d", n, len(all))
	}
	for i := range all {
		s.U64(&all[i])
	}
}

// Counters has the fields of *counters, which are all uint64, go over as by Table.
func (s *State) Counters(counters any) {
	all := reflect.ValueOf(counters).Elem()
	if n := s.Count(all.NumField(), all.NumField(), 8); n != all.NumField() {
		s.Fail("a list of %d counters, not %d", n, all.NumField())
	}
	for i := range all.NumField() {
		s.U64(all.Field(i).Addr().Interface().(*uint64))
	}
}

// Blob has at most most bytes go over. Those that are read are part of the state: the caller copies
// what it changes.
func (s *State) Blob(v *[]byte, most int) {
	if s.reads {
		*v = s.take(s.Count(0, most, 1))
		return
	}
	b := keptBytes(*v)
	s.b = binary.LittleEndian.AppendUint32(s.b, size(len(b)))
	s.b = append(s.b, b...)
}

// String has a text of at most most bytes go over. Only what is read is checked.
func (s *State) String(v *string, most int) {
	if s.reads {
		*v = string(s.take(s.Count(0, most, 1)))
		return
	}
	b := keptBytes([]byte(*v))
	s.b = binary.LittleEndian.AppendUint32(s.b, size(len(b)))
	s.b = append(s.b, b...)
}

// Text is String for a text that may be longer: what is written is cut behind most bytes.
func (s *State) Text(v *string, most int) {
	if s.reads || len(*v) <= most {
		s.String(v, most)
		return
	}
	start := (*v)[:most]
	s.String(&start, most)
}

// Error has an error go over as by Text. Nil goes over as an empty one.
func (s *State) Error(v *error, most int) {
	text := ""
	if *v != nil {
		text = (*v).Error()
	}
	if s.Text(&text, most); !s.reads {
		return
	}
	if *v = nil; text != "" {
		*v = errors.New(text)
	}
}

// Time has a time go over, in nanoseconds of UTC.
func (s *State) Time(v *time.Time) {
	if s.reads {
		*v = time.Unix(0, int64(s.u64())).UTC()
	} else {
		s.b = binary.LittleEndian.AppendUint64(s.b, uint64(kept(v.UnixNano(), 0)))
	}
}

// Addr has an address without a zone go over; the zero Addr is allowed.
func (s *State) Addr(v *netip.Addr) {
	if !s.reads {
		if v.Zone() != "" {
			panic("handover: an address with a zone")
		}
		b := keptBytes(v.AsSlice())
		s.b = binary.LittleEndian.AppendUint32(s.b, size(len(b)))
		s.b = append(s.b, b...)
		return
	}
	b := s.take(s.Count(0, 16, 1))
	a, ok := netip.AddrFromSlice(b)
	if !ok && len(b) > 0 {
		s.Fail("an address of %d bytes", len(b))
	}
	*v = a
}

// Range has a range in one of so many files go over. Whether the file is so long is for who maps it
// to check.
func (s *State) Range(v *Range, files int) {
	if !s.reads {
		s.b = binary.LittleEndian.AppendUint32(s.b, v.File)
		s.b = binary.LittleEndian.AppendUint64(s.b, v.Off)
		s.b = binary.LittleEndian.AppendUint64(s.b, v.Len)
		return
	}
	*v = Range{s.u32(), s.u64(), s.u64()}
	switch {
	case v.File == NoFile:
		if v.Off != 0 || v.Len != 0 {
			s.Fail("a range of %d bytes without a file", v.Len)
		}
	case uint64(v.File) >= uint64(max(files, 0)):
		s.Fail("file %d of %d", v.File, files)
	case v.Off+v.Len < v.Off:
		s.Fail("a range that wraps around")
	}
}

// Inner has a state go over that another package encodes and adopts, as a Blob. It returns the error of
// that package.
func (s *State) Inner(most int, encode func(version uint16) ([]byte, error), adopt func(state []byte) error) (err error) {
	var b []byte
	if !s.reads {
		b, err = encode(s.version)
	}
	if s.Blob(&b, most); s.reads {
		err = adopt(b)
	}
	return err
}
