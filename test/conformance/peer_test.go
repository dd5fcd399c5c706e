package conformance

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft"
)

// peer is a peer of a daemon that consists of queue pairs and frames alone. The check decides
// what it sends and when it acks.
type peer struct {
	t    *testing.T
	addr netip.Addr
	h    *host
	lane uint8

	dev *soft.Device
	pd  verbs.PD
	cq  verbs.CQ
	qp  verbs.QP
	mem []byte
	mr  verbs.MR

	instance uint64
	inc      uint32 // of its sockets
	seq      uint64 // of its next message
	hello    wire.Hello
	private  wire.Private // the daemon's private data
	up, down bool
	downErr  error
	requests []verbs.CMEvent

	in    []inFrame      // received and not yet taken by the check
	trace []inFrame      // all received frames, runs as they came
	last  uint64         // highest sequence number received
	mute  bool           // it sends no acks
	owed  uint8          // credits to return
	slot  int            // buffer of the next send
	met   map[way]uint32 // by BOUND: incarnations of the daemon's sockets
	part  int            // bytes received of the message whose fragments arrive
}

// inFrame is a received frame. A fragment of a long message is one, too. A check gets a run as
// its datagrams, each in an inFrame, see datagrams.
type inFrame struct {
	wire.Header
	raw  []byte // the header as it was received
	body []byte
	send int // number of the SEND that it was in
	run  int // how many datagrams the run has that the datagram was in; 0: it was in none
	nth  int // its place in the run, from 0
}

const (
	peerBufs = 64
	peerSend = 16 << 10 // bytes of a SEND, in both directions
	rdsPort  = 18634
)

// newPeer makes a peer of h without a connection.
func newPeer(t *testing.T, h *host) *peer {
	t.Helper()
	dev, err := soft.New(soft.Options{CRC: verbs.CRCOff})
	ok(t, "device", err)
	p := &peer{t: t, addr: newAddress(), h: h, dev: dev, instance: 0x1234, inc: 77, seq: 1000, met: map[way]uint32{}}
	t.Cleanup(func() { _ = dev.Close() })
	p.pd, err = dev.AllocPD()
	ok(t, "protection domain", err)
	p.cq, err = dev.CreateCQ(4 * peerBufs)
	ok(t, "completion queue", err)
	p.mem = make([]byte, 2*peerBufs*peerSend)
	p.mr, err = p.pd.RegMR(p.mem, 0, verbs.AccessLocalWrite)
	ok(t, "memory", err)
	return p
}

// connected makes a peer of h and does the handshake.
func connected(t *testing.T, h *host) *peer {
	t.Helper()
	p := newPeer(t, h)
	p.connect()
	return p
}

func (p *peer) newQP() {
	p.t.Helper()
	var err error
	p.qp, err = p.pd.CreateQP(verbs.QPInitAttr{SendCQ: p.cq, RecvCQ: p.cq,
		Cap: verbs.QPCap{MaxSendWR: 2 * peerBufs, MaxRecvWR: peerBufs + 1, MaxSendSGE: 1, MaxRecvSGE: 1, ReadDepth: 8},
		Ack: verbs.AckLocal, CRC: verbs.CRCOff,
		Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic})
	ok(p.t, "queue pair", err)
	for i := range peerBufs {
		p.postRecv(i)
	}
	p.up, p.down, p.hello, p.owed, p.in = false, false, wire.Hello{}, 0, nil
	p.part = 0
}

func (p *peer) postRecv(i int) {
	p.t.Helper()
	_, err := p.qp.PostRecv([]verbs.RecvWR{{WRID: uint64(i), SGL: []verbs.SGE{{Addr: uint64(i * peerSend), Length: peerSend, LKey: p.mr.LKey()}}}})
	ok(p.t, "post receive", err)
}

func (p *peer) privateData() []byte {
	return wire.AppendPrivate(nil, &wire.Private{Src: p.addr, Dst: p.h.addr(), Major: 3, Minor: 1, MinorMask: wire.MinorMask,
		TOS: p.lane, Ext: wire.ExtVersion})
}

// begin starts to connect.
func (p *peer) begin() {
	p.t.Helper()
	p.newQP()
	ok(p.t, "connect", p.dev.Connect(p.qp, verbs.ConnectParam{Local: netip.AddrPortFrom(p.addr, 0),
		Remote: netip.AddrPortFrom(p.h.addr(), rdsPort), Private: p.privateData()}))
}

// connect connects and does the handshake.
func (p *peer) connect() {
	p.t.Helper()
	p.begin()
	p.until("established", func() bool { return p.up })
	p.shake()
}

// shake exchanges HELLOs.
func (p *peer) shake() {
	p.t.Helper()
	h := wire.Hello{Version: wire.HelloVersion, Instance: p.instance, MaxSend: peerSend, Credits: peerBufs - 8, ReadDepth: 8,
		Features: wire.FeatureAtomics | wire.FeatureMasked,
		Ack:      p.last, AckInst: p.hello.Instance}
	p.until("HELLO", func() bool { return p.hello.Instance != 0 })
	h.AckInst = p.hello.Instance
	b := make([]byte, wire.HeaderLen)
	(&wire.Header{Len: wire.HelloLen, DPort: uint16(wire.TypeHello), Flags: wire.FlagInternal}).Put(b)
	p.post(h.Append(b))
}

// post sends b as one SEND.
func (p *peer) post(b []byte) {
	p.t.Helper()
	off := (peerBufs + p.slot%peerBufs) * peerSend
	p.slot++
	copy(p.mem[off:off+peerSend], b)
	_, err := p.qp.PostSend([]verbs.SendWR{{Op: verbs.OpSend, Flags: verbs.SendSignaled, WRID: 1 << 32,
		SGL: []verbs.SGE{{Addr: uint64(off), Length: uint32(len(b)), LKey: p.mr.LKey()}}}})
	if err != nil && !p.down {
		p.t.Errorf("post: %v", err)
	}
	p.dev.Flush()
}

// frame returns a message from port 7 with this body and the next sequence number. set may
// change the header.
func (p *peer) frame(to netip.AddrPort, body []byte, set ...func(*wire.Header)) []byte {
	h := wire.Header{Seq: p.seq, Len: uint32(len(body)), SPort: 7, DPort: to.Port(), SrcInc: p.inc, Ack: p.acked()}
	for _, f := range set {
		f(&h)
	}
	if h.DstInc == 0 {
		h.DstInc = p.met[way{h.SPort, h.DPort}]
	}
	if h.Seq == p.seq {
		p.seq++
	}
	h.Credit, p.owed = p.owed, 0
	b := make([]byte, wire.Pad(wire.HeaderLen+len(body)))
	h.Put(b)
	copy(b[wire.HeaderLen:], body)
	return b
}

func (p *peer) acked() uint64 {
	if p.mute {
		return 0
	}
	return p.last
}

// send sends one message in a SEND of its own.
func (p *peer) send(to netip.AddrPort, body []byte, set ...func(*wire.Header)) {
	p.t.Helper()
	p.post(p.frame(to, body, set...)[:wire.HeaderLen+len(body)])
}

func flags(f wire.Flags) func(*wire.Header) { return func(h *wire.Header) { h.Flags = f } }
func seq(n uint64) func(*wire.Header)       { return func(h *wire.Header) { h.Seq = n } }

// internal sends an internal message.
func (p *peer) internal(typ wire.InternalType, body []byte) {
	p.t.Helper()
	p.send(netip.AddrPortFrom(p.h.addr(), uint16(typ)), body, func(h *wire.Header) { h.SPort, h.Flags = 0, wire.FlagInternal })
}

// ack sends a frame that has only an ack and credits.
func (p *peer) ack(n uint64) {
	p.t.Helper()
	b := make([]byte, wire.HeaderLen)
	(&wire.Header{Ack: n, Credit: p.owed}).Put(b)
	p.owed = 0
	p.post(b)
}

// step does what there is to do, and reports whether there was anything.
func (p *peer) step() bool {
	work := p.dev.Progress()
	var ev [8]verbs.CMEvent
	for _, e := range ev[:p.dev.PollCM(ev[:])] {
		work = true
		p.event(e)
	}
	var wc [16]verbs.WC
	for _, w := range wc[:p.cq.Poll(wc[:])] {
		work = true
		if w.WRID < peerBufs && w.Status == verbs.WCSuccess && p.qp != nil && w.QPNum == p.qp.Num() {
			p.received(int(w.WRID), int(w.ByteLen))
		}
	}
	return work
}

func (p *peer) event(e verbs.CMEvent) {
	switch e.Type {
	case verbs.CMConnectRequest:
		p.requests = append(p.requests, e)
	case verbs.CMEstablished:
		p.up = true
		if len(e.Private) > 0 {
			p.private, _ = wire.ParsePrivate(e.Private, false)
		}
	default:
		if e.QP == p.qp {
			p.down, p.up, p.downErr = true, false, e.Err
		}
	}
}

// received parses a SEND and posts its buffer again.
func (p *peer) received(i, n int) {
	b := append([]byte(nil), p.mem[i*peerSend:i*peerSend+n]...)
	p.postRecv(i)
	greeted := p.hello.Instance != 0
	sends := 0
	if len(p.trace) > 0 {
		sends = p.trace[len(p.trace)-1].send + 1
	}
	for off := 0; off < len(b); {
		f := inFrame{send: sends}
		if err := wire.Parse(b[off:], &f.Header); err != nil {
			p.t.Errorf("received %x: %v", b[off:], err)
			return
		}
		f.raw = b[off : off+wire.HeaderLen]
		f.body = b[off+wire.HeaderLen : min(len(b), off+wire.HeaderLen+int(f.Len))]
		off = wire.Pad(off + wire.HeaderLen + len(f.body))
		p.take(f)
	}
	if greeted { // a HELLO uses no credit
		p.owed++
	}
	if p.owed >= 16 && !p.down && p.up {
		p.ack(p.acked())
	}
}

func (p *peer) take(f inFrame) {
	p.trace = append(p.trace, f)
	switch {
	case f.Flags&wire.FlagInternal != 0 && wire.InternalType(f.DPort) == wire.TypeHello:
		h, err := wire.ParseHello(f.body)
		if err != nil {
			p.t.Errorf("HELLO: %v", err)
		}
		p.hello = h
	default:
		p.last = max(p.last, f.Seq)
		p.in = append(p.in, p.datagrams(f)...)
		p.destination(f)
	}
}

// until works until done returns true.
func (p *peer) until(what string, done func() bool) {
	p.t.Helper()
	for deadline := monotonic() + int64(patience); !done(); {
		if p.step() {
			continue
		}
		left := (deadline - monotonic()) / 1e6
		if left <= 0 {
			p.t.Fatalf("peer: %s: nothing in %v (down %v, %v); the daemon:\n%s", what, patience, p.down, p.downErr, p.h.Stderr.Tail())
		}
		fds := []unix.PollFd{{Fd: int32(p.dev.FD()), Events: unix.POLLIN}}
		_, _ = unix.Poll(fds, int(min(left, 5)))
	}
}

func monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// next takes the frames up to the next one for which is returns true, and returns that.
func (p *peer) next(what string, is func(inFrame) bool) (f inFrame) {
	p.t.Helper()
	p.until(what, func() bool {
		for i, x := range p.in {
			if is(x) {
				f = x
				p.in = p.in[i+1:]
				return true
			}
		}
		return false
	})
	return f
}

// data takes the next datagram.
func (p *peer) data() inFrame {
	p.t.Helper()
	return p.next("datagram", isData)
}

func isData(f inFrame) bool {
	return f.Seq != 0 && f.Flags&(wire.FlagInternal|wire.FlagCong) == 0
}

func isAck(f inFrame) bool { return f.IsAck(wire.HeaderLen + len(f.body)) }

func isInternal(typ wire.InternalType) func(inFrame) bool {
	return func(f inFrame) bool { return f.Flags&wire.FlagInternal != 0 && wire.InternalType(f.DPort) == typ }
}

// quiet works for a short time, in which no frame may arrive for which is returns true.
func (p *peer) quiet(what string, is func(inFrame) bool) {
	p.t.Helper()
	for end := monotonic() + 20e6; monotonic() < end; {
		if !p.step() {
			fds := []unix.PollFd{{Fd: int32(p.dev.FD()), Events: unix.POLLIN}}
			_, _ = unix.Poll(fds, 2)
		}
		for _, x := range p.in {
			if is(x) {
				p.t.Errorf("%s: %+v", what, x.Header)
				return
			}
		}
	}
}

// broken waits until the daemon has broken the connection.
func (p *peer) broken(what string) {
	p.t.Helper()
	p.until(what+": broken off", func() bool { return p.down })
}

// at returns the address of a port of the peer.
func (p *peer) at(port uint16) netip.AddrPort { return netip.AddrPortFrom(p.addr, port) }

// errOf returns an error with the text if bad is true.
func errOf(bad bool, format string, args ...any) error {
	if bad {
		return fmt.Errorf(format, args...)
	}
	return nil
}
