package conn

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"

	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// The fake provider: queue pairs joined in memory. A posted work request goes
// through two stages, each moved by its own step: "posted", then "on the wire",
// where its local buffers are free (AckLocal), then done at the remote. READs
// hold their local buffer until they are done. Completions are in order.

type fakeNet struct {
	rng     *rand.Rand
	hosts   map[netip.Addr]*fakeHost
	nextQPN uint32
	nextReq verbs.RequestID
	reqs    map[verbs.RequestID]*fakeQP // the active side's queue pair
}

func newFakeNet(seed uint64) *fakeNet {
	return &fakeNet{
		rng:   rand.New(rand.NewPCG(seed, 1)),
		hosts: make(map[netip.Addr]*fakeHost),
		reqs:  make(map[verbs.RequestID]*fakeQP),
	}
}

// fakeHost is one machine's device: memory, completion queue, events.
type fakeHost struct {
	net  *fakeNet
	addr netip.Addr
	mem  map[uint32][]byte // by key; addresses are offsets
	key  uint32
	cq   []fakeWC
	cm   []verbs.CMEvent
	qps  []*fakeQP
	// postFail, if not nil, says how many of a list are accepted.
	postFail func(wr []verbs.SendWR) int
}

type fakeWC struct {
	wc  verbs.WC
	buf []byte // of a receive
	how verbs.SendFlags
}

func (n *fakeNet) host(a netip.Addr) *fakeHost {
	h := &fakeHost{net: n, addr: a, mem: make(map[uint32][]byte)}
	n.hosts[a] = h
	return h
}

func (h *fakeHost) reg(b []byte) uint32 {
	h.key++
	h.mem[h.key] = b
	return h.key
}

func (h *fakeHost) bytes(s verbs.SGE) []byte { return h.mem[s.LKey][s.Addr : s.Addr+uint64(s.Length)] }

type fakeWR struct {
	verbs.SendWR
	sgl  []verbs.SGE
	data []byte // gathered when it went on the wire
	done bool   // locally
}

type fakeQP struct {
	verbs.QP // what conn does not use
	h        *fakeHost
	num      uint32
	peer     *fakeQP
	state    verbs.QPState
	up       bool
	posted   []*fakeWR // not on the wire
	wire     []*fakeWR // on the wire
	gone     bool
	refused  bool // the target refused an RDMA: nothing more arrives
	// onRDMA is called at the target before an RDMA is carried out; false
	// refuses it with a remote access error.
	onRDMA func(wr *verbs.SendWR) bool
	depth  int
	path   *verbs.Path // what TCP below it knows; nil: nothing
}

func (h *fakeHost) newQP(depth int) *fakeQP {
	h.net.nextQPN++
	q := &fakeQP{h: h, num: h.net.nextQPN, state: verbs.QPInit, depth: depth}
	h.qps = append(h.qps, q)
	return q
}

func (q *fakeQP) Path() (p verbs.Path) {
	if q.path != nil {
		p = *q.path
	}
	return p
}

func (q *fakeQP) Num() uint32                          { return q.num }
func (q *fakeQP) State() verbs.QPState                 { return q.state }
func (q *fakeQP) Cap() verbs.QPCap                     { return verbs.QPCap{MaxSendWR: q.depth, MaxSendSGE: 4} }
func (q *fakeQP) Context() any                         { return nil }
func (q *fakeQP) PostRecv([]verbs.RecvWR) (int, error) { return 0, errors.New("has an SRQ") }
func (q *fakeQP) Disconnect()                          { q.ToError() }
func (q *fakeQP) ToError()                             { q.toErr(false) }
func (q *fakeQP) outstanding() int                     { return len(q.posted) + len(q.wire) }

func (q *fakeQP) PostSend(wr []verbs.SendWR) (int, error) {
	limit := len(wr)
	if q.state != verbs.QPErr && q.h.postFail != nil {
		limit = q.h.postFail(wr)
	}
	for i := range wr {
		if i >= limit {
			return i, errors.New("ENOMEM (injected)")
		}
		if q.outstanding() >= q.depth {
			return i, errors.New("ENOMEM: send queue full")
		}
		w := &fakeWR{SendWR: wr[i], sgl: append([]verbs.SGE(nil), wr[i].SGL...)}
		w.SGL = w.sgl
		if q.state == verbs.QPErr {
			q.h.complete(q, w, verbs.WCWRFlushErr)
			continue
		}
		q.posted = append(q.posted, w)
	}
	return len(wr), nil
}

func (h *fakeHost) complete(q *fakeQP, w *fakeWR, s verbs.WCStatus) {
	w.done = true
	if s == verbs.WCSuccess && w.Flags&verbs.SendSignaled == 0 {
		return
	}
	h.cq = append(h.cq, fakeWC{wc: verbs.WC{WRID: w.WRID, Status: s, QPNum: q.num}})
}

// responds: READs and atomics hold their local buffer until they are done.
func responds(op verbs.Opcode) bool {
	return op == verbs.OpRDMARead || op == verbs.OpAtomicFetchAdd || op == verbs.OpAtomicCmpAndSwp
}

// toWire moves the oldest posted request on, if the fence and order allow.
func (q *fakeQP) toWire() bool {
	if len(q.posted) == 0 || q.state == verbs.QPErr || !q.up {
		return false
	}
	w := q.posted[0]
	for _, o := range q.wire {
		// Completions stay in order, so nothing passes a READ that would
		// complete here; the fence is then always kept too.
		if responds(o.Op) {
			return false
		}
	}
	q.posted = q.posted[1:]
	if !responds(w.Op) {
		for _, s := range w.sgl {
			w.data = append(w.data, q.h.bytes(s)...)
		}
		q.h.complete(q, w, verbs.WCSuccess)
	}
	q.wire = append(q.wire, w)
	return true
}

// deliver carries out the oldest request on the wire at the remote.
func (q *fakeQP) deliver() bool { return q.deliverTo(false) }

// deliverTo is deliver; on a dying connection what would break it ends it.
func (q *fakeQP) deliverTo(dying bool) bool {
	p := q.peer
	if len(q.wire) == 0 || q.refused || p == nil || p.gone || p.state == verbs.QPErr {
		return false
	}
	w := q.wire[0]
	q.wire = q.wire[1:]
	switch w.Op {
	case verbs.OpSend:
		p.h.cq = append(p.h.cq, fakeWC{
			wc:  verbs.WC{Op: verbs.WCRecv, QPNum: p.num, ByteLen: uint32(len(w.data))},
			buf: w.data, how: w.Flags,
		})
	default:
		if p.onRDMA != nil && !p.onRDMA(&w.SendWR) {
			// Nothing behind it arrives; what still holds local buffers
			// is flushed.
			rest := q.wire
			q.wire = nil
			if dying {
				rest = append([]*fakeWR{w}, rest...)
			}
			for _, r := range rest {
				if !r.done {
					q.wire = append(q.wire, r)
				}
			}
			q.refused = true
			if dying {
				return false
			}
			// The connection dies of it. A READ's error names its request.
			if responds(w.Op) {
				q.h.complete(q, w, verbs.WCRemAccessErr)
			}
			q.toErr(true)
			return true
		}
		remote := p.h.mem[w.RKey]
		if w.Op == verbs.OpRDMAWrite {
			copy(remote[w.RemoteAddr:], w.data)
			break
		}
		at := w.RemoteAddr
		for _, s := range w.sgl {
			at += uint64(copy(q.h.bytes(s), remote[at:]))
		}
		if w.Op == verbs.OpAtomicFetchAdd {
			word := remote[w.RemoteAddr:]
			binary.NativeEndian.PutUint64(word, binary.NativeEndian.Uint64(word)+w.Atomic.CompareAdd)
		}
		q.h.complete(q, w, verbs.WCSuccess)
	}
	return true
}

// toErr cuts the connection: a random part of what is on the wire still
// arrives, the rest is lost.
func (q *fakeQP) toErr(event bool) {
	if q.state == verbs.QPErr {
		return
	}
	for q.up && q.h.net.rng.IntN(3) > 0 && q.deliverTo(true) {
	}
	q.state = verbs.QPErr
	for _, w := range append(q.wire, q.posted...) {
		if !w.done {
			q.h.complete(q, w, verbs.WCWRFlushErr)
		}
	}
	q.wire, q.posted = nil, nil
	if event {
		q.h.cm = append(q.h.cm, verbs.CMEvent{Type: verbs.CMDisconnected, QP: q})
	}
	if p := q.peer; p != nil {
		p.toErr(true)
	}
}

func (q *fakeQP) Stats() verbs.QPStats { return verbs.QPStats{} }
func (q *fakeQP) Destroy() error {
	q.toErr(false)
	q.gone = true
	for i, o := range q.h.qps {
		if o == q {
			q.h.qps = append(q.h.qps[:i], q.h.qps[i+1:]...)
			break
		}
	}
	return nil
}

func (h *fakeHost) dial(q *fakeQP, local, remote netip.Addr, private []byte) {
	h.net.nextReq++
	r := h.net.hosts[remote]
	h.net.reqs[h.net.nextReq] = q
	r.cm = append(r.cm, verbs.CMEvent{Type: verbs.CMConnectRequest, Req: h.net.nextReq,
		Local: netip.AddrPortFrom(remote, 0), Remote: netip.AddrPortFrom(local, 0),
		Private: append([]byte(nil), private...)})
}

func (h *fakeHost) accept(req verbs.RequestID, q *fakeQP, private []byte) {
	a := h.net.reqs[req]
	delete(h.net.reqs, req)
	if a == nil || a.gone || a.state == verbs.QPErr {
		h.cm = append(h.cm, verbs.CMEvent{Type: verbs.CMConnectError, QP: q, Err: errors.New("peer gone")})
		return
	}
	a.peer, q.peer = q, a
	a.up, q.up = true, true
	a.state, q.state = verbs.QPRTS, verbs.QPRTS
	h.cm = append(h.cm, verbs.CMEvent{Type: verbs.CMEstablished, QP: q})
	a.h.cm = append(a.h.cm, verbs.CMEvent{Type: verbs.CMEstablished, QP: a, Private: append([]byte(nil), private...)})
}

func (h *fakeHost) rejectReq(req verbs.RequestID, private []byte) {
	a := h.net.reqs[req]
	delete(h.net.reqs, req)
	if a != nil && !a.gone {
		a.h.cm = append(a.h.cm, verbs.CMEvent{Type: verbs.CMRejected, QP: a, Private: append([]byte(nil), private...)})
	}
}

// baseHost implements the plumbing of Host over a fakeHost.
type baseHost struct {
	away []*msg.Msg // of the application, for ports that are stopped

	dev       *fakeHost
	bufs      []*SendBuf
	out       int // send buffers taken
	onRDMA    func(wr *verbs.SendWR) bool
	depth     int
	traces    []string
	lastTrace error
	believe   func(instance uint64) bool // nil: any
}

func newBaseHost(dev *fakeHost, nbuf, size, depth int) *baseHost {
	b := &baseHost{dev: dev, depth: depth}
	for range nbuf {
		mem := make([]byte, size)
		b.bufs = append(b.bufs, &SendBuf{Mem: mem, LKey: dev.reg(mem)})
	}
	return b
}

func (b *baseHost) NewQP(c *Conn, _ verbs.RequestID) (verbs.QP, error) {
	q := b.dev.newQP(b.depth)
	q.onRDMA = b.onRDMA
	return q, nil
}
func (b *baseHost) CloseQP(c *Conn, qp verbs.QP) { qp.Destroy() }
func (b *baseHost) Dial(c *Conn, qp verbs.QP, private []byte) error {
	b.dev.dial(qp.(*fakeQP), c.cfg.Local, c.cfg.Remote, private)
	return nil
}
func (b *baseHost) Accept(c *Conn, req verbs.RequestID, qp verbs.QP, private []byte) error {
	b.dev.accept(req, qp.(*fakeQP), private)
	return nil
}
func (b *baseHost) Reject(req verbs.RequestID, private []byte) { b.dev.rejectReq(req, private) }
func (b *baseHost) SendBuf() *SendBuf {
	if len(b.bufs) == 0 {
		return nil
	}
	s := b.bufs[len(b.bufs)-1]
	b.bufs = b.bufs[:len(b.bufs)-1]
	b.out++
	return s
}
func (b *baseHost) PutSendBuf(s *SendBuf) {
	b.bufs = append(b.bufs, s)
	b.out--
}

func (b *baseHost) CtlBuf() *SendBuf     { return b.SendBuf() }
func (b *baseHost) PutCtlBuf(s *SendBuf) { b.PutSendBuf(s) }
func (b *baseHost) Trace(c *Conn, event string, err error) {
	b.traces = append(b.traces, event)
	if err != nil {
		b.lastTrace = err
	}
}
func (b *baseHost) Instance(_ *Conn, id uint64) bool           { return b.believe == nil || b.believe(id) }
func (b *baseHost) HasWaiting(*Conn) bool                      { return len(b.away) > 0 }
func (b *baseHost) PeerUp(*Conn, bool)                         {}
func (b *baseHost) PeerDown(*Conn, error)                      {}
func (b *baseHost) Congestion(*Conn, *cong.Map)                {}
func (b *baseHost) Internal(*Conn, wire.InternalType, []byte)  {}
func (b *baseHost) Bound(*Conn, *msg.Msg, uint32)              {}
func (b *baseHost) CanPost(*Conn, *msg.Msg) bool               { return true }
func (b *baseHost) OpLocal(*Conn, *msg.Msg)                    {}
func (b *baseHost) OpPlaced(*Conn, *msg.Msg)                   {}
func (b *baseHost) RunAtomic(*Conn, *wire.Atomic, bool) uint64 { return 0 }
func (b *baseHost) AtomicResult(*Conn, *msg.Msg, uint64)       {}
func (b *baseHost) AimAtomic(*Conn, *wire.Header, *wire.Atomic) wire.AtomicStatus {
	return wire.AtomicAccess
}

var (
	addrA = netip.MustParseAddr("127.0.0.1")
	addrB = netip.MustParseAddr("127.0.0.2")
)

func testConfig(local, remote netip.Addr, inst uint64) Config {
	return Config{
		Local: local, Remote: remote, Instance: inst,
		MaxSend: 32 << 10, RecvCredits: 64, StartSeq: inst << 32, MaxSendWR: 128, ReadDepth: 16,
		MinBackoff: 1e6, MaxBackoff: 1e9, ConnectTimeout: 5e9, AckDelay: 1e6, AckBytes: 64 << 10,
		SettleTimeout: 30e9, Rand: func() uint64 { return 12345 },
		Attr: verbs.DeviceAttr{MaxSGE: 4, MaxReadSGE: 1, MaxMsg: 1 << 20, Caps: verbs.CapAtomics | verbs.CapMaskedAtomic},
	}
}
