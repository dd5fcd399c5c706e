package conn

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/barrier"
	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/internal/timer"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
)

// searchFailure is what a checker panics with.
type searchFailure string

func failf(format string, args ...any) { panic(searchFailure(fmt.Sprintf(format, args...))) }

// lowSource makes the fake provider's dice show the lowest number: a break loses
// what is on the wire. What arrives before it is a matter of the order of actions.
type lowSource struct{}

func (lowSource) Uint64() uint64 { return 1 << 40 }

const searchPort = 200

// searchMsg is one message of the script.
type searchMsg struct {
	id      int
	from    int
	kind    byte
	life    int // of its sender, once sent
	msg     *msg.Msg
	barrier uint64
	place   barrier.Op
	lkey    uint32
	got     int
	applied int
	appLife int
	asked   bool
	local   bool
	done    bool
	ended   bool // withdrawn by its owner
	outcome msg.Outcome
}

func (m *searchMsg) op() bool { return m.kind == 'w' || m.kind == 'r' || m.kind == 'a' }

type searchHost struct {
	*baseHost
	w       *searchWorld
	i, life int
	c       *Conn
	script  []*searchMsg
	next    int
	last    int  // of the peer's messages, delivered last
	lastOf  int  // the peer's life that was of
	full    bool // searchPort is
	unbound bool
	cm      cong.Map
	mark    barrier.Mark // of the operations it sends
	revoked bool         // the peer took its key back
	retired bool         // the peer gave our key back: no operation runs on it
	owes    bool         // REVOKED, when no operation is under way
	active  int          // operations posted and not locally complete
}

type searchWorld struct {
	c     *searchCase
	net   *fakeNet
	now   int64
	h     [2]*searchHost
	all   []*searchMsg
	did   []action
	cuts  int // left
	kills int
	fills int
	drop  int
	cancl int
	quits int
	died  bool // some daemon restarted
}

func newSearchWorld(c *searchCase) *searchWorld {
	w := &searchWorld{c: c, net: newFakeNet(0), now: 1e9, cuts: c.cuts, kills: c.restarts}
	w.net.rng = rand.New(lowSource{})
	count := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	w.fills, w.drop, w.cancl, w.quits = count(c.full), count(c.unbound), count(c.cancel), count(c.giveUp)
	for i, a := range []netip.Addr{addrA, addrB} {
		h := &searchHost{w: w, i: i, baseHost: &baseHost{dev: w.net.host(a)}}
		for _, k := range []byte(c.sends[i]) {
			m := &searchMsg{id: len(w.all) + 1, from: i, kind: k}
			w.all = append(w.all, m)
			h.script = append(h.script, m)
		}
		w.h[i] = h
	}
	for _, h := range w.h {
		h.start()
	}
	return w
}

func (h *searchHost) peer() *searchHost { return h.w.h[1-h.i] }

// start begins a life of the host.
func (h *searchHost) start() {
	h.life++
	size := 2 << 10 // of send buffers: small ones are cheaper to make
	if h.w.c.full {
		size = wire.MinMaxSend
	}
	h.baseHost = newBaseHost(h.dev, 4, size, 16)
	h.onRDMA = h.rdma
	local, remote := addrA, addrB
	if h.i == 1 {
		local, remote = addrB, addrA
	}
	cfg := testConfig(local, remote, uint64(16*(h.i+1)+h.life))
	cfg.StartSeq = uint64(1000 * (4 - h.life)) // the clock runs back between lives
	cfg.MaxSend, cfg.MaxSendWR, cfg.RecvCredits = wire.MinMaxSend, 16, 16
	if h.w.c.credits != 0 {
		cfg.RecvCredits = h.w.c.credits
	}
	cfg.AckDelay, cfg.MinBackoff, cfg.MaxBackoff = 0, 1, 1
	cfg.Rand = func() uint64 { return 0 }
	h.c = New(cfg, h)
	h.last, h.lastOf, h.active = 0, 0, 0
	h.full, h.revoked, h.retired, h.owes = false, false, false, false
	h.cm = cong.Map{}
	h.mark = barrier.Mark{}
}

// can says whether a may happen now. Some that may change nothing.
func (w *searchWorld) can(a action) bool {
	h := w.h[a.host]
	switch a.kind {
	case actSend:
		return h.next < len(h.script)
	case actCM:
		return len(h.dev.cm) > 0
	case actPoll:
		return len(h.dev.cq) > 0
	case actEmpty:
		return len(h.dev.cq) == 0 && h.c.State() == Error
	case actFlush:
		return h.c.NeedFlush() || slices.ContainsFunc(h.away, func(m *msg.Msg) bool { return !h.c.Stopped(m.DPort) })
	case actTick:
		t := h.c.NextTimeout()
		return t != 0 && t <= w.now+1000
	case actDeliver:
		return slices.ContainsFunc(h.dev.qps, func(q *fakeQP) bool { return len(q.wire) > 0 })
	case actNotice:
		return slices.ContainsFunc(h.dev.qps, (*fakeQP).alone)
	case actFree:
		return h.full
	case actWait:
		return timer.Sooner(w.h[0].c.NextTimeout(), w.h[1].c.NextTimeout()) > w.now
	case actCut, actFlushed, actHalf:
		return w.cuts > 0 && slices.ContainsFunc(h.dev.qps, (*fakeQP).joined)
	case actReset:
		return w.cuts > 0 && h.c.State() == Up
	case actRestart:
		return w.kills > 0
	case actFull:
		return w.fills > 0
	case actUnbind:
		return w.drop > 0
	case actCancel:
		return w.cancl > 0 && h.hasConn(h.script[0])
	case actGiveUp:
		return w.quits > 0 && h.hasConn(h.script[0])
	}
	return false
}

func (q *fakeQP) joined() bool { return q.up && q.state == verbs.QPRTS && q.peer != nil }
func (q *fakeQP) alone() bool  { return q.up && q.state == verbs.QPRTS && q.peer == nil }

// do carries a out.
func (w *searchWorld) do(a action) {
	w.did = append(w.did, a)
	h := w.h[a.host]
	switch a.kind {
	case actSend:
		h.next++
		h.send(h.script[h.next-1])
	case actCM:
		ev := h.dev.cm[0]
		h.dev.cm = h.dev.cm[1:]
		if ev.Type == verbs.CMConnectRequest {
			h.c.HandleRequest(w.now, ev.Req, ev.Segment, ev.Private)
		} else {
			h.c.HandleCM(w.now, &ev)
		}
	case actPoll:
		e := h.dev.cq[0]
		h.dev.cq = h.dev.cq[1:]
		if e.buf == nil && e.wc.Op != verbs.WCRecv {
			h.c.HandleSend(w.now, &e.wc)
		} else {
			h.c.HandleRecv(w.now, &e.wc, e.buf)
		}
	case actEmpty:
		h.c.CQEmpty(w.now)
	case actFlush:
		h.resend(h.c)
		h.c.Flush(w.now)
	case actTick:
		w.now = max(w.now, h.c.NextTimeout())
		h.c.Tick(w.now)
	case actDeliver:
		for _, q := range h.dev.qps {
			if q.deliver() {
				break
			}
		}
	case actNotice:
		h.dev.qps[slices.IndexFunc(h.dev.qps, (*fakeQP).alone)].toErr(true)
	case actFree:
		h.setFull(false)
	case actWait:
		w.now = timer.Sooner(w.h[0].c.NextTimeout(), w.h[1].c.NextTimeout())
		w.h[0].c.Tick(w.now)
		w.h[1].c.Tick(w.now)
	default:
		w.fault(h, a.kind)
	}
	// What is posted is on its way at once: that it is not yet there is as if
	// its completion had been flushed.
	for _, h := range w.h {
		for _, q := range h.dev.qps {
			for q.toWire() {
			}
		}
	}
}

// fault has one of the bounded actions befall h.
func (w *searchWorld) fault(h *searchHost, k actKind) {
	switch k {
	case actCut, actFlushed, actHalf:
		w.cuts--
		cut(h.dev.qps[slices.IndexFunc(h.dev.qps, (*fakeQP).joined)], k)
	case actReset:
		w.cuts--
		h.c.Reset(w.now, ErrDisconnected)
	case actRestart:
		w.kills--
		w.died = true
		for len(h.dev.qps) > 0 {
			h.dev.qps[0].Destroy()
		}
		h.start()
	case actFull:
		w.fills--
		h.setFull(true)
	case actUnbind:
		w.drop--
		h.unbound = true
	case actCancel:
		w.cancl--
		h.script[0].ended = true
		h.c.Cancel(h.script[0].msg, msg.Cancelled)
	case actGiveUp:
		w.quits--
		h.script[0].ended = true
		h.c.GiveUp(h.script[0].msg)
	}
}

// cut breaks a connection that is up.
func cut(q *fakeQP, how actKind) {
	p := q.peer
	if how == actFlushed {
		for _, x := range [...]*fakeQP{q, p} {
			for i := range x.h.cq {
				if e := &x.h.cq[i]; e.wc.QPNum == x.num && e.buf == nil && e.wc.Op != verbs.WCRecv {
					e.wc.Status = verbs.WCWRFlushErr
				}
			}
		}
	}
	if how == actHalf {
		p.peer, q.peer = nil, nil
	}
	q.toErr(true)
}

// hasConn reports whether the connection has s.
func (h *searchHost) hasConn(s *searchMsg) bool {
	return s.msg != nil && !s.done && !slices.Contains(h.away, s.msg)
}

func (h *searchHost) setFull(full bool) {
	h.full = full
	if full && h.cm.Set(searchPort) || !full && h.cm.Clear(searchPort) {
		h.c.QueueCong(&h.cm)
	}
}

func (h *searchHost) send(s *searchMsg) {
	s.life = h.life
	m := &msg.Msg{Owner: s, SPort: 100, DPort: searchPort, SrcInc: uint32(h.life), Data: make([]byte, 8)}
	binary.BigEndian.PutUint64(m.Data, uint64(s.id))
	s.msg = m
	switch {
	case s.kind == 'R':
		m.Internal, m.Data = wire.TypeRevoke, (&wire.Revoke{RKey: keyBase, Lanes: 1}).Append(nil)
	case s.op():
		op := &rdmaop.Op{Kind: abi.OpWrite, Cookie: keyBase + uint64(s.id), Len: 8}
		switch s.kind {
		case 'r':
			op.Kind = abi.OpRead
		case 'a':
			op.Kind = abi.OpFetchAdd
		}
		s.lkey = h.dev.reg(make([]byte, 8))
		op.Segs = []rdmaop.Seg{{LKey: s.lkey, Len: 8}}
		h.peer().dev.mem[uint32(keyBase+s.id)] = make([]byte, 8)
		m.Op = op
		s.barrier = h.mark.Last() + 1
		h.must(h.mark.Issue(&s.place, s.barrier))
	}
	h.baseHost.send(h.c, m)
}

func (h *searchHost) must(err error) {
	if err != nil {
		failf("host %d: %v", h.i, err)
	}
}
