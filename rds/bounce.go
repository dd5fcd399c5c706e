package rds

import (
	"slices"
	"sync"
)

const (
	// bounceSize is the size of a bounce buffer, bytes: long enough for the speed of
	// the network, short enough to copy one while others are in flight.
	bounceSize = 256 << 10
	// bouncesKept is how many unused bounce buffers a client keeps.
	bouncesKept = piecesAtOnce
)

// bounces are buffers through which RemoteRegion moves the memory of its callers, which
// is in no Buffer.
type bounces struct {
	mu   sync.Mutex
	free []*Buffer
}

// take returns an unused buffer.
func (x *bounces) take(c *Client) (*Buffer, error) {
	x.mu.Lock()
	if n := len(x.free); n > 0 {
		defer x.mu.Unlock()
		b := x.free[n-1]
		x.free = x.free[:n-1]
		return b, nil
	}
	x.mu.Unlock()
	return c.alloc(bounceSize)
}

// put takes b back. If an operation may still use b, or enough are kept, b is freed when
// nothing uses it any more.
func (x *bounces) put(b *Buffer, inUse bool) {
	x.mu.Lock()
	keep := !inUse && len(x.free) < bouncesKept && b.Bytes() != nil
	if keep {
		x.free = append(x.free, b)
	}
	x.mu.Unlock() // forgetFreed takes it with c.life held
	if !keep {
		_ = b.FreeWait(DontWait)
	}
}

// forgetFreed drops buffers that the next daemon has not taken.
func (x *bounces) forgetFreed() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.free = slices.DeleteFunc(x.free, func(b *Buffer) bool { return b.Bytes() == nil })
}

// bounced is the memory p of a caller.
type bounced struct {
	c      *Client
	p      []byte
	writes bool
}

func (m *bounced) take(p *piece, n int) error {
	b, err := m.c.bounces.take(m.c)
	if err != nil {
		return err
	}
	p.local, p.n = []Segment{{b, 0, n}}, n
	if m.writes {
		return m.c.inBuffer(b, func(mem []byte) { copy(mem, m.p[p.at:p.at+n]) })
	}
	return nil
}

func (m *bounced) done(p *piece, inUse, ok bool) (err error) {
	if ok && !m.writes {
		err = m.c.inBuffer(p.local[0].Buf, func(mem []byte) { copy(m.p[p.at:], mem[:p.n]) })
	}
	m.c.bounces.put(p.local[0].Buf, inUse)
	return err
}

// inBuffer runs f on the memory of b, which stays mapped so long.
func (c *Client) inBuffer(b *Buffer, f func(mem []byte)) error {
	c.tx.mu.Lock()
	if c.tx.dead || b.freed {
		c.tx.mu.Unlock()
		return ErrClosed
	}
	c.pins.Add(1)
	c.tx.mu.Unlock()
	defer c.pins.Done()
	f(b.mem)
	return nil
}
