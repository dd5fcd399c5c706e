package worker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/test/ledger/book"
)

// read receives until the socket ends. Now and then it stops for a while. At a shared port it
// may stop for good, so that the socket is closed while it is congested.
func (k *sock) read() {
	rng := k.w.rand(int(k.life) + 1<<30)
	buf := make([]byte, rds.MaxMessage)
	stuck := k.addr == k.w.cfg.Shared.At && rng.Uint32N(1024) < k.w.cfg.Mix.Stuck
	for n := 0; ; n++ {
		for stuck && n > 20 && k.ses.running() && !k.closing.Load() {
			k.ses.rest(5 * time.Millisecond)
		}
		m := rds.Received{Payload: buf}
		if err := k.s.Recv(context.Background(), &m); err != nil {
			k.failed("receive", err)
			if errors.Is(err, rds.ErrWouldBlock) {
				continue // close makes the socket non-blocking first
			}
			return
		}
		k.received(m.Payload[:m.N], &m)
		if rng.Uint32N(1024) < k.w.cfg.Mix.Pauses && k.ses.running() {
			k.ses.rest(time.Duration(100+rng.IntN(1200)) * time.Millisecond)
		}
	}
}

func (k *sock) received(b []byte, m *rds.Received) {
	r := book.Record{Kind: book.Recv, Peer: m.Addr, B: uint64(m.Len), C: uint64(checksum(b))}
	if len(b) < headerSize {
		k.mu.Lock()
		if w := k.seen[m.Addr]; w.inc == m.SrcInc {
			r.A = uint64(w.life)
		}
		k.mu.Unlock()
		k.note(r)
		return
	}
	h := parseHeader(b)
	r.A, r.Seq = uint64(h.life), h.seq
	k.note(r)
	k.mu.Lock()
	k.seen[m.Addr] = who{m.SrcInc, h.life}
	k.mu.Unlock()
	switch {
	case h.flags&book.FlagRoll != 0:
		fmt.Println("rolled")
	case h.flags&book.FlagOffer != 0 && len(b) >= offerSize:
		k.offered(parseOffer(b[headerSize:], m))
	case h.flags&book.FlagOp != 0 && len(b) >= writeSize:
		k.look(h, parseWritten(b[headerSize:]))
	}
}

// look logs whether the memory that a delivered message wrote is right, and spoils it, because
// nothing may write there again. It tells the region's owner that the region is in use.
func (k *sock) look(h header, x written) {
	r := book.Record{Kind: book.Data, A: uint64(h.life), Seq: h.seq, B: x.region, Text: "another's"}
	k.mu.Lock()
	g := k.regions[x.region]
	k.mu.Unlock()
	if g != nil {
		select {
		case g.inUse <- struct{}{}:
		default:
		}
	}
	if x.len == 0 {
		return
	}
	if g == nil {
		if uint32(x.region>>32) == k.life {
			r.Text = "released"
		}
		k.note(r)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state == gone {
		r.Text = "released"
	} else if part := g.buf.Bytes()[x.off:][:x.len]; !bytes.Equal(part, k.w.content(h.life, h.seq, int(x.len))) {
		r.Text = "bad"
	} else {
		r.Text = "ok"
		if g.state == live {
			spoilMemory(part)
			g.spoiled = append(g.spoiled, x)
		}
	}
	k.note(r)
}

// offer is memory of another socket that this one may use.
type offer struct {
	to       netip.AddrPort // owner of the memory
	cookie   rds.Cookie
	region   uint64
	rights   rds.Access
	size     uint32        // of the region
	off, end uint32        // the part that this socket may write
	shared   bool          // granted to all sockets of the host
	time     time.Duration // how long it is to be used; the region ends a little earlier
	until    time.Time
}

func (o offer) put(b []byte) {
	binary.LittleEndian.PutUint64(b, uint64(o.cookie))
	binary.LittleEndian.PutUint64(b[8:], o.region)
	binary.LittleEndian.PutUint32(b[16:], uint32(o.rights))
	binary.LittleEndian.PutUint32(b[20:], o.size)
	binary.LittleEndian.PutUint32(b[24:], o.off)
	binary.LittleEndian.PutUint32(b[28:], o.end)
	binary.LittleEndian.PutUint32(b[36:], uint32(o.time.Milliseconds()))
	b[32] = 0
	if o.shared {
		b[32] = 1
	}
}

func parseOffer(b []byte, m *rds.Received) offer {
	lasts := time.Duration(binary.LittleEndian.Uint32(b[36:])) * time.Millisecond
	return offer{to: m.Addr, cookie: rds.Cookie(binary.LittleEndian.Uint64(b)), region: binary.LittleEndian.Uint64(b[8:]),
		rights: rds.Access(binary.LittleEndian.Uint32(b[16:])), size: binary.LittleEndian.Uint32(b[20:]),
		off: binary.LittleEndian.Uint32(b[24:]), end: binary.LittleEndian.Uint32(b[28:]), shared: b[32] == 1, until: time.Now().Add(lasts + 30*time.Millisecond)}
}

const maxOffers = 16

// offered notes memory that the socket may use. Its siblings see memory that is granted to this
// socket alone. They may try to use it, and must be refused.
func (k *sock) offered(o offer) {
	k.mu.Lock()
	k.offers = append(k.offers, o)
	if n := len(k.offers); n > maxOffers {
		k.offers = k.offers[n-maxOffers:]
	}
	k.mu.Unlock()
	if o.shared {
		return
	}
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	all := append(k.w.offered[k.life], o)
	k.w.offered[k.life] = all[max(0, len(all)-4):]
}
