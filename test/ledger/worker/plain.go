package worker

import (
	"context"
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/test/ledger/book"
)

// size draws the size of a message or operation. Each power of two is as likely as another, so
// most sizes are small.
func (k *sock) size(least int) int {
	bits := 16
	if !k.crowd && k.rng.Uint32N(1024) < k.w.cfg.Mix.Large {
		bits = 20
	}
	return max(least, k.rng.IntN(1<<k.rng.IntN(bits+1)+1))
}

// limit gives some messages a GiveUpAfter.
func (k *sock) limit(m *rds.Message) (flags uint32) {
	if k.rng.Uint32N(1024) >= k.w.cfg.Mix.Limits {
		return 0
	}
	m.GiveUpAfter = time.Duration(1+k.rng.IntN(500)) * time.Millisecond
	return book.FlagLimit
}

// plain sends a message without operations. Sometimes it sends another one behind it that is too
// short for a number.
func (k *sock) plain(to netip.AddrPort) error {
	rng := k.rng
	m, ctx := rds.Message{Addr: to}, rds.DontWait
	if rng.IntN(8) == 0 {
		ctx = context.Background()
		_ = k.s.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	}
	flags, size := k.limit(&m), k.size(headerSize)
	if rng.IntN(4) == 0 {
		flags |= book.FlagCookie
		k.inPlace(&m, size)
	}
	meant := uint32(0)
	if rng.IntN(16) == 0 {
		m.DstInc, meant = k.whoIs(to)
	}
	k.send.Lock()
	defer k.send.Unlock()
	if err := k.postLocked(ctx, &m, size, flags, meant, nil); err != nil {
		return err
	}
	if rng.IntN(8) == 0 {
		m.From = rds.Segment{}
		return k.postLocked(ctx, &m, rng.IntN(headerSize), flags, meant, nil)
	}
	return nil
}

// inPlace makes half of the messages be sent from registered memory, if there is room.
func (k *sock) inPlace(m *rds.Message, size int) {
	if k.rng.IntN(2) == 0 {
		return
	}
	seg, before, ok := k.local.take(size)
	if before != 0 {
		k.note(book.Record{Kind: book.Touched, Seq: before})
	}
	if ok {
		m.From = seg
	}
}

// who is a socket from which the application has received a message.
type who struct{ inc, life uint32 }

// whoIs returns the socket that was last known at an address.
func (k *sock) whoIs(at netip.AddrPort) (inc, life uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.seen[at]
	return w.inc, w.life
}
