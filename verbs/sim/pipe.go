package sim

import (
	"math/bits"

	"github.com/rdsd/rdsd/verbs"
)

// msgKind is the kind of a message. A request also has its opcode.
type msgKind uint8

const (
	msgRequest  msgKind = iota
	msgFin              // orderly end, behind all requests
	msgResponse         // ack, data of a READ, or a refusal
)

// msg is a message in flight.
type msg struct {
	at     int64 // arrival
	idx    uint64
	wrid   uint64
	raddr  uint64
	atomic *verbs.AtomicArgs
	data   []byte // sampled, of the pool
	rkey   uint32
	imm    uint32
	length uint32
	kind   msgKind
	op     verbs.Opcode
	flags  verbs.SendFlags
	status verbs.WCStatus
}

// pipe carries messages from one QP to its peer in order. Only its head has an
// event.
type pipe struct {
	net     *Network
	qp      *QP             // whose it is
	handle  func(*msg) bool // false: not yet (no receive posted)
	fire    func()
	q       []msg // ring, power of two
	head    int
	n       int
	last    int64 // arrival of the newest
	epoch   int   // changes when the pipe is emptied
	cur     msg   // being handled
	armed   bool
	stalled bool
	isCut   bool
	isSunk  bool // its head waits for a hole to close
}

func (p *pipe) init(q *QP, handle func(*msg) bool) {
	p.net, p.qp, p.handle = q.dev.net, q, handle
	p.fire = p.run
}

// push sends m.
func (p *pipe) push(m msg) {
	n := p.net
	if p.isCut {
		n.bufs.put(m.data)
		return
	}
	p.last = max(p.last, n.now+n.rand.wire.between(n.Timing.Wire))
	m.at = p.last
	if p.n == len(p.q) {
		p.grow()
	}
	p.q[(p.head+p.n)&(len(p.q)-1)] = m
	p.n++
	if !p.armed && !p.stalled && !p.isSunk {
		p.arm(m.at)
	}
}

func (p *pipe) grow() {
	q := make([]msg, max(16, 2*len(p.q)))
	for i := range p.n {
		q[i] = p.q[(p.head+i)&(len(p.q)-1)]
	}
	p.q, p.head = q, 0
}

func (p *pipe) arm(at int64) {
	p.armed = true
	p.net.At(at, p.fire)
}

// run delivers the messages that have arrived.
func (p *pipe) run() {
	p.armed = false
	for p.n > 0 && !p.stalled {
		m := &p.q[p.head]
		if m.at > p.net.now {
			if !p.armed {
				p.arm(m.at)
			}
			return
		}
		if p.sunk() {
			return
		}
		epoch := p.epoch
		p.cur = *m
		if !p.handle(&p.cur) {
			p.stalled = true
			return
		}
		p.net.bufs.put(p.cur.data)
		if p.epoch != epoch {
			return
		}
		*m = msg{}
		p.head = (p.head + 1) & (len(p.q) - 1)
		p.n--
	}
}

// resume continues after a stall, a moment later.
func (p *pipe) resume() {
	if !p.stalled {
		return
	}
	p.stalled = false
	if !p.armed && !p.isSunk {
		p.arm(p.net.now + p.net.rand.gap.between(p.net.Timing.Gap))
	}
}

// cut drops everything in flight and everything that is pushed later.
func (p *pipe) cut() {
	p.isCut = true
	p.epoch++
	for i := range p.n {
		m := &p.q[(p.head+i)&(len(p.q)-1)]
		*m = msg{}
	}
	p.head, p.n, p.stalled = 0, 0, false
}

// bufPool keeps payload buffers by size class.
type bufPool struct{ free [32][][]byte }

const minBuf = 6 // 64 bytes

func (b *bufPool) get(n int) []byte {
	if n == 0 {
		return nil
	}
	c := max(bits.Len(uint(n-1)), minBuf)
	if f := b.free[c]; len(f) > 0 {
		buf := f[len(f)-1]
		b.free[c] = f[:len(f)-1]
		return buf[:n]
	}
	return make([]byte, n, 1<<c)
}

func (b *bufPool) put(buf []byte) {
	if cap(buf) < 1<<minBuf {
		return
	}
	c := bits.Len(uint(cap(buf))) - 1
	b.free[c] = append(b.free[c], buf)
}
