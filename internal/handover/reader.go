package handover

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/rdsd/rdsd/internal/mutant"
)

// ErrFormat is what every error of a Reader matches.
var ErrFormat = errors.New("hand-over state")

// Reader takes a state apart. Its first error stays: from then on every method returns a
// zero value and every list is empty, so a caller may ask for Err once, at the end.
type Reader struct {
	b       []byte // the whole state
	at      int
	end     int // of the section that is being read
	open    []section
	version uint16
	of      uint32 // Of, else NoFile
	faults  Faults
	err     error
}

type section struct {
	tag Tag
	end int // of the one around it
}

// NewReader returns a Reader of b, which must not change any more.
func NewReader(b []byte) (*Reader, error) {
	r := &Reader{b: b, end: len(b), of: NoFile}
	if len(b) < headLen || string(b[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: does not begin with %q", ErrFormat, magic)
	}
	r.at = len(magic)
	r.version = r.U16()
	if zero := r.U16(); zero != 0 {
		r.Fail("byte %d is not 0", headLen-2)
	}
	if r.version < Oldest || r.version > Newest {
		r.Fail("version %d, this daemon reads %d to %d", r.version, Oldest, Newest)
	}
	return r, r.err
}

// Version is the version that was written.
func (r *Reader) Version() uint16 { return r.version }

// Err returns the first error.
func (r *Reader) Err() error { return r.err }

// Fail makes r fail, if it has not: what was read is not acceptable.
func (r *Reader) Fail(format string, args ...any) {
	if r.err != nil {
		return
	}
	where := fmt.Sprintf("byte %d", r.at)
	if n := len(r.open); n > 0 {
		where = fmt.Sprintf("section %d, byte %d", r.open[n-1].tag, r.at)
	}
	r.err = fmt.Errorf("%w: %s: %s", ErrFormat, where, fmt.Sprintf(format, args...))
	if r.of != NoFile {
		r.err = &Fault{r.of, r.err}
	}
}

// Of says that what is read from here on is one session's alone: the first error is a Fault of it.
func (r *Reader) Of(session uint32) {
	if !mutant.On(mutant.FaultRefuses) {
		r.of = session
	}
}

// Alone reads section t, which is one session's alone, with read. A Fault in it does not make r
// fail: r goes on behind the section, until Faulty. Before version 3 there is no such section.
func (r *Reader) Alone(t Tag, session uint32, read func()) {
	framed := r.version >= 3 && r.err == nil
	if framed {
		r.Begin(t)
	}
	if r.err != nil {
		return
	}
	depth, end := len(r.open), r.end
	r.Of(session)
	read()
	r.Of(session)
	if framed {
		r.End()
	}
	r.Shared()
	if f, is := r.err.(*Fault); is && framed {
		r.faults = append(r.faults, f)
		r.err, r.at, r.end, r.open = nil, end, r.open[depth-1].end, r.open[:depth-1]
	}
}

// Faulty makes r fail if Alone has passed over faults, and reports whether r has failed.
func (r *Reader) Faulty() bool {
	if r.err == nil && len(r.faults) > 0 {
		r.err = r.faults
	}
	return r.err != nil
}

// Shared says that what is read from here on is not one session's alone.
func (r *Reader) Shared() { r.of = NoFile }

// Begin enters the next section, which has to be t.
func (r *Reader) Begin(t Tag) {
	got, zero, n := Tag(r.U16()), r.U16(), r.U32()
	switch {
	case r.err != nil:
	case got != t:
		r.Fail("section %d, not %d", got, t)
	case zero != 0:
		r.Fail("the head of section %d is malformed", t)
	case uint64(n) > uint64(r.end-r.at):
		r.Fail("section %d has %d bytes, %d are left", t, n, r.end-r.at)
	default:
		r.open = append(r.open, section{t, r.end})
		r.end = r.at + int(n)
	}
}

// End leaves the section that was entered last. All of it was read.
func (r *Reader) End() {
	if r.err != nil {
		return
	}
	if r.at != r.end {
		r.Fail("%d bytes are too many", r.end-r.at)
		return
	}
	last := len(r.open) - 1
	r.end, r.open = r.open[last].end, r.open[:last]
}

// Close returns the first error; bytes behind the last section are one.
func (r *Reader) Close() error {
	if r.err == nil && r.at != len(r.b) {
		r.Fail("%d bytes are too many", len(r.b)-r.at)
	}
	return r.err
}

// take returns the next n bytes, nil if there are not so many.
func (r *Reader) take(n int) []byte {
	if r.err == nil && n > r.end-r.at {
		r.Fail("%d bytes are missing", n-(r.end-r.at))
	}
	if r.err != nil {
		return nil
	}
	b := r.b[r.at : r.at+n : r.at+n]
	r.at += n
	return b
}

func (r *Reader) U8() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *Reader) U16() uint16 {
	if b := r.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (r *Reader) U32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *Reader) U64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *Reader) I64() int64 { return int64(r.U64()) }

// Int reads a number from 0 to most.
func (r *Reader) Int(most int) int {
	v := r.I64()
	if v < 0 || v > int64(most) {
		r.Fail("%d, not 0 to %d", v, most)
		return 0
	}
	return int(v)
}

func (r *Reader) Bool() bool {
	v := r.U8()
	if v > 1 {
		r.Fail("a bool of %d", v)
	}
	return v == 1
}

// Size reads the size of a table of at most most entries. No elements follow, so only most
// bounds what a caller makes for it.
func (r *Reader) Size(most int) int {
	n := r.U32()
	if r.err == nil && uint64(n) > uint64(max(most, 0)) {
		r.Fail("a table of %d entries, at most %d are allowed", n, most)
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

// Count reads the length of a list of at most most elements, each of least bytes or more.
// So what a caller makes for the list is bounded by the state's own size. A least below 1
// panics: the size of a table is read with Size.
func (r *Reader) Count(most, least int) int {
	if least < 1 {
		panic("handover: a list whose elements have no bytes")
	}
	n := r.U32()
	if r.err == nil && uint64(n) > uint64(max(most, 0)) {
		r.Fail("a list of %d, at most %d are allowed", n, most)
	}
	if r.err == nil && uint64(n)*uint64(least) > uint64(r.end-r.at) {
		r.Fail("a list of %d elements does not fit into the %d bytes left", n, r.end-r.at)
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

// Blob reads at most most bytes. They are part of the state: the caller copies what it
// changes.
func (r *Reader) Blob(most int) []byte { return r.take(r.Count(most, 1)) }

func (r *Reader) String(most int) string { return string(r.Blob(most)) }

func (r *Reader) Addr() netip.Addr {
	b := r.Blob(16)
	a, ok := netip.AddrFromSlice(b)
	if !ok && len(b) > 0 {
		r.Fail("an address of %d bytes", len(b))
	}
	return a
}

// Range reads a range in one of so many files. Whether the file is so long is for who maps
// it to check.
func (r *Reader) Range(files int) Range {
	g := Range{r.U32(), r.U64(), r.U64()}
	switch {
	case g.File == NoFile:
		if g.Off != 0 || g.Len != 0 {
			r.Fail("a range of %d bytes without a file", g.Len)
		}
	case uint64(g.File) >= uint64(max(files, 0)):
		r.Fail("file %d of %d", g.File, files)
	case g.Off+g.Len < g.Off:
		r.Fail("a range that wraps around")
	}
	return g
}
