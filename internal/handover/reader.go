package handover

import "net/netip"

// Reader reads a State.
type Reader struct{ s *State }

func NewReader(b []byte) (*Reader, error) {
	s, err := Read(b)
	return &Reader{s}, err
}

func (r *Reader) State() *State                   { return r.s }
func (r *Reader) Version() uint16                 { return r.s.version }
func (r *Reader) Err() error                      { return r.s.err }
func (r *Reader) Fail(format string, a ...any)    { r.s.Fail(format, a...) }
func (r *Reader) Of(session uint32)               { r.s.Of(session) }
func (r *Reader) Shared()                         { r.s.Shared() }
func (r *Reader) Faulty() bool                    { return r.s.Faulty() }
func (r *Reader) Begin(t Tag)                     { r.s.Begin(t) }
func (r *Reader) End()                            { r.s.End() }
func (r *Reader) Close() error                    { return r.s.Close() }
func (r *Reader) Count(most, least int) int       { return r.s.Count(0, most, least) }
func (r *Reader) Size(most int) int               { return r.s.Size(0, most) }
func (r *Reader) Int(most int) (v int)            { r.s.Int(&v, most); return v }
func (r *Reader) U8() (v uint8)                   { r.s.U8(&v); return v }
func (r *Reader) U16() (v uint16)                 { r.s.U16(&v); return v }
func (r *Reader) U32() (v uint32)                 { r.s.U32(&v); return v }
func (r *Reader) U64() (v uint64)                 { r.s.U64(&v); return v }
func (r *Reader) I64() (v int64)                  { r.s.I64(&v); return v }
func (r *Reader) Bool() (v bool)                  { r.s.Bool(&v); return v }
func (r *Reader) Blob(most int) (v []byte)        { r.s.Blob(&v, most); return v }
func (r *Reader) String(most int) (v string)      { r.s.String(&v, most); return v }
func (r *Reader) Addr() (v netip.Addr)            { r.s.Addr(&v); return v }
func (r *Reader) Range(files int) (v Range)       { r.s.Range(&v, files); return v }
func (r *Reader) Alone(t Tag, n uint32, f func()) { r.s.Alone(t, n, f) }
