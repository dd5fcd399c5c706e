package sim

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"syscall"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/rds"
)

// pumpWaiter sleeps for a process inside a call that waits: it runs the world until somebody
// rings.
type pumpWaiter struct {
	c    *client
	rung atomic.Bool // also set by the library's own goroutine, when the daemon ends
}

func (p *pumpWaiter) Wait(int64) {
	p.c.h.kick() // the engine has to see what was submitted before
	for !p.rung.Swap(false) {
		if p.c.gone {
			runtime.Gosched() // the library notices the end without help
			return
		}
		p.c.h.w.pump()
	}
}

func (p *pumpWaiter) Ring()        { p.rung.Store(true) }
func (p *pumpWaiter) Close() error { return nil }

// blocking runs a call that waits. The world goes on during the call, without new load.
func (c *client) blocking(call func()) {
	w := c.h.w
	w.depth++
	c.waits++
	call()
	w.depth--
	if c.waits--; c.waits == 0 && c.gone {
		_ = c.c.Close()
	}
}

// addNow does a fetch-and-add that waits for its outcome.
func (e *endpoint) addNow(r *region) {
	w := e.w
	k := pick(w.rOp, r.words...)
	if !k.counted || k.n == perCounted || e.h.pausing.on { // a full ring that no daemon empties would hold the call for ever, in real time
		return
	}
	o := &op{w: w, token: uint64(len(w.ops) + 1), e: e, r: r, a: &atomicOp{word: k, kind: abi.OpFetchAdd, add: 1 << (2 * k.n)}, off: k.off, n: 8}
	o.flags.Notify = true
	k.n++
	to := r.e.ap
	f := e.flow(to)
	s := w.newMessage()
	*s = message{id: uint64(len(w.msgs) + 1), flow: f, idx: len(f.msgs), met: e.h.met[to.Addr()], at: w.now(), silent: true, ops: []*op{o}}
	f.msgs = append(f.msgs, s)
	w.msgs = append(w.msgs, s)
	cell := e.cell(to.Addr())
	o.issued(s, uint64(len(cell.ops)+1), w.tick())
	w.log(e.h, "add", int64(s.id), int64(o.token), int64(r.id))

	e.h.turn() // the call would wait in real time if the submission ring were full
	var old uint64
	var err error
	e.busy = true
	e.vague |= portBit(to)
	e.c.blocking(func() {
		old, err = e.s.Atomic(context.Background(), to, &rds.Atomic{Cookie: r.r.Cookie(), RemoteOff: uint64(k.off), Add: o.a.add})
	})
	e.busy = false
	w.log(e.h, "added", int64(o.token), int64(old), 0)
	if !e.open {
		return
	}
	fate := rds.Completion{Token: o.token, ID: o.id, To: to.Addr()}
	switch {
	case err == nil:
		fate.Status = rds.Success
		o.a.old, o.a.taken = old, true
	case errors.Is(err, rds.ErrCompletionsFull), errors.Is(err, rds.ErrTooManyDestinations), errors.Is(err, syscall.ENOMEM),
		errors.Is(err, syscall.ENOBUFS) && !errors.Is(err, rds.RemoteError), unreached(err) && !errors.Is(err, rds.Dropped):
		// The operation was not sent.
		cell.ops = cell.ops[:len(cell.ops)-1]
		o.unsent = true
		fate.Status, fate.Errno = rds.RemoteError, syscall.ENOBUFS
		o.fate = &fate
		return
	case errors.Is(err, rds.RemoteError):
		fate.Status = rds.RemoteError
		for _, errno := range []syscall.Errno{syscall.EINVAL, syscall.EACCES, syscall.ERANGE, syscall.EOPNOTSUPP, syscall.ENOBUFS} {
			if errors.Is(err, errno) {
				fate.Errno = errno
			}
		}
	case errors.Is(err, rds.Dropped):
		fate.Status = rds.Dropped
	case errors.Is(err, rds.Unknown):
		fate.Status = rds.Unknown
	default:
		broken("harness", "fetch and add: %v", err)
	}
	if h := e.s.HWM(to.Addr()); h < o.id {
		broken("HWM", "of %v to %v is %d when operation %d, id %d, has returned", e.ap, to.Addr(), h, o.token, o.id)
	}
	o.fate = &fate
	o.judge(fate)
	e.poll()
}

// unreached reports whether err is that a host is not reached.
func unreached(err error) bool {
	_, is := errors.AsType[rds.Reason](err)
	return is
}
