package store

import (
	"context"
	"fmt"
	"sync"

	"github.com/rdsd/rdsd/rds"
)

// grant is memory of the server that this client may write into. It consists of buffers of
// one block each.
type grant struct {
	cookie rds.Cookie
	number uint32 // requests name it, so that the server knows those of an earlier grant
	size   int    // bytes of a buffer
	free   chan uint32
	gone   chan struct{} // closed when the grant is over
}

// grants has the current grant of a client. The first push asks the server for it. It is
// safe for concurrent use.
type grants struct {
	asking sync.Mutex // held while a goroutine asks the server

	mu  sync.Mutex // guards cur
	cur *grant
}

// current returns the current grant, or nil if there is none.
func (g *grants) current() *grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cur
}

// take waits for a free buffer of the server.
func (g *grants) take(ctx context.Context, c *Client) (*grant, uint32, error) {
	limit, cancel := context.WithTimeout(ctx, c.Wait.GiveUp)
	defer cancel()
	for {
		cur := g.current()
		if cur == nil {
			var err error
			if cur, err = g.ask(ctx, c); err != nil {
				return nil, 0, err
			}
		}
		select {
		case i := <-cur.free:
			return cur, i, nil
		case <-cur.gone:
		case <-limit.Done():
			if ctx.Err() != nil {
				return nil, 0, context.Cause(ctx)
			}
			return nil, 0, fmt.Errorf("%v: no buffer of the server came free for %v", c.Server, c.Wait.GiveUp)
		}
	}
}

// ask gets a grant from the server, unless another goroutine has just done so.
func (g *grants) ask(ctx context.Context, c *Client) (*grant, error) {
	g.asking.Lock()
	defer g.asking.Unlock()
	if cur := g.current(); cur != nil {
		return cur, nil
	}
	a, err := c.Ask(ctx, Message{Kind: KindGrant})
	if err != nil {
		return nil, err
	}
	cookie := rds.Cookie(a.Session) // see Client.take
	if a.Kind != KindGranted || cookie == 0 || int64(a.BlockSize) < int64(c.Block) || a.Window == 0 || a.Window > maxInHand || a.Block > 0xffff {
		return nil, fmt.Errorf("%v: unusable answer to GRANT: %v, %d buffers of %d bytes", c.Server, a.Kind, a.Window, a.BlockSize)
	}
	cur := &grant{cookie: cookie, number: uint32(a.Block), size: int(a.BlockSize),
		free: make(chan uint32, a.Window), gone: make(chan struct{})}
	for i := range a.Window {
		cur.free <- i
	}
	g.mu.Lock()
	g.cur = cur
	g.mu.Unlock()
	return cur, nil
}

// drop ends dead if it is the current grant. The next push then asks for another one.
func (g *grants) drop(dead *grant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cur == dead {
		g.cur = nil
		close(dead.gone)
	}
}
