package sim

import (
	"context"
	"errors"
	"net/netip"

	"github.com/rdsd/rdsd/internal/krds"
	"github.com/rdsd/rdsd/rds"
)

// endpoint is a bound socket from bind to close.
type endpoint struct {
	w       *world
	id      int
	h       *host
	c       *client
	s       *rds.Socket
	ap      netip.AddrPort
	life    int // life of h in which it was bound
	lane    uint8
	open    bool
	busy    bool  // inside a call that waits for an operation; no other code takes statuses then
	stalled int64 // reads nothing until this time
	knows   []*region
	regions []*region // regions that it owns and has not released
	cells   []*cell   // in order of first use

	folded    uint64           // messages that notices counted without naming their destination
	offers    uint64           // how often it offered a region for one use, by cookie or Expose
	ungranted uint64           // how many of these offers were refused, by its notices
	doubts    []doubt          // about its regions
	muted     bool             // gets no notices of peers that come and go
	monitored bool             // SetCongMonitor
	anybody   bool             // SetAnybody
	congested []netip.AddrPort // destinations whose relief is to be reported
	vague     uint64           // ports modulo 64: CongUpdates may report more of them than the ledger knows
	zeros     []*zero
	inBarrier bool
}

// portInfo is the history of an address and port.
type portInfo struct {
	bound   *endpoint
	gapFrom int64 // since when it is unbound, or the end of the last time it was
}

// unboundSince reports whether no socket was bound at ap at some moment since t.
func (w *world) unboundSince(ap netip.AddrPort, t int64) bool {
	p := w.ports[ap]
	return p == nil || p.bound == nil || p.gapFrom >= t
}

// bind binds a socket. Port 0 takes a free port of the host's range.
func (c *client) bind(port uint16) *endpoint {
	w := c.h.w
	for p := uint16(100); port == 0; p++ {
		ap := netip.AddrPortFrom(c.h.addr, p)
		if i := w.ports[ap]; i == nil || i.bound == nil {
			port = p
		}
	}
	ap := netip.AddrPortFrom(c.h.addr, port)
	s, err := c.c.Bind(ap)
	if !c.h.up || c.gone {
		return nil
	}
	must(err)
	e := &endpoint{w: w, id: w.nextEp, h: c.h, c: c, s: s, ap: ap, life: c.h.life, open: true}
	w.nextEp++
	must(s.SetSndBuf(w.opt.sndBuf))
	must(s.SetRcvBuf(w.opt.rcvBuf))
	if w.opt.lanes > 0 {
		e.lane = pick(w.rBind, w.opt.laneV[:w.opt.lanes]...)
		must(s.SetLane(e.lane))
	}
	if w.opt.anybody > 0 && w.rAnybody.IntN(100) < w.opt.anybody {
		e.anybody = true
		must(s.SetAnybody(true))
	}
	if w.opt.peerless && w.rBind.IntN(3) == 0 {
		e.muted = true
		s.SetNotices(rds.Lost, rds.NoSocket, rds.GaveUp, rds.NotGranted)
	}
	if w.opt.monitor {
		e.monitored = w.rBind.IntN(2) == 0
		krds.Of(s).SetCongMonitor(e.monitored)
	}
	i := w.ports[ap]
	if i == nil {
		i = &portInfo{}
		w.ports[ap] = i
	}
	i.bound, i.gapFrom = e, w.now()
	w.eps = append(w.eps, e)
	c.eps = append(c.eps, e)
	w.log(c.h, "bind", int64(port), int64(e.lane), 0)
	return e
}

// close closes the socket in an orderly way.
func (e *endpoint) close() {
	e.w.log(e.h, "close", int64(e.ap.Port()), 0, 0)
	for _, c := range e.cells {
		c.poll() // what the mark says now still counts
	}
	e.forgetWith(func() { must(e.s.Close()) })
}

// closeWait closes the socket when all that it sent has been acknowledged. The world goes on
// while it waits.
func (e *endpoint) closeWait() {
	w := e.w
	w.log(e.h, "closewait", int64(e.ap.Port()), 0, 0)
	for _, c := range e.cells {
		c.poll()
	}
	e.forgetWith(func() {
		var err error
		e.c.blocking(func() {
			w.rWork.IntN(2)
			err = e.s.CloseWait(context.Background())
		})
		if errors.Is(err, rds.ErrDaemonGone) && e.c.gone {
			return
		}
		var kind rds.NoticeKind
		var status rds.Status
		if !errors.As(err, &kind) && !errors.As(err, &status) { // else nobody has taken the news of a loss yet
			must(err)
		}
		for _, f := range w.flowsV {
			if f.src == e {
				f.lingered = true
			}
		}
	})
	w.log(e.h, "closed", int64(e.ap.Port()), 0, 0)
}

// forget drops an endpoint whose process or daemon has ended.
func (e *endpoint) forget() { e.forgetWith(func() {}) }

func (e *endpoint) forgetWith(end func()) {
	if !e.open {
		return // its process died while it closed
	}
	w := e.w
	e.open = false
	for _, r := range e.regions {
		r.ended = true
	}
	p := w.ports[e.ap]
	p.bound, p.gapFrom = nil, w.now()
	w.eps = without(w.eps, e)
	e.c.eps = without(e.c.eps, e)
	end()
	if p.bound == nil {
		p.gapFrom = w.now()
	}
}

func without[T comparable](s []T, x T) []T {
	for i := range s {
		if s[i] == x {
			return append(s[:i:i], s[i+1:]...)
		}
	}
	return s
}

// poll takes statuses, cookies, messages and notices, and checks them.
func (e *endpoint) poll() {
	if !e.busy {
		for _, c := range e.cells {
			c.poll()
		}
		e.settle()
	}
	e.takeZeros()
	e.takeRelief()
	w := e.w
	if e.stalled > w.now() && !w.over {
		return
	}
	e.receive()
	for {
		n := e.s.Notices(w.notices)
		for i := range n {
			e.noticed(&w.notices[i])
		}
		if n < len(w.notices) {
			break
		}
	}
}

// receive reads up to 64 messages. Now and then it peeks at one first.
func (e *endpoint) receive() {
	w := e.w
	for range 64 {
		peeked := -1
		if w.rApp.IntN(64) == 0 {
			m := rds.Received{Payload: w.scratch[:idLen]}
			if _, err := krds.Of(e.s).Recv(&m, true); err == nil {
				peeked = m.Len
				if m.N != min(m.Len, idLen) {
					broken("content", "a look at %d bytes of a message of %d: got %d", idLen, m.Len, m.N)
				}
			}
		}
		m := rds.Received{Payload: w.scratch}
		err := e.s.Recv(rds.DontWait, &m)
		if errors.Is(err, rds.ErrWouldBlock) && peeked < 0 {
			return
		}
		if err != nil {
			broken("harness", "receive: %v", err)
		}
		if peeked >= 0 && m.N != peeked {
			broken("order", "the message looked at has %d bytes, the one received then %d", peeked, m.N)
		}
		e.received(&m)
	}
	e.c.wake()
}
