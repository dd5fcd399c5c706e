package capture

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/pcapng"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// Reader makes a file of a Capture, in memory, so that writing it has no errors. One
// goroutine may use it.
type Reader struct {
	c       *Capture
	file    bytes.Buffer
	w       *pcapng.Frames
	streams map[uint32]*peer
	scratch []byte
	begun   int   // bytes in frames that are not whole
	given   int64 // bytes of the file that Read has returned
	frames  uint64
	full    bool // the next packet would exceed Spec.Max
	last    int64
	ended   bool
	lost    uint64 // frames that were begun and not finished for want of memory
}

// peer is a connection as the reader knows it.
type peer struct {
	local, remote netip.AddrPort
	halves        [2]half
}

// half is one direction.
type half struct {
	open  bool // a frame has begun
	kind  kind // of it
	buf   []byte
	total int
	chose bool // of a SEND in several FPDUs: the last of them was wanted
}

// keptBuf is the most memory, bytes, that a direction keeps between two frames.
const keptBuf = 4 << 10

// comment is in the head of each file.
const comment = "Recorded by rdsd, inside the daemon. Ethernet, IP and TCP headers are made up, with sequences that count the bytes recorded; " +
	"connections that were up before begin with the MPA frames of their start. What TLS protects is shown as it is inside TLS."

// NewReader makes the reader of c.
func NewReader(c *Capture, program string) *Reader {
	r := &Reader{c: c, streams: map[uint32]*peer{}}
	r.w, _ = pcapng.NewFrames(&r.file, pcapng.About{Program: program, Comment: comment, Interface: "rdsd", Snap: c.spec.Snap}) // a buffer has no errors
	return r
}

// Read returns the next bytes of the file, about most of them, and whether that was all that
// there will ever be: the capture is over, or the file is as long as Spec.Max lets it be. What it returns is valid until the next call.
func (r *Reader) Read(most int) (b []byte, all bool) {
	over := r.c.over.Load() // before the ring is looked at
	var rec record
	var ok bool
	for r.file.Len() < most && !r.full {
		if r.scratch, ok = r.c.ring.take(&rec, r.scratch[:0]); !ok {
			break
		}
		end, frames := r.file.Len(), r.frames
		r.record(&rec, r.scratch)
		if size := r.given + int64(r.file.Len()) + pcapng.StatisticsLen; r.c.spec.Max > 0 && size > r.c.spec.Max && r.file.Len() > end {
			r.file.Truncate(end)
			r.frames, r.full = frames, true
		}
	}
	if (over && !ok || r.full) && !r.ended {
		r.ended = true
		frames, dropped := r.Frames()
		_ = r.w.Statistics(max(r.last, r.c.now()), frames+dropped, dropped)
	}
	b = bytes.Clone(r.file.Bytes())
	r.file.Reset()
	r.given += int64(len(b))
	return b, r.ended
}

// Frames is how many frames Read has come to, and how many more are missing in the file, for want of
// memory. What comes after a full file is in neither.
func (r *Reader) Frames() (frames, dropped uint64) { return r.frames, r.c.dropped.Load() + r.lost }

func (r *Reader) record(rec *record, data []byte) {
	r.last = max(r.last, rec.at)
	if rec.flags&opens != 0 {
		r.opened(rec, data)
		return
	}
	p := r.streams[rec.stream]
	if p == nil {
		return
	}
	h := &p.halves[rec.dir]
	src, dst := p.remote, p.local
	if rec.dir == 1 {
		src, dst = dst, src
	}
	if rec.flags&begins != 0 {
		if h.open { // its end was dropped
			r.w.Gap(src, dst, h.total)
		}
		r.drop(h)
		r.w.Gap(src, dst, int(rec.gap))
		h.open, h.kind, h.total = true, rec.kind, int(rec.total)
	}
	if !h.open {
		return
	}
	if r.begun+len(data) > r.c.spec.Buffer { // as much again as the ring has
		r.w.Gap(src, dst, h.total)
		r.drop(h)
		r.lost++
		return
	}
	h.buf = append(h.buf, data...)
	r.begun += len(data)
	if rec.flags&ends != 0 {
		r.frames++
		if r.wanted(h) {
			b := h.buf
			if n := r.c.spec.Snap; n > 0 {
				b = b[:min(n, len(b))]
			}
			_ = r.w.Frame(rec.at, src, dst, b, h.total)
		}
		r.drop(h)
	}
}

// drop forgets the frame that has begun.
func (r *Reader) drop(h *half) {
	r.begun -= len(h.buf)
	h.open, h.buf = false, h.buf[:0]
	if cap(h.buf) > keptBuf {
		h.buf = nil
	}
}

func (r *Reader) opened(rec *record, data []byte) {
	p := &peer{}
	n := int(data[0])
	_ = p.local.UnmarshalBinary(data[1 : 1+n])
	_ = p.remote.UnmarshalBinary(data[1+n:])
	if old := r.streams[rec.stream]; old != nil {
		r.drop(&old.halves[0])
		r.drop(&old.halves[1])
	}
	r.streams[rec.stream] = p
	from, to := p.local, p.remote
	if rec.flags&inward != 0 {
		from, to = to, from
	}
	_ = r.w.Open(rec.at, from, to)
}

// wanted reports whether the frame in h is for the port that the capture is for.
func (r *Reader) wanted(h *half) bool {
	port := r.c.spec.Port
	if port == 0 || h.kind != fpdu || len(h.buf) < iwarp.UntaggedLen || h.buf[3]&0x0f == iwarp.OpTerminate {
		return true
	}
	if binary.BigEndian.Uint32(h.buf[16:]) != 0 { // another part of the same SEND
		return h.chose
	}
	h.chose = false
	end := min(iwarp.LenField+iwarp.ULPDULen(h.buf), len(h.buf))
	for b := h.buf[iwarp.UntaggedLen:max(end, iwarp.UntaggedLen)]; len(b) >= wire.HeaderLen; {
		if binary.BigEndian.Uint16(b[20:]) == port || b[24]&byte(wire.FlagInternal) == 0 && binary.BigEndian.Uint16(b[22:]) == port {
			h.chose = true
			break
		}
		n := wire.Pad(wire.HeaderLen + int(min(binary.BigEndian.Uint32(b[16:]), maxRDS)))
		b = b[min(n, len(b)):]
	}
	return h.chose
}
