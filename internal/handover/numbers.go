package handover

import (
	"encoding/binary"
	"slices"
)

func (s *State) U8(v *uint8) {
	if !s.reads {
		s.b = append(s.b, kept(*v, 0))
		return
	}
	*v = 0
	if b := s.take(1); b != nil {
		*v = b[0]
	}
}

func (s *State) U16(v *uint16) {
	if !s.reads {
		s.b = binary.LittleEndian.AppendUint16(s.b, kept(*v, 0))
		return
	}
	*v = 0
	if b := s.take(2); b != nil {
		*v = binary.LittleEndian.Uint16(b)
	}
}

func (s *State) U32(v *uint32) {
	if s.reads {
		*v = s.u32()
		return
	}
	s.b = binary.LittleEndian.AppendUint32(s.b, kept(*v, 0))
}

func (s *State) U64(v *uint64) {
	if s.reads {
		*v = s.u64()
		return
	}
	s.b = binary.LittleEndian.AppendUint64(s.b, kept(*v, 0))
}

func (s *State) I64(v *int64) {
	if s.reads {
		*v = int64(s.u64())
		return
	}
	s.b = binary.LittleEndian.AppendUint64(s.b, uint64(kept(*v, 0)))
}

// Int has a number from 0 to most go over. Only what is read is checked.
func (s *State) Int(v *int, most int) {
	if !s.reads {
		s.b = binary.LittleEndian.AppendUint64(s.b, uint64(kept(*v, 0)))
		return
	}
	n := int64(s.u64())
	if n < 0 || n > int64(most) {
		s.Fail("%d, not 0 to %d", n, most)
		n = 0
	}
	*v = int(n)
}

func (s *State) Bool(v *bool) {
	if !s.reads {
		s.b = append(s.b, bit(kept(*v, 0)))
		return
	}
	n := uint8(0)
	if b := s.take(1); b != nil {
		n = b[0]
	}
	if n > 1 {
		s.Fail("a bool of %d", n)
	}
	*v = n == 1
}

// U32s has numbers go over, each as by U32.
func (s *State) U32s(all ...*uint32) {
	if !s.reads {
		at := len(s.b)
		s.b = slices.Grow(s.b, 4*len(all))[:at+4*len(all)]
		for i, v := range all {
			binary.LittleEndian.PutUint32(s.b[at+4*i:], kept(*v, i))
		}
		return
	}
	for _, v := range all {
		*v = s.u32()
	}
}

// U64s has numbers go over, each as by U64.
func (s *State) U64s(all ...*uint64) { numbers64(s, all) }

// I64s has numbers go over, each as by I64.
func (s *State) I64s(all ...*int64) { numbers64(s, all) }

func numbers64[T uint64 | int64](s *State, all []*T) {
	if s.reads {
		for _, v := range all {
			*v = T(s.u64())
		}
		return
	}
	at := len(s.b)
	s.b = slices.Grow(s.b, 8*len(all))[:at+8*len(all)]
	for i, v := range all {
		binary.LittleEndian.PutUint64(s.b[at+8*i:], uint64(kept(*v, i)))
	}
}

// Flags has bools go over as the bits of a number, the first as bit 0. It returns the number, and
// whether it has no other bits.
func (s *State) Flags(all ...*bool) (f uint16, known bool) {
	if !s.reads {
		for i := len(all) - 1; i >= 0; i-- {
			f = f<<1 | uint16(bit(kept(*all[i], i)))
		}
		s.b = binary.LittleEndian.AppendUint16(s.b, f)
		return f, true
	}
	if b := s.take(2); b != nil {
		f = binary.LittleEndian.Uint16(b)
	}
	for i, v := range all {
		*v = f>>i&1 != 0
	}
	return f, f>>len(all) == 0
}

// Flags8 has at most 8 bools go over as the bits of a number by U8, the first as bit 0, and returns the number.
func (s *State) Flags8(all ...*bool) (f uint8) {
	if s.reads {
		s.U8(&f)
		for i, v := range all {
			*v = f>>i&1 != 0
		}
		return f
	}
	for i, v := range all {
		f |= bit(kept(*v, i)) << i
	}
	s.b = append(s.b, f)
	return f
}

// integer is a number of another type than the one by which it goes over.
type integer interface {
	~int | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

// As8 has a number go over as by U8.
func As8[T integer](s *State, v *T) {
	n := uint8(*v)
	if s.U8(&n); s.reads {
		if *v = T(n); uint8(*v) != n {
			s.Fail("%d does not fit", n)
		}
	}
}

// As16 has a number go over as by U16.
func As16[T integer](s *State, v *T) {
	n := uint16(*v)
	if s.U16(&n); s.reads {
		if *v = T(n); uint16(*v) != n {
			s.Fail("%d does not fit", n)
		}
	}
}

// As32 has a number go over as by U32.
func As32[T integer](s *State, v *T) {
	n := uint32(*v)
	if s.U32(&n); s.reads {
		if *v = T(n); uint32(*v) != n {
			s.Fail("%d does not fit", n)
		}
	}
}

func (s *State) u32() uint32 {
	if b := s.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (s *State) u64() uint64 {
	if b := s.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func bit(v bool) uint8 {
	if v {
		return 1
	}
	return 0
}
