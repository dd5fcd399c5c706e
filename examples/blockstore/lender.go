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
// If no buffer is free, take looks at the high-water marks. If they free no buffer either,
// one goroutine for each destination with lent buffers waits at the barrier. So a slow
// destination delays only its own buffers.
//
// A lender is safe for concurrent use.
type lender struct {
	// barrier is (*rds.Socket).Barrier.
	barrier func(ctx context.Context, to netip.Addr, id uint64) (uint64, error)
	hwm     func(to netip.Addr) uint64 // (*rds.Socket).HWM
	free    chan *rds.Buffer

	ctx    context.Context // ends the waiting at barriers
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	lent    map[netip.Addr][]loan
	waiting map[netip.Addr]bool // a goroutine waits at the barrier
	takers  int                 // goroutines that wait for a buffer
}

// loan is one buffer that an operation has.
type loan struct {
	id  uint64
	buf *rds.Buffer
}

func newLender(buffers []*rds.Buffer, hwm func(netip.Addr) uint64,
	barrier func(context.Context, netip.Addr, uint64) (uint64, error),
) *lender {
	l := &lender{hwm: hwm, barrier: barrier, free: make(chan *rds.Buffer, len(buffers)),
		lent: map[netip.Addr][]loan{}, waiting: map[netip.Addr]bool{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	for _, b := range buffers {
		l.free <- b
	}
	return l
}

// tryTake returns a free buffer, or nil if no buffer is free.
func (l *lender) tryTake() *rds.Buffer {
	for range 2 {
		select {
		case b := <-l.free:
			return b
		default:
			l.look()
		}
	}
	return nil
}

// take waits for a free buffer. It returns nil if ctx ends first.
func (l *lender) take(ctx context.Context) *rds.Buffer {
	if b := l.tryTake(); b != nil {
		return b
	}
	l.want(1)
	defer l.want(-1)
	select {
	case b := <-l.free:
		return b
	case <-ctx.Done():
		return nil
	}
}

// want adds n to the number of takers that wait.
func (l *lender) want(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.takers += n
	for to := range l.lent {
		l.wait(to)
	}
}

// look takes back the buffers of operations that the high-water marks have passed.
func (l *lender) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for to := range l.lent {
		l.settle(to, l.hwm(to))
	}
}

// wait starts a goroutine that waits for the buffers lent for one destination, if a taker
// waits and there is no such goroutine yet. mu is held.
func (l *lender) wait(to netip.Addr) {
	if l.takers > 0 && !l.waiting[to] {
		l.waiting[to] = true
		l.wg.Go(func() { l.reclaim(to) })
	}
}

// put returns a buffer that no operation uses.
func (l *lender) put(b *rds.Buffer) { l.free <- b }

// lend gives b to the operation id of destination to.
func (l *lender) lend(to netip.Addr, id uint64, b *rds.Buffer) {
	l.mu.Lock()
	l.lent[to] = append(l.lent[to], loan{id, b})
	l.wait(to)
	l.mu.Unlock()
}

// reclaim takes back the buffers lent for one destination until none is lent.
func (l *lender) reclaim(to netip.Addr) {
	for {
		l.mu.Lock()
		loans := l.lent[to]
		if len(loans) == 0 {
			delete(l.waiting, to)
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
		l.mu.Lock()
		l.settle(to, hwm)
		l.mu.Unlock()
	}
}

// settle puts back the buffers of operations up to hwm. mu is held.
func (l *lender) settle(to netip.Addr, hwm uint64) {
	kept := l.lent[to][:0]
	for _, o := range l.lent[to] {
		if o.id > hwm {
			kept = append(kept, o)
			continue
		}
		l.free <- o.buf // never blocks: the channel holds all buffers
	}
	if l.lent[to] = kept; len(kept) == 0 {
		delete(l.lent, to)
	}
}

// stop ends the waiting. Buffers that are still lent do not come back.
func (l *lender) stop() {
	l.cancel()
	l.wg.Wait()
}
