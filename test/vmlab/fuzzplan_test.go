package vmlab

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/rdsd/rdsd/verbs"
)

// The layout of each side's region, the patterns and the messages of siwfuzz. siwfuzz/plan.h has
// the same, with explanations.
const (
	fuzzSource, fuzzSourceSize = 0, 0x140000
	fuzzTarget                 = 0x200000
	fuzzSink                   = 0x500000
	fuzzReceive                = 0x800000
	fuzzArea                   = 0x300000
	fuzzControl, fuzzSlot      = 0xb00000, 4096
	fuzzMemory                 = 0xb10000
	fuzzGuard                  = 64
	fuzzPage, fuzzSmall        = 4096, 32

	fuzzRequests, fuzzSGE = 40, 6

	fuzzAlone, fuzzFromTarget = 16, 32 // in addition to the flags of verbs
)

const (
	fuzzSend = iota
	fuzzWrite
	fuzzRead
)

type fuzzPiece struct{ Off, Len uint32 }

// fuzzRequest is one request, in the form in which its plan tells it to the peer.
type fuzzRequest struct {
	Op, Flags, Len, At, Pieces uint32
	Piece                      [fuzzSGE]fuzzPiece
}

func (r *fuzzRequest) pieces() []fuzzPiece { return r.Piece[:min(r.Pieces, fuzzSGE)] }

// fuzzPlan is what one side requests in a round.
type fuzzPlan struct {
	Round, Count uint32
	Request      [fuzzRequests]fuzzRequest
}

func (p *fuzzPlan) requests() []fuzzRequest { return p.Request[:min(p.Count, fuzzRequests)] }

func (p *fuzzPlan) encode() []byte {
	b, err := binary.Append(nil, binary.LittleEndian, p)
	if err != nil {
		panic(err)
	}
	return b
}

// fuzzPattern fills a side's source.
func fuzzPattern(b []byte, seed uint64) {
	for i := uint64(0); i < fuzzSourceSize; i += 8 {
		x := seed*0x100000001 + i + 0x9e3779b97f4a7c15
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		binary.LittleEndian.PutUint64(b[i:], x^x>>31)
	}
}

// fuzzSpoil returns the byte that fills areas before a round.
func fuzzSpoil(round uint32) byte { return byte(0xa0 + round%61) }

// planner draws plans for soft's side.
type planner struct {
	*rand.Rand
	page   bool // siw may be asked for small messages that cross a page
	inline int  // bytes that soft accepts inline
}

func (p *planner) draw(n int) uint32 { return uint32(p.IntN(n)) }
func (p *planner) oneIn(n int) bool  { return p.IntN(n) == 0 }
func (p *planner) length(k int) uint32 {
	around := []int{0, 1, 4, fuzzSmall, 1400, 1428, 1432, 1448, 1460, 2896, fuzzPage, 2 * fuzzPage, 64498, 64512, 65536}
	switch {
	case k == 0:
		return p.draw(70)
	case k == 3 && p.oneIn(2):
		return 1 << 20
	case k == 3:
		return p.draw(1<<20 + 1)
	case p.oneIn(3):
		return p.draw(9000 + (k-1)*91000)
	}
	return uint32(max(0, around[p.IntN(len(around)-3*(2-k))]+p.IntN(7)-3))
}

// place returns a place for n bytes in a source. With whole, a small one does not cross a page.
func (p *planner) place(n uint32, whole bool) uint32 {
	off := p.draw(int(fuzzSourceSize - n + 1))
	switch page := off &^ (fuzzPage - 1); p.draw(4) {
	case 0:
		off = page
	case 1:
		if page >= fuzzSmall {
			off = page - p.draw(fuzzSmall)
		}
	}
	if whole && crosses(off, n) {
		off -= n
	}
	return fuzzSource + off
}

func crosses(off, n uint32) bool {
	return n > 0 && n <= fuzzSmall && off/fuzzPage != (off+n-1)/fuzzPage
}

// make draws a round.
func (p *planner) make(round uint32) (plan fuzzPlan) {
	kind := 0
	switch n := p.draw(100); {
	case n >= 97:
		kind = 3
	case n >= 85:
		kind = 2
	case n >= 50:
		kind = 1
	}
	count := 1 + p.draw(12)
	if p.oneIn(3) {
		count = 1 + p.draw(fuzzRequests)
	}
	d := &drawing{planner: p, plan: &plan, target: fuzzTarget, sink: fuzzSink, budget: 3 << 18}
	if kind == 3 {
		d.budget = 5 << 18
	}
	for plan.Round = round; plan.Count < count; plan.Count++ {
		k := kind
		if p.oneIn(4) {
			k = 0
		}
		d.request(&plan.Request[plan.Count], p.length(k))
	}
	plan.Request[count-1].Flags |= uint32(verbs.SendSignaled) // soft completes in order
	return plan
}

// drawing is a plan that is being drawn.
type drawing struct {
	*planner
	plan                 *fuzzPlan
	target, sink, budget uint32
}

func (d *drawing) request(r *fuzzRequest, n uint32) {
	if n > d.budget {
		n = 0
	}
	r.Len = n
	for _, f := range []struct {
		flag uint32
		n    int
	}{{uint32(verbs.SendSignaled), 2}, {uint32(verbs.SendSolicited), 4}, {uint32(verbs.SendFence), 6}, {fuzzAlone, 3}} {
		if d.oneIn(f.n) {
			r.Flags |= f.flag
		}
	}
	switch r.Op = d.draw(3); r.Op {
	case fuzzWrite:
		d.write(r)
	case fuzzRead:
		d.read(r)
	}
	if r.Op != fuzzRead {
		if r.Len > 0 && int(r.Len) <= d.inline && d.oneIn(3) {
			r.Flags |= uint32(verbs.SendInline)
		}
		d.cut(r, func(n uint32) uint32 { return d.place(n, false) })
	}
	d.budget -= r.Len
}

// write draws the target of a WRITE: a place of its own, or with a fence a place written before.
// READs before the WRITE do not see the later data.
func (d *drawing) write(r *fuzzRequest) {
	if w := d.written(); w != nil && d.oneIn(5) {
		d.narrow(r, w, false)
		r.Flags |= uint32(verbs.SendFence)
		return
	}
	gap := d.draw(fuzzGuard)
	if d.oneIn(4) {
		gap = -d.target % fuzzPage
	}
	r.At = d.target + gap
	d.target = r.At + r.Len
}

// read draws the source of a READ: the peer's source, or what this plan has written before.
func (d *drawing) read(r *fuzzRequest) {
	r.Flags &^= uint32(verbs.SendSolicited)
	if w := d.written(); w != nil && d.oneIn(3) {
		d.narrow(r, w, !d.page)
		r.Flags |= fuzzFromTarget
	} else {
		r.At = d.place(r.Len, !d.page)
	}
	d.cut(r, func(n uint32) uint32 {
		off := d.sink + d.draw(fuzzGuard)
		d.sink = off + n
		return off
	})
}

// cut cuts r into one to six pieces.
func (d *drawing) cut(r *fuzzRequest, place func(n uint32) uint32) {
	most := uint32(1)
	if d.oneIn(2) {
		most += d.draw(fuzzSGE)
	}
	for left := r.Len; left > 0; r.Pieces++ {
		n := left
		if r.Pieces+1 < most {
			n = 1 + d.draw(int(left))
		}
		r.Piece[r.Pieces] = fuzzPiece{place(n), n}
		left -= n
	}
}

// written returns a WRITE of this plan that has bytes, or nil.
func (d *drawing) written() *fuzzRequest {
	for range min(4, d.plan.Count) {
		if r := &d.plan.Request[d.draw(int(d.plan.Count))]; r.Op == fuzzWrite && r.Len > 0 {
			return r
		}
	}
	return nil
}

// narrow makes r's place a part of w's.
func (d *drawing) narrow(r, w *fuzzRequest, whole bool) {
	from := d.draw(int(w.Len))
	r.At, r.Len = w.At+from, 1+d.draw(int(w.Len-from))
	if whole && crosses(r.At, r.Len) {
		r.Len = fuzzPage - r.At%fuzzPage
	}
	if r.Len > d.budget {
		r.Len = 1
	}
}
