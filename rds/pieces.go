package rds

import (
	"context"
	"net/netip"
)

// piecesAtOnce is how many operations of one call are in flight.
const piecesAtOnce = 16

// pieces is a call of RemoteRegion. It is cut into operations, of which piecesAtOnce are in
// flight.
type pieces struct {
	s      *Socket
	to     netip.AddrPort
	kind   OpKind
	cookie Cookie
	off    uint64 // in the region
	mem    localMemory
}

// piece is one operation of a call.
type piece struct {
	op    OpRef
	local []Segment
	at, n int // offset in what the call moves, and bytes
}

// localMemory gives the pieces of a call their local memory.
type localMemory interface {
	longest() int // bytes of a piece
	// take sets the memory of p, which begins where the piece before it ended: n bytes or
	// less.
	take(p *piece, n int) error
	// done ends the use of a piece's memory. inUse: an operation may still use it.
	done(p *piece, inUse, ok bool) error
}

// move posts n bytes in pieces and waits for the last. It returns how many bytes have been
// moved ahead of the first error. After an error it posts nothing more.
func (c *pieces) move(ctx context.Context, n int) (moved int, err error) {
	var flight []piece
	for at := 0; at < n || len(flight) > 0; {
		if err == nil && at < n && len(flight) < piecesAtOnce {
			p := piece{at: at}
			if err = c.post(ctx, &p, min(c.mem.longest(), n-at)); err == nil {
				flight = append(flight, p)
				at += p.n
			}
			continue
		}
		if len(flight) == 0 {
			break
		}
		if at == n && err == nil { // one wait for all; the loop finds what came of each
			last := flight[len(flight)-1].op
			_, _ = c.s.Barrier(ctx, last.Addr, last.ID)
		}
		p := flight[0]
		flight = flight[1:]
		inUse, why := c.s.settled(ctx, p.op)
		if e := c.mem.done(&p, inUse, why == nil); why == nil {
			why = e
		}
		if err == nil {
			err = why
		}
		if err == nil {
			moved += p.n
		}
	}
	return moved, err
}

func (c *pieces) post(ctx context.Context, p *piece, n int) (err error) {
	if err = c.mem.take(p, n); err != nil {
		return err
	}
	op := &RDMA{Kind: c.kind, Cookie: c.cookie, RemoteOff: c.off + uint64(p.at), Local: p.local, Notify: true, Silent: true, OwnerOnly: true}
	if p.op, err = c.s.post(ctx, &Message{Addr: c.to, Op: op}); err != nil {
		_ = c.mem.done(p, false, false)
	}
	return err
}

// inPlace is the caller's own memory in a Buffer: what is left of it.
type inPlace struct{ local Segment }

func (m *inPlace) longest() int { return MaxTransfer }

func (m *inPlace) take(p *piece, n int) error {
	p.local, p.n = []Segment{{m.local.Buf, m.local.Off, n}}, n
	m.local.Off += n
	return nil
}

func (m *inPlace) done(*piece, bool, bool) error { return nil }
