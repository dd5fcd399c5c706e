package main

import (
	"context"
	"net/netip"
	"sync"

	"github.com/rdsd/rdsd/rds"
)

// lender owns the server's buffers. The caller of take has the buffer until the caller
// puts it back or lends it to an operation. A lent buffer comes back when the high-water
// mark of the operation's destination has reached the operation's id. Then nothing can
// touch the memory any more, whatever the operation's status.
//
// lender is safe for concurrent use. One goroutine for each destination with lent buffers
// waits at the barrier, so a slow destination delays only its own buffers.
type lender struct {
	// barrier is (*rds.Socket).Barrier.
	barrier func(ctx context.Context, to netip.Addr, id uint64) (uint64, error)
	free    chan *rds.Buffer

	ctx    context.Context // ends the waiting at barriers
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex // guards lent
	lent map[netip.Addr][]loan
}

// loan is one buffer that an operation has.
type loan struct {
	id  uint64
	buf *rds.Buffer
}

func newLender(buffers []*rds.Buffer, barrier func(context.Context, netip.Addr, uint64) (uint64, error)) *lender {
	l := &lender{barrier: barrier, free: make(chan *rds.Buffer, len(buffers)), lent: map[netip.Addr][]loan{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	for _, b := range buffers {
		l.free <- b
	}
	return l
}

// take waits for a free buffer. It returns nil if ctx ends first.
func (l *lender) take(ctx context.Context) *rds.Buffer {
	select {
	case b := <-l.free:
		return b
	case <-ctx.Done():
		return nil
	}
}

// put returns a buffer that no operation uses.
func (l *lender) put(b *rds.Buffer) { l.free <- b }

// lend gives b to the operation id of destination to.
func (l *lender) lend(to netip.Addr, id uint64, b *rds.Buffer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, waiting := l.lent[to]
	l.lent[to] = append(l.lent[to], loan{id, b})
	if !waiting {
		l.wg.Go(func() { l.reclaim(to) })
	}
}

// reclaim takes back the buffers lent for one destination until none is lent.
func (l *lender) reclaim(to netip.Addr) {
	for {
		l.mu.Lock()
		loans := l.lent[to]
		if len(loans) == 0 {
			delete(l.lent, to)
			l.mu.Unlock()
			return
		}
		first := loans[0].id
		for _, o := range loans {
			first = min(first, o.id) // workers lend in any order
		}
		l.mu.Unlock()

		hwm, err := l.barrier(l.ctx, to, first)
		if err != nil {
			return // stopped, or the daemon is gone: the buffers stay lent
		}
		l.settle(to, hwm)
	}
}

// settle puts back the buffers of operations up to hwm.
func (l *lender) settle(to netip.Addr, hwm uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := l.lent[to][:0]
	for _, o := range l.lent[to] {
		if o.id > hwm {
			kept = append(kept, o)
			continue
		}
		l.free <- o.buf // never blocks: the channel holds all buffers
	}
	l.lent[to] = kept
}

// stop ends the waiting. Buffers that are still lent do not come back.
func (l *lender) stop() {
	l.cancel()
	l.wg.Wait()
}
