package conn

import (
	"encoding/binary"
	"fmt"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
)

type worldHost struct {
	*baseHost
	w        *world
	i        int
	life     int
	c        *Conn
	cfg      Config
	halting  bool
	cm       cong.Map
	full     map[uint16]bool
	unbound  map[uint16]bool
	last     map[flow]uint64 // delivered last, per flow
	lastLife map[flow]int
	parts    map[*part]bool
	asked    map[*sent]bool
	ended    map[msg.Outcome]int // own datagrams, in this life
	aimed    *sent               // whose atomic is about to run
	payload  []byte
	lkey     uint32
}

type part struct{ buf []byte }

// start begins a life of the host.
func (h *worldHost) start() {
	h.life++
	local, remote := addrA, addrB
	if h.i == 1 {
		local, remote = addrB, addrA
	}
	cfg := testConfig(local, remote, uint64(h.i+1)<<20|uint64(h.life))
	cfg.StartSeq = uint64(h.w.now) << 8
	if h.life%2 == 0 { // a clock that ran back between two starts
		cfg.StartSeq = uint64(1 + h.w.rng.IntN(1000))
	}
	cfg.RecvCredits = h.w.o.credits
	cfg.MaxSend = 9000 + 1000*h.i
	cfg.MaxSendWR = h.w.o.depth
	cfg.ReadDepth = 4
	cfg.Rand = h.w.rng.Uint64
	if h.w.o.carried {
		cfg.Attr.Caps |= verbs.CapGlobalAtomics
	}
	h.c, h.cfg, h.halting = New(cfg, h), cfg, false
	h.cm = cong.Map{}
	h.full = make(map[uint16]bool)
	h.last = make(map[flow]uint64)
	h.lastLife = make(map[flow]int)
	h.parts = make(map[*part]bool)
	h.asked = make(map[*sent]bool)
	h.ended = make(map[msg.Outcome]int)
	h.onRDMA = h.rdma
}

func (h *worldHost) peer() *worldHost { return h.w.h[1-h.i] }

// rdma is asked before an RDMA request runs in h's memory. The remote address
// carries the id of the message.
func (h *worldHost) rdma(wr *verbs.SendWR) bool {
	s := h.w.byID[uint64(wr.RKey)-keyBase]
	if s == nil {
		h.w.fatalf("RDMA on unknown key %d", wr.RKey)
	}
	if s.bad {
		return false
	}
	if s.done && s.outcome != msg.Cancelled && s.outcome != msg.Unknown && s.outcome != msg.GaveUp {
		h.w.fatalf("RDMA of message %d ran after it ended with outcome %v", s.id, s.outcome)
	}
	if wr.Op == verbs.OpAtomicFetchAdd {
		s.add(h)
	}
	s.apply(h)
	return true
}

const keyBase = 1 << 24

// send makes a random message.
func (h *worldHost) send() {
	w := h.w
	s := &sent{id: uint64(len(w.all) + 1), from: h.i, life: h.life}
	s.key = flow{uint16(100 + w.rng.IntN(3)), uint16(200 + w.rng.IntN(3))}
	fk := fmt.Sprint(h.i, h.life, s.key)
	w.flowN[fk]++
	s.n = w.flowN[fk]
	n := 32 + w.rng.IntN(200)
	if w.rng.IntN(6) == 0 {
		n = 32 + w.rng.IntN(w.o.maxLen)
	}
	m := &msg.Msg{Owner: s, SPort: s.key.sport, DPort: s.key.dport, SrcInc: uint32(h.life)}
	s.msg = m
	kind := w.rng.IntN(10)
	switch {
	case kind < 3:
		s.op = true
		s.silent = w.rng.IntN(5) == 0
		s.bad = w.o.badOps && w.rng.IntN(10) == 0
		segs := 1 + w.rng.IntN(3)
		op := &rdmaop.Op{Kind: abi.OpWrite, Cookie: keyBase + s.id, Len: uint64(16 * segs)}
		if w.rng.IntN(2) == 0 {
			op.Kind = abi.OpRead
		}
		s.buf = make([]byte, 16*segs)
		s.lkey = h.dev.reg(s.buf)
		for i := range segs {
			op.Segs = append(op.Segs, rdmaop.Seg{LKey: s.lkey, Addr: uint64(16 * i), Len: 16})
		}
		s.wrs = op.WRCount(4, 1, 1<<20)
		if w.rng.IntN(3) == 0 {
			m.Op2 = &rdmaop.Op{Kind: abi.OpFetchAdd, Cookie: keyBase + s.id, Len: 8,
				Segs: []rdmaop.Seg{{LKey: s.lkey, Addr: 8, Len: 8}}, Atomic: rdmaop.AtomicArgs{CompareAdd: 1}}
			s.wrs++
		}
		if w.o.carried && w.rng.IntN(2) == 0 {
			op, m.Op2 = &rdmaop.Op{Kind: abi.OpFetchAdd, Cookie: keyBase + s.id, Len: 8, Segs: op.Segs[:1], Atomic: rdmaop.AtomicArgs{CompareAdd: 1}}, nil
			op.Segs[0].Len, s.wrs = 8, 1
		}
		h.peer().dev.mem[uint32(keyBase+s.id)] = make([]byte, 16*segs)
		m.Op, m.Silent = op, s.silent
	case kind == 3:
		s.internal = true
		m.Internal = wire.TypeRevoke
		n = wire.RevokeLen
	}
	if s.internal {
		m.Data = (&wire.Revoke{RKey: uint32(s.id), Lanes: 1}).Append(nil)
	} else {
		m.Data = make([]byte, n)
		if w.rng.IntN(2) == 0 {
			m.LKey = h.dev.reg(m.Data)
		}
		for i := range m.Data {
			m.Data[i] = byte(uint64(i) + s.id)
		}
		binary.BigEndian.PutUint64(m.Data, s.id)
		if s.id%3 == 0 && m.Op == nil { // a run: the Conn does not look at its frames
			m.Run = 1 + int(s.id)%(n/frames.Head)
			m.Payload = n - m.Run*frames.Head
		}
	}
	w.all = append(w.all, s)
	w.byID[s.id] = s
	w.logf("%d: send %d %v n=%d len=%d op=%v silent=%v internal=%v", h.i, s.id, s.key, s.n, n, s.op, s.silent, s.internal)
	h.baseHost.send(h.c, m)
}

// step does one random thing; false if nothing was there to do.
func (h *worldHost) step() bool {
	w := h.w
	if h.halting && h.c.State() == Down {
		h.goOn()
	}
	switch w.rng.IntN(6) {
	case 0:
		if len(h.dev.cm) == 0 {
			return false
		}
		ev := h.dev.cm[0]
		h.dev.cm = h.dev.cm[1:]
		w.logf("%d: cm event %d in %v", h.i, ev.Type, h.c.State())
		if ev.Type == verbs.CMConnectRequest {
			h.c.HandleRequest(w.now, ev.Req, ev.Segment, ev.Private)
		} else {
			h.c.HandleCM(w.now, &ev)
		}
	case 1, 2:
		n := 1 + w.rng.IntN(4)
		did := len(h.dev.cq) > 0 || h.c.State() == Error
		for ; n > 0 && len(h.dev.cq) > 0; n-- {
			h.poll()
		}
		if len(h.dev.cq) == 0 {
			h.c.CQEmpty(w.now)
		}
		return did
	case 3:
		did := h.resend(h.c) || h.c.NeedFlush()
		h.c.Flush(w.now)
		return did
	case 4:
		t := h.c.NextTimeout()
		if t == 0 || t > w.now {
			return false
		}
		h.c.Tick(w.now)
	case 5:
		did := false
		for n := 1 + w.rng.IntN(5); n > 0; n-- {
			for _, q := range append([]*fakeQP(nil), h.dev.qps...) {
				if w.rng.IntN(2) == 0 {
					did = q.toWire() || did
				} else {
					did = q.deliver() || did
				}
			}
		}
		return did
	}
	return true
}

func (h *worldHost) poll() {
	e := h.dev.cq[0]
	h.dev.cq = h.dev.cq[1:]
	if e.buf == nil && e.wc.Op != verbs.WCRecv {
		h.c.HandleSend(h.w.now, &e.wc)
		return
	}
	h.c.HandleRecv(h.w.now, &e.wc, e.buf)
	for i := range e.buf {
		e.buf[i] = 0xdd // the buffer is posted again
	}
}

func (h *worldHost) setFull(port uint16, full bool) {
	h.w.logf("%d: port %d full %v", h.i, port, full)
	h.full[port] = full
	if full && h.cm.Set(port) || !full && h.cm.Clear(port) {
		h.c.QueueCong(&h.cm)
	}
}
