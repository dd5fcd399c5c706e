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
	cookie Cookie
	off    uint64 // in the region
	mem    *bounced
}

// piece is one operation of a call.
type piece struct {
	op    OpRef
	local []Segment
	at, n int // offset in what the call moves, and bytes
}

// move posts n bytes in pieces and waits for the last. It returns how many bytes have been
// moved ahead of the first error. After an error it posts nothing more.
func (c *pieces) move(ctx context.Context, n int) (moved int, err error) {
	var flight []piece
	for at := 0; at < n || len(flight) > 0; {
		if err == nil && at < n && len(flight) < piecesAtOnce {
			p := piece{at: at}
			if err = c.post(ctx, &p, min(bounceSize, n-at)); err == nil {
				flight = append(flight, p)
				at += p.n
			}
			continue
		}
		if len(flight) == 0 {
			break
		}
		if at == n && err == nil { // one wait for all; the loop finds what came of each
			_, _, _ = c.s.barrierOrReason(ctx, c.to, flight[len(flight)-1].op, 0)
		}
		p := flight[0]
		flight = flight[1:]
		inUse, why := c.s.settled(ctx, c.to, p.op)
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
	op := &RDMA{Write: c.mem.writes, Cookie: c.cookie, RemoteOff: c.off + uint64(p.at), Local: p.local, Notify: true, Silent: true, OwnerOnly: true}
	if p.op, err = c.s.post(ctx, &Message{Addr: c.to, Op: op}); err != nil {
		_ = c.mem.done(p, false, false)
	}
	return err
}
