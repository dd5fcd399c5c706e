package rds

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// RDMAWrite runs op as a write to the host of the socket at to. It returns when the
// local memory is the caller's again and the outcome is known: nil for Success, else
// Completion.Err. The remote application is not told. Write, Notify, Report and
// Silent of op are ignored, and op is not changed.
//
// ctx limits the wait, and its deadline is the operation's GiveUpAfter as well. If ctx
// ends first, the error is the context's, the outcome is unknown, and the local memory must
// be treated as in use until BarrierAll returns nil. Other errors are those of Send and WaitOp.
// If the host turns out not to be reached before the operation has gone out, the error is the Reason: the
// operation has not run and never will. If it has gone out, it waits, and so does one of Send.
func (s *Socket) RDMAWrite(ctx context.Context, to netip.AddrPort, op *RDMA) error {
	return s.opErr("write", to, s.transfer(ctx, to, op, true))
}

// RDMARead runs op as a read from the host of the socket at to. When it returns nil, the
// data is in op's local memory. Otherwise it is as RDMAWrite.
//
// Source: the synchronous RDMA read of the first RDS design.
func (s *Socket) RDMARead(ctx context.Context, to netip.AddrPort, op *RDMA) error {
	return s.opErr("read", to, s.transfer(ctx, to, op, false))
}

func (s *Socket) transfer(ctx context.Context, to netip.AddrPort, op *RDMA, write bool) error {
	o := *op
	o.Write, o.Notify, o.Report, o.Silent = write, true, false, true
	_, err := s.run(ctx, &Message{Addr: to, Op: &o})
	return err
}

// Atomic runs a, as RDMAWrite runs its operation, and returns the value before it, in
// this host's byte order. If a.Local is zero, the value is only returned. A fetch-and-add is
// &Atomic{Cookie: c, Add: 1}. A compare-and-swap with CmpSwap, Compare and Swap has stored
// Swap if the value before equals Compare.
func (s *Socket) Atomic(ctx context.Context, to netip.AddrPort, a *Atomic) (old uint64, err error) {
	old, err = s.atomic(ctx, to, *a)
	return old, s.opErr("atomic", to, err)
}

func (s *Socket) atomic(ctx context.Context, to netip.AddrPort, a Atomic) (old uint64, err error) {
	a.Notify, a.Report, a.Silent = true, false, true
	if a.Local != (Segment{}) {
		if _, err := s.run(ctx, &Message{Addr: to, Atomic: &a}); err != nil {
			return 0, err
		}
		return s.c.word(a.Local)
	}
	w := &s.c.words
	if a.Local, err = w.take(ctx, s.c); err != nil {
		return 0, err
	}
	pending, err := s.run(ctx, &Message{Addr: to, Atomic: &a})
	if pending.ID != 0 {
		w.lend(lentWord{a.Local, s, pending})
		return 0, err
	}
	if err == nil {
		old, err = s.c.word(a.Local)
	}
	w.put(a.Local)
	return old, err
}

// word reads the 8 bytes of g, unless they have been unmapped.
func (c *Client) word(g Segment) (uint64, error) {
	c.tx.mu.Lock()
	defer c.tx.mu.Unlock()
	if c.tx.dead || g.Buf.freed {
		return 0, ErrClosed
	}
	return binary.NativeEndian.Uint64(g.Buf.mem[g.Off:]), nil
}

// run sends m with its one operation and waits until the operation is locally
// complete and settled. pending names the operation if it may still use its memory.
func (s *Socket) run(ctx context.Context, m *Message) (pending OpRef, err error) {
	op, err := s.post(ctx, m)
	if err != nil {
		return OpRef{}, err
	}
	inUse, err := s.settled(ctx, m.Addr, op)
	if inUse {
		return op, err
	}
	return OpRef{}, err
}

// post sends m with its one operation. The deadline of ctx limits the message, too.
func (s *Socket) post(ctx context.Context, m *Message) (OpRef, error) {
	if at, ok := ctx.Deadline(); ok {
		m.GiveUpAfter = min(max(time.Until(at), time.Millisecond), maxGiveUp)
	}
	if why := s.reason(m.Addr); why != 0 {
		return OpRef{}, why
	}
	id, err := s.Send(ctx, m)
	if err != nil {
		return OpRef{}, cause(err)
	}
	return OpRef{m.Addr.Addr().Unmap(), id}, nil
}

// settled waits until op, which post sent to to, is locally complete and settled. After an
// error nobody waits for op any more; inUse says that it may still use its memory.
func (s *Socket) settled(ctx context.Context, to netip.AddrPort, op OpRef) (inUse bool, err error) {
	why, err := s.complete(ctx, to, op)
	if err != nil {
		s.disown(op)
		return true, cause(err)
	}
	c, err := s.WaitOp(ctx, op.Addr, op.ID)
	if err != nil {
		s.disown(op)
		return false, cause(err)
	}
	switch err = c.Err(); {
	case err != nil && pastDeadline(ctx):
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err) // it gave up for that
	case c.Status == Dropped && why != 0:
		err = fmt.Errorf("%w: %w", err, why)
	}
	return false, err
}

// opErr is the function opErr for an operation to the host of to. If err says that time ran out,
// or that the operation was dropped, and the host is not reached, the error is the Reason, too.
func (s *Socket) opErr(op string, to netip.AddrPort, err error) error {
	if _, said := errors.AsType[Reason](err); said {
		return opErr(op, to, err)
	}
	dropped, is := errors.AsType[*statusError](err)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || is && dropped.status == Dropped && !dropped.nobody() {
		if why := s.reason(to); why != 0 {
			err = fmt.Errorf("%w: %w", err, why)
		}
	}
	return opErr(op, to, err)
}

// pastDeadline reports whether the deadline of ctx has passed by the clock; ctx
// itself may notice it later.
func pastDeadline(ctx context.Context) bool {
	at, ok := ctx.Deadline()
	return ok && !time.Now().Before(at)
}

// cause returns err without its opError, because the caller adds its own.
func cause(err error) error {
	var e *opError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// disown drops the completion of op, now or when it comes, because nobody waits for
// it any more.
func (s *Socket) disown(op OpRef) {
	r := &s.c.rx
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := s.findComp(op.Addr, op.ID); i >= 0 {
		s.comps.remove(i)
		s.queuedComps.Add(-1)
		s.taken()
		return
	}
	if key, ok := s.findAwaited(op.Addr, op.ID); ok {
		op := s.awaited[key]
		op.wanted = false
		s.awaited[key] = op
		s.notifyAll(wantCompletion) // one who waits for it waits in vain
	}
}

// words is the local memory of synchronous atomics. It consists of words of 8 bytes,
// which are made on demand and reused.
type words struct {
	mu     sync.Mutex
	free   []Segment
	lent   []lentWord
	making *making // nil: none are being made
}

// making is a buffer of words that the daemon is making. That may take long, and no
// caller waits longer than its context says.
type making struct {
	done chan struct{}
	err  error // set before done is closed
}

// lentWord is a word of an operation that nobody waits for any more.
type lentWord struct {
	word Segment
	sock *Socket
	op   OpRef
}

const wordsAtOnce = 4096 / atomicSize

// take returns an unused word.
func (w *words) take(ctx context.Context, c *Client) (Segment, error) {
	for {
		g, ok, m := w.try(c)
		if ok {
			return g, nil
		}
		select {
		case <-m.done:
			if m.err != nil {
				return Segment{}, m.err
			}
		case <-ctx.Done():
			return Segment{}, ctx.Err()
		}
	}
}

// try returns an unused word, or the buffer that has to be waited for.
func (w *words) try(c *Client) (g Segment, ok bool, m *making) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reclaim()
	if n := len(w.free); n > 0 {
		g, w.free = w.free[n-1], w.free[:n-1]
		return g, true, nil
	}
	if w.making == nil {
		w.making = &making{done: make(chan struct{})}
		go w.make(c, w.making)
	}
	return Segment{}, false, w.making
}

func (w *words) make(c *Client, m *making) {
	b, err := c.alloc(wordsAtOnce * atomicSize)
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.err = err; err == nil {
		for i := range wordsAtOnce {
			w.free = append(w.free, Segment{b, i * atomicSize, atomicSize})
		}
	}
	w.making = nil
	close(m.done)
}

func (w *words) put(g Segment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g.Buf.Bytes() != nil { // the next daemon may not have taken it
		w.free = append(w.free, g)
	}
}

// forgetFreed drops words of buffers that the next daemon has not taken.
func (w *words) forgetFreed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free = slices.DeleteFunc(w.free, func(g Segment) bool { return g.Buf.Bytes() == nil })
	w.lent = slices.DeleteFunc(w.lent, func(l lentWord) bool { return l.word.Buf.Bytes() == nil })
}

func (w *words) lend(l lentWord) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lent = append(w.lent, l)
}

// reclaim takes back words whose operations are locally complete. For a closed
// socket nobody can tell that, so its words are lost.
func (w *words) reclaim() {
	kept := w.lent[:0]
	for _, l := range w.lent {
		switch {
		case l.sock.closed.Load():
		case reached(l.sock.HWM(l.op.Addr), l.op.ID):
			w.free = append(w.free, l.word)
		default:
			kept = append(kept, l)
		}
	}
	clear(w.lent[len(kept):])
	w.lent = kept
}
