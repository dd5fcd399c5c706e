package worker

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/test/ledger/book"
)

// States of a region.
const (
	live     = iota
	released // Release has returned: the memory is watched, because nobody may write it
	gone
)

// region is memory that a socket offers.
type region struct {
	id     uint64
	rights rds.Access
	size   int
	inUse  chan struct{} // gets a value when a message with an operation on the region was received

	mu      sync.Mutex
	buf     *rds.Buffer // guarded by mu
	state   int         // guarded by mu
	spoiled []written   // guarded by mu: what was delivered and looked at
}

// wordSize is the size at the start of a region with atomics that is reserved for the two words.
const wordSize = 64

// swapWord is the offset of the compare-and-swap word.
const swapWord = 8

// own offers regions, one after the other.
func (k *sock) own(rng *rand.Rand) {
	for k.ses.running() && !k.closing.Load() {
		rest := 100
		if k.crowd {
			rest *= crowdPace
		}
		k.ses.rest(time.Duration(1+rng.IntN(rest)) * time.Millisecond)
		if err := k.oneRegion(rng); err != nil {
			k.failed("region", err)
			if k.ses.c.Err() != nil {
				return
			}
		}
	}
}

// oneRegion offers one region and takes it back.
func (k *sock) oneRegion(rng *rand.Rand) error {
	g := &region{id: uint64(k.life)<<32 | lastRegion.Add(1)&(1<<32-1), inUse: make(chan struct{}, 1)}
	g.size = 64 << (10 + rng.IntN(3)*2) // 64 KiB, 256 KiB, 1 MiB
	if !k.crowd && rng.Uint32N(1024) < k.w.cfg.Mix.Long {
		g.size = longest
	}
	switch rng.IntN(8) {
	case 0, 1:
		g.rights = rds.AllowRead
	case 2:
		g.rights = rds.AllowAtomic
	case 3:
		g.rights = rds.AllowWrite | rds.UseOnce
	default:
		g.rights = rds.AllowWrite | rds.AllowAtomic
	}
	buf, err := k.ses.c.Alloc(g.size)
	if err != nil {
		return err
	}
	g.buf = buf
	if g.rights&rds.AllowRead != 0 {
		copy(buf.Bytes(), k.w.content(uint32(g.id), g.id>>32, g.size))
	}
	// Some regions end some bytes before the end of their memory and of a page.
	size := g.size - rng.IntN(2)*(8+rng.IntN(100))
	r, err := k.s.Register(buf, 0, size, g.rights)
	if err != nil {
		k.free("region", buf)
		return err
	}
	to := k.w.cfg.Known[rng.IntN(len(k.w.cfg.Known))]
	forHost := rng.IntN(4) == 0
	grantee := to
	if forHost {
		grantee = netip.AddrPortFrom(to.Addr(), 0)
	}
	k.note(book.Record{Kind: book.Region, A: g.id, B: uint64(size), C: uint64(g.rights), Peer: grantee})
	k.mu.Lock()
	k.regions[g.id] = g
	k.mu.Unlock()
	lasts := time.Duration(20+rng.IntN(1000)) * time.Millisecond
	if g.size == longest {
		lasts *= 4
	}
	if err := k.handOut(g, r, offer{size: uint32(size), shared: forHost, time: lasts}, to); err != nil {
		if !k.closing.Load() { // otherwise the daemon may have closed the socket before it looked for the region
			k.failed("offer", err)
		}
	} else {
		k.keepRegion(g, lasts, rng.IntN(2) == 0)
	}
	k.release(g, r, rng)
	return nil
}

// keepRegion waits as long as a region is to last, or until it is in use. In the second case
// other operations on it are in progress when it is released.
func (k *sock) keepRegion(g *region, lasts time.Duration, untilUsed bool) {
	if !untilUsed {
		k.ses.rest(lasts)
		return
	}
	t := time.NewTimer(lasts)
	defer t.Stop()
	select {
	case <-g.inUse:
	case <-t.C:
	case <-k.ses.ctx.Done():
	case <-k.w.settling:
	}
}

// handOut offers the region to those that may use it. Sockets of one host get a part each.
func (k *sock) handOut(g *region, r *rds.Region, o offer, to netip.AddrPort) error {
	o.cookie, o.region, o.rights, o.end = r.Cookie(), g.id, g.rights, o.size
	tell := func(to netip.AddrPort, cookie rds.Cookie) error {
		return k.post(&rds.Message{Addr: to, Cookie: cookie}, offerSize, book.FlagOffer,
			func(b []byte, _ uint64) { o.put(b[headerSize:]) })
	}
	if !o.shared {
		o.off = wordSize
		return tell(to, r.Cookie())
	}
	peer := netip.AddrPortFrom(netip.IPv6Unspecified(), 0) // everybody: then its key is asked for
	if g.id%2 == 0 {
		peer = netip.AddrPortFrom(to.Addr(), 0)
	}
	if err := r.Expose(k.ses.ctx, peer); err != nil {
		return err
	}
	var there []netip.AddrPort
	for _, a := range k.w.cfg.Known {
		if a.Addr() == to.Addr() && len(there) < 4 {
			there = append(there, a)
		}
	}
	part := (o.size - wordSize) / uint32(len(there))
	for i, a := range there {
		o.off = wordSize + uint32(i)*part
		o.end = o.off + part
		if err := tell(a, 0); err != nil {
			k.failed("offer", err)
		}
	}
	return nil
}

// release releases the region and watches its memory for a while.
func (k *sock) release(g *region, r *rds.Region, rng *rand.Rand) {
	k.note(book.Record{Kind: book.Release, A: g.id})
	ctx, cancel := context.WithTimeout(k.ses.ctx, 60*time.Second)
	err := r.Release(ctx)
	cancel()
	done := book.Record{Kind: book.Freed, A: g.id}
	if err != nil {
		done.Text = err.Error()
		k.note(done)
		k.failed("release", err)
		k.forget(g)
		return
	}
	g.mu.Lock()
	g.state = released
	for _, x := range g.spoiled {
		if !isSpoiled(g.buf.Bytes()[x.off:][:x.len]) {
			k.note(book.Record{Kind: book.Wrong, A: g.id, Text: fmt.Sprintf("memory at %d of region %#x was written again after its message had been delivered", x.off, g.id)})
			break
		}
	}
	words := book.Record{Kind: book.Words, A: g.id, C: binary.LittleEndian.Uint64(g.buf.Bytes()), B: binary.LittleEndian.Uint64(g.buf.Bytes()[swapWord:])}
	if g.rights&rds.AllowRead != 0 {
		spoilMemory(g.buf.Bytes()) // so that an operation that still reads the memory shows
	}
	sum := checksum(g.buf.Bytes())
	g.mu.Unlock()
	k.note(done)
	if g.rights&rds.AllowAtomic != 0 {
		k.note(words)
	}
	k.ses.rest(time.Duration(50+rng.IntN(300)) * time.Millisecond)
	after := book.Record{Kind: book.After, A: g.id}
	if g.mu.Lock(); checksum(g.buf.Bytes()) != sum {
		after.Text = "it was written"
	}
	g.mu.Unlock()
	k.note(after)
	k.forget(g)
}

// forget ends a region and frees its memory.
func (k *sock) forget(g *region) {
	k.mu.Lock()
	delete(k.regions, g.id)
	k.mu.Unlock()
	g.mu.Lock()
	g.state = gone
	g.mu.Unlock()
	k.free("region", g.buf)
}
