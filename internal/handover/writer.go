package handover

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"
)

// Writer builds a state. What it is given is the daemon's own, so a value that the format
// cannot hold is a bug and panics.
type Writer struct {
	b       []byte
	version uint16
	open    []int // where the bodies of the sections that are being written begin
}

// NewWriter returns a Writer of a version from Oldest to Newest.
func NewWriter(version uint16) *Writer {
	if version < Oldest || version > Newest {
		panic(fmt.Sprintf("handover: write version %d", version))
	}
	w := &Writer{version: version, b: []byte(magic)}
	w.u16(version)
	w.u16(0)
	return w
}

// Version is the version that w writes.
func (w *Writer) Version() uint16 { return w.version }

// Begin begins a section, inside the one that is being written, if any.
func (w *Writer) Begin(t Tag) {
	w.u16(uint16(t))
	w.u16(0)
	w.u32(0) // its length, see End
	w.open = append(w.open, len(w.b))
}

// End ends the section that was begun last.
func (w *Writer) End() {
	from := w.open[len(w.open)-1]
	w.open = w.open[:len(w.open)-1]
	binary.LittleEndian.PutUint32(w.b[from-4:], size(len(w.b)-from))
}

// Alone writes section t with write, for Reader.Alone.
func (w *Writer) Alone(t Tag, write func()) {
	if w.version < 3 {
		write()
		return
	}
	w.Begin(t)
	write()
	w.End()
}

// Bytes returns what was written. All sections have ended.
func (w *Writer) Bytes() []byte {
	if len(w.open) > 0 {
		panic("handover: a section has not ended")
	}
	return w.b
}

// Grow makes room for n more bytes, if they are known to follow.
func (w *Writer) Grow(n int) { w.b = slices.Grow(w.b, n) }

func (w *Writer) U8(v uint8)   { w.u8(kept(v, 0)) }
func (w *Writer) U16(v uint16) { w.u16(kept(v, 0)) }
func (w *Writer) U32(v uint32) { w.u32(kept(v, 0)) }
func (w *Writer) U64(v uint64) { w.u64(kept(v, 0)) }
func (w *Writer) I64(v int64)  { w.u64(uint64(kept(v, 0))) }

// Int writes a number that is kept as an int.
func (w *Writer) Int(v int) { w.u64(uint64(kept(v, 0))) }

func (w *Writer) Bool(v bool) {
	if kept(v, 0) {
		w.u8(1)
	} else {
		w.u8(0)
	}
}

// U32s writes numbers, each as U32 does.
func (w *Writer) U32s(v ...uint32) {
	for i, n := range v {
		w.u32(kept(n, i))
	}
}

// U64s writes numbers, each as U64 does.
func (w *Writer) U64s(v ...uint64) {
	for i, n := range v {
		w.u64(kept(n, i))
	}
}

// Flags writes bools as the bits of a U16, the first as bit 0.
func (w *Writer) Flags(is ...bool) {
	f := uint16(0)
	for i, b := range is {
		if kept(b, i) {
			f |= 1 << i
		}
	}
	w.u16(f)
}

// Count writes the length of a list, whose elements follow.
func (w *Writer) Count(n int) { w.u32(size(n)) }

// Size writes the size of a table, of which no elements follow.
func (w *Writer) Size(n int) { w.u32(size(n)) }

func (w *Writer) Blob(b []byte) { w.blob(keptBytes(b)) }

func (w *Writer) String(s string) { w.blob(keptBytes([]byte(s))) }

// Addr writes an address without a zone; the zero Addr is allowed.
func (w *Writer) Addr(a netip.Addr) {
	if a.Zone() != "" {
		panic("handover: an address with a zone")
	}
	w.blob(keptBytes(a.AsSlice()))
}

// Range writes r.
func (w *Writer) Range(r Range) {
	w.u32(r.File)
	w.u64(r.Off)
	w.u64(r.Len)
}

func (w *Writer) u8(v uint8)   { w.b = append(w.b, v) }
func (w *Writer) u16(v uint16) { w.b = binary.LittleEndian.AppendUint16(w.b, v) }
func (w *Writer) u32(v uint32) { w.b = binary.LittleEndian.AppendUint32(w.b, v) }
func (w *Writer) u64(v uint64) { w.b = binary.LittleEndian.AppendUint64(w.b, v) }

func (w *Writer) blob(b []byte) {
	w.Count(len(b))
	w.b = append(w.b, b...)
}

func size(n int) uint32 {
	if n < 0 || n > math.MaxUint32 {
		panic(fmt.Sprintf("handover: a length of %d", n))
	}
	return uint32(n)
}
