package handover

import "net/netip"

// Writer writes a State.
type Writer struct{ s *State }

func NewWriter(version uint16) *Writer { return &Writer{Write(version)} }

func (w *Writer) State() *State   { return w.s }
func (w *Writer) Version() uint16 { return w.s.version }
func (w *Writer) Begin(t Tag)     { w.s.Begin(t) }
func (w *Writer) End()            { w.s.End() }
func (w *Writer) Bytes() []byte   { return w.s.Bytes() }

func (w *Writer) Alone(t Tag, write func()) { w.s.Alone(t, NoFile, write) }

func (w *Writer) U8(v uint8)         { w.s.U8(&v) }
func (w *Writer) U16(v uint16)       { w.s.U16(&v) }
func (w *Writer) U32(v uint32)       { w.s.U32(&v) }
func (w *Writer) U64(v uint64)       { w.s.U64(&v) }
func (w *Writer) I64(v int64)        { w.s.I64(&v) }
func (w *Writer) Int(v int)          { w.s.Int(&v, 0) }
func (w *Writer) Bool(v bool)        { w.s.Bool(&v) }
func (w *Writer) Count(n int)        { w.s.Count(n, 0, 1) }
func (w *Writer) Size(n int)         { w.s.Size(n, 0) }
func (w *Writer) Blob(b []byte)      { w.s.Blob(&b, 0) }
func (w *Writer) String(v string)    { w.s.String(&v, len(v)) }
func (w *Writer) Addr(a netip.Addr)  { w.s.Addr(&a) }
func (w *Writer) Range(r Range)      { w.s.Range(&r, 0) }
func (w *Writer) U32s(all ...uint32) { w.s.U32s(pointers(all)...) }
func (w *Writer) U64s(all ...uint64) { w.s.U64s(pointers(all)...) }
func (w *Writer) Flags(all ...bool)  { w.s.Flags(pointers(all)...) }
func pointers[T any](all []T) (p []*T) {
	for i := range all {
		p = append(p, &all[i])
	}
	return p
}

func (w *Writer) Grow(n int) { w.s.Grow(n) }
func (s *State) Writer() *Writer { return &Writer{s} }
func (s *State) Reader() *Reader { return &Reader{s} }
