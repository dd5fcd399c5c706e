package handover

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
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
	w.U16(version)
	w.U16(0)
	return w
}

// Version is the version that w writes.
func (w *Writer) Version() uint16 { return w.version }

// Begin begins a section, inside the one that is being written, if any.
func (w *Writer) Begin(t Tag) {
	w.U16(uint16(t))
	w.U16(0)
	w.U32(0) // its length, see End
	w.open = append(w.open, len(w.b))
}

// End ends the section that was begun last.
func (w *Writer) End() {
	from := w.open[len(w.open)-1]
	w.open = w.open[:len(w.open)-1]
	binary.LittleEndian.PutUint32(w.b[from-4:], size(len(w.b)-from))
}

// Bytes returns what was written. All sections have ended.
func (w *Writer) Bytes() []byte {
	if len(w.open) > 0 {
		panic("handover: a section has not ended")
	}
	return w.b
}

func (w *Writer) U8(v uint8)   { w.b = append(w.b, v) }
func (w *Writer) U16(v uint16) { w.b = binary.LittleEndian.AppendUint16(w.b, v) }
func (w *Writer) U32(v uint32) { w.b = binary.LittleEndian.AppendUint32(w.b, v) }
func (w *Writer) U64(v uint64) { w.b = binary.LittleEndian.AppendUint64(w.b, v) }
func (w *Writer) I64(v int64)  { w.U64(uint64(v)) }

// Int writes a number that is kept as an int.
func (w *Writer) Int(v int) { w.I64(int64(v)) }

func (w *Writer) Bool(v bool) {
	if v {
		w.U8(1)
	} else {
		w.U8(0)
	}
}

// Count writes the length of a list, whose elements follow.
func (w *Writer) Count(n int) { w.U32(size(n)) }

func (w *Writer) Blob(b []byte) {
	w.Count(len(b))
	w.b = append(w.b, b...)
}

func (w *Writer) String(s string) {
	w.Count(len(s))
	w.b = append(w.b, s...)
}

// Addr writes an address without a zone; the zero Addr is allowed.
func (w *Writer) Addr(a netip.Addr) {
	if a.Zone() != "" {
		panic("handover: an address with a zone")
	}
	w.Blob(a.AsSlice())
}

// Range writes r.
func (w *Writer) Range(r Range) {
	w.U32(r.File)
	w.U64(r.Off)
	w.U64(r.Len)
}

func size(n int) uint32 {
	if n < 0 || n > math.MaxUint32 {
		panic(fmt.Sprintf("handover: a length of %d", n))
	}
	return uint32(n)
}
