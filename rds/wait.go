package rds

import (
	"context"
	"net/netip"
)

// OpRef names an operation by its destination host and its barrier id.
type OpRef struct {
	Addr netip.Addr
	ID   uint64
}

// WaitSet is a set of conditions to wait for.
type WaitSet struct {
	Message    bool             // a message can be received
	SendSpace  bool             // the send buffer has room
	SendTo     []netip.AddrPort // a message can be sent to these: the send buffer has room, and they are not congested
	Completion bool             // a completion, of any operation, is queued
	Notice     bool             // a notice is queued
	ZeroCopy   bool             // a zero-copy cookie came back
	Op         []OpRef          // these operations are locally complete
	Status     []OpRef          // completions of these operations are queued
	Relief     []netip.AddrPort // these destinations are not congested

	congestion bool // see krds.Congestion
}

// empty reports whether w has no condition.
func (w *WaitSet) empty() bool {
	return !w.Message && !w.SendSpace && !w.Completion && !w.Notice && !w.ZeroCopy && !w.congestion &&
		len(w.SendTo)+len(w.Op)+len(w.Status)+len(w.Relief) == 0
}

// sends reports whether w has conditions of sending.
func (w *WaitSet) sends() bool { return w.SendSpace || len(w.SendTo)+len(w.Relief) > 0 }

// interest returns what can make a condition of w true.
func (w *WaitSet) interest() interest {
	var in interest
	for _, x := range []struct {
		on bool
		in interest
	}{
		{w.Message, wantMessage}, {w.SendSpace, wantSpace | wantMemory}, {w.Completion || len(w.Status) > 0, wantCompletion},
		{w.Notice, wantNotice}, {w.ZeroCopy, wantZeroCopy}, {w.congestion, wantCongestion}, {len(w.Op) > 0, wantBarrier}, {len(w.Relief) > 0, wantRelief},
		{len(w.SendTo) > 0, wantSpace | wantMemory | wantRelief},
	} {
		if x.on {
			in |= x.in
		}
	}
	return in
}

// Wait waits until at least one condition of w holds and returns those that hold. It
// takes nothing: by the next call another goroutine may have taken the message or
// filled the send buffer. With DontWait it only looks: ErrWouldBlock if none holds.
//
// Errors: the context's; ErrInvalid for an empty set, for an operation in Op that
// was not issued, and for an operation in Status whose completion will not come,
// because the operation did not ask for one or it was taken; ErrClosed;
// ErrDaemonGone and ErrSession if no condition holds, the first also of a socket that could not be bound
// again (Options.Reopen); ErrOverrun if no condition holds and w has one about sending or receiving messages.
//
// Source: the poll conditions of rds(7): data, send space, completions,
// congestion relief.
func (s *Socket) Wait(ctx context.Context, w WaitSet) (WaitSet, error) {
	if w.empty() {
		return WaitSet{}, opErr("wait", netip.AddrPort{}, invalid("nothing to wait for"))
	}
	var ready WaitSet
	err := s.waitUntil(ctx, w.interest(), func(arm bool) (bool, error) {
		var err error
		ready, err = s.ready(&w, arm)
		if err == nil && ready.empty() && (w.Message || w.sends() || s.lost()) {
			err = s.ended()
		}
		return !ready.empty(), err
	})
	return ready, opErr("wait", netip.AddrPort{}, err)
}

// lost reports that s has ended and no daemon has it. Nothing comes for it then. For a socket that was overrun, what
// it had sent still does.
func (s *Socket) lost() bool {
	if s.ended() == nil {
		return false
	}
	r := &s.c.rx
	r.mu.Lock()
	defer r.mu.Unlock()
	_, lost := r.apart[s]
	return lost
}

// ready returns the conditions of w that hold. With arm it asks the daemon to
// announce the others.
func (s *Socket) ready(w *WaitSet, arm bool) (WaitSet, error) {
	var got WaitSet
	for _, o := range w.Op {
		_, ok, err := s.barrierTry(o.Addr.Unmap(), o.ID, arm)
		if err != nil {
			return WaitSet{}, err
		}
		if ok {
			got.Op = append(got.Op, o)
		}
	}
	s.readySend(w, &got, arm)

	r := &s.c.rx
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.closed.Load() {
		return WaitSet{}, ErrClosed
	}
	r.takeEvents()
	got.Message = w.Message && s.unread()
	got.Completion = w.Completion && s.comps.len() > 0
	got.Notice = w.Notice && s.notices.len() > 0
	got.ZeroCopy = w.ZeroCopy && s.zcDone.len() > 0
	got.congestion = w.congestion && s.cong.update != 0
	for _, o := range w.Status {
		switch i, err := s.findStatus(o.Addr.Unmap(), o.ID); {
		case err != nil:
			return WaitSet{}, err
		case i >= 0:
			got.Status = append(got.Status, o)
		}
	}
	return got, nil
}

// readySend checks the conditions of sending.
func (s *Socket) readySend(w, got *WaitSet, arm bool) {
	t := &s.c.tx
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, away := s.c.state().(*outage); away || t.dead {
		return
	}
	sends := w.SendSpace || len(w.SendTo) > 0
	if sends || w.ZeroCopy || len(t.over) > 0 {
		t.reap()
	}
	room := sends && !s.full(arm) && len(t.free) > 0 && !t.starved
	got.SendSpace = w.SendSpace && room
	for _, to := range w.SendTo {
		if d := s.dests[normal(to)]; (d == nil || t.relieved(d, arm)) && room {
			got.SendTo = append(got.SendTo, to)
		}
	}
	for _, to := range w.Relief {
		if d := s.dests[normal(to)]; d == nil || t.relieved(d, arm) {
			got.Relief = append(got.Relief, to)
		}
	}
}

// relieved reports whether d is not congested. If d is congested, arm asks the
// daemon to announce its relief. mu is held.
func (t *tx) relieved(d *dest, arm bool) bool {
	if d.congested() {
		if arm {
			t.c.seg.WantSlot(d.slot).SetRelief()
		}
		if !arm || d.congested() {
			return false
		}
	}
	return !d.over
}

// waitUntil calls try until it reports true or an error. In between it waits for
// what want names. arm is set once the caller is registered as a waiter: from then
// on no wake-up is missed.
func (s *Socket) waitUntil(ctx context.Context, want interest, try func(arm bool) (bool, error)) error {
	var w *waiter
	for {
		gone := s.c.Err() // ahead of the look, which finds what came before the end
		ok, err := try(w != nil)
		if !ok && err == nil {
			err = gone
		}
		if !ok && err == nil {
			err = ctx.Err()
		}
		switch {
		case ok || err != nil:
			s.endWait(&w)
			if err == ErrWouldBlock && s.pollLooks.Load() {
				s.pollLook() // the descriptor must tell when it is worth another try
			}
			return err
		case w == nil:
			w = s.enter(want, true) // and look again
		default:
			s.c.parkContext(ctx, w)
			s.endWait(&w)
		}
	}
}

// parkContext parks until w is signalled or ctx ends.
func (c *Client) parkContext(ctx context.Context, w *waiter) {
	if ctx.Done() != nil {
		gen := w.gen
		stop := context.AfterFunc(ctx, func() { c.wait.signal(w, gen) })
		defer stop()
	}
	c.park(w)
}
