package sim

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/sim"
)

// kpeer is a model of Linux RDS over InfiniBand verbs (6.1: net/rds send.c,
// recv.c, ib_cm.c, ib_send.c, ib_recv.c, connection.c, threads.c) with one
// connection. Its names are the kernel's.
type kpeer struct {
	dev    *sim.Device
	addr   netip.Addr
	to     netip.Addr
	r      *rand.Rand
	pd     verbs.PD
	socks  map[uint16]*ksock
	cong   cong.Map // of our address
	fail   func(format string, args ...any)
	up     func()
	recvWR int

	state       kstate
	qp          verbs.QP
	scq, rcq    verbs.CQ
	nextTx      uint64
	nextRx      uint64
	sendq       []*kmsg // rds: cp_send_queue
	retrans     []*kmsg // cp_retrans
	cur         *kmsg   // cp_xmit_rm
	opSent      bool
	sent        int
	packets     int // cp_unacked_packets
	mapQueued   bool
	mapSent     int
	remote      cong.Map
	reconnectAt int64 // 0: none is queued
	ceiling     int64 // cp_reconnect_jiffies

	sendMem []byte
	sendMR  verbs.MR
	ring    []kslot // posted, oldest first
	wrid    uint64
	unsig   int

	recvMem  []byte
	recvMR   verbs.MR
	spare    []int // receive buffers to post
	inc      *kinc // ic->i_ibinc
	ackNext  uint64
	ackReq   bool
	ackBusy  bool
	ackDue   bool
	ackRecv  uint64
	drops    int
	bounces  int
	dups     int
	rejected int
}

type kstate int

const (
	kDown kstate = iota
	kConnecting
	kUp
	kError
)

const (
	kFrame   = wire.HeaderLen + 4096
	kSendWR  = 32
	kDropped = 3 // RDS_RDMA_*
	kOpen    = -1
)

type ksock struct {
	port      uint16
	limit     int
	bytes     int
	congested bool
	queue     []*kinc
	got       func(*kinc)
}

type kmsg struct {
	h       wire.Header
	data    []byte
	op      *kop
	id      uint64
	retrans bool
	done    func(acked bool)
}

// kop is an RDS_CMSG_RDMA_ARGS.
type kop struct {
	write  bool
	cookie uint64
	off    uint64
	mem    []byte
	mr     verbs.MR
	fence  bool
	status int
}

type kslot struct {
	wrid uint64
	last *kmsg // it is its last fragment
	ack  bool
}

// kinc is an arrived message.
type kinc struct {
	h    wire.Header
	ext  wire.Exts
	data []byte
}

func newKpeer(n *sim.Network, addr, to netip.Addr, r *rand.Rand) *kpeer {
	k := &kpeer{dev: n.Device(addr), addr: addr, to: to, r: r, socks: map[uint16]*ksock{}, nextTx: 1, recvWR: 48}
	var err error
	k.pd, err = k.dev.AllocPD()
	must(err)
	_, err = k.dev.Listen(netip.AddrPortFrom(addr, 18634))
	must(err)
	k.sendMem, k.recvMem = make([]byte, kSendWR*kFrame), make([]byte, k.recvWR*kFrame)
	k.sendMR, err = k.pd.RegMR(k.sendMem, 0, verbs.AccessLocalWrite)
	must(err)
	k.recvMR, err = k.pd.RegMR(k.recvMem, 0, verbs.AccessLocalWrite)
	must(err)
	return k
}

// register is RDS_CMSG_RDMA_MAP: whole pages at address 0, all rights.
func (k *kpeer) register(mem []byte) (verbs.MR, uint64) {
	mr, err := k.pd.RegMR(mem, 0, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
	must(err)
	off := uint64(k.r.IntN(len(mem) / 4)) // where the caller's memory begins
	return mr, uint64(mr.RKey()) | off<<32
}

// sendmsg queues a message; false: ENOBUFS.
func (k *kpeer) sendmsg(sport, dport uint16, data []byte, cookie uint64, op *kop, id uint64, done func(bool)) bool {
	if k.remote.Test(dport) {
		return false
	}
	m := &kmsg{h: wire.Header{Seq: k.nextTx, Len: uint32(len(data)), SPort: sport, DPort: dport}, data: data, op: op, id: id, done: done}
	if op != nil {
		op.status = kOpen
		m.h.SetExtRDMA(uint32(op.cookie))
	}
	if cookie != 0 {
		m.h.SetExtDest(cookie)
	}
	k.nextTx++
	k.sendq = append(k.sendq, m)
	if k.state == kDown && k.reconnectAt == 0 {
		k.reconnectAt = 1
	}
	return true
}

func (k *kpeer) private(tos uint8) []byte {
	return wire.AppendPrivate(nil, &wire.Private{Src: k.addr, Dst: k.to, Major: 3, Minor: 1, MinorMask: wire.MinorMask, TOS: tos})
}

// setup is rds_ib_setup_qp.
func (k *kpeer) setup() {
	var err error
	k.scq, err = k.dev.CreateCQ(256)
	must(err)
	k.rcq, err = k.dev.CreateCQ(256)
	must(err)
	must(k.rcq.ReqNotify(true))
	k.qp, err = k.pd.CreateQP(verbs.QPInitAttr{SendCQ: k.scq, RecvCQ: k.rcq,
		Cap: verbs.QPCap{MaxSendWR: 2 * kSendWR, MaxSendSGE: 2, MaxRecvWR: k.recvWR, MaxRecvSGE: 2, ReadDepth: 4},
		Ack: verbs.AckRemote, Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite})
	must(err)
	k.ring, k.unsig, k.inc = nil, 0, nil
	k.ackNext, k.ackReq, k.ackBusy, k.ackDue, k.ackRecv = 0, false, false, false, 0
	k.mapSent = 0
	k.spare = k.spare[:0]
	for i := range k.recvWR {
		k.spare = append(k.spare, i)
	}
}

// step does what there is to do.
func (k *kpeer) step(now int64) (work bool) {
	var ev [4]verbs.CMEvent
	for n := k.dev.PollCM(ev[:]); n > 0; n = k.dev.PollCM(ev[:]) {
		for i := range n {
			k.cm(&ev[i])
		}
		work = true
	}
	if k.qp != nil && (k.state == kUp || k.state == kConnecting) {
		work = k.poll() || work
	}
	if k.state == kError {
		k.shutdown(now)
		work = true
	}
	if k.state == kDown && k.reconnectAt != 0 && now >= k.reconnectAt {
		k.connect(now)
		work = true
	}
	if k.state == kUp {
		k.xmit()
	}
	return work
}

// drop is rds_conn_drop.
func (k *kpeer) drop() {
	k.drops++
	if k.state != kDown {
		k.state = kError
	}
}

func (k *kpeer) connect(now int64) {
	k.reconnectAt = 0
	k.state = kConnecting
	k.setup()
	if k.dev.Connect(k.qp, verbs.ConnectParam{Remote: netip.AddrPortFrom(k.to, 18634), Private: k.private(0)}) != nil {
		k.drop()
	}
}

// cm is rds_rdma_cm_event_handler_cmn.
func (k *kpeer) cm(ev *verbs.CMEvent) {
	if ev.Type == verbs.CMConnectRequest {
		k.connectRequest(ev)
		return
	}
	if k.qp == nil || ev.QP != k.qp {
		return
	}
	if ev.Type != verbs.CMEstablished {
		k.drop()
		return
	}
	if k.state != kConnecting {
		k.drop()
		return
	}
	if len(ev.Private) > 0 {
		p, err := wire.ParsePrivate(ev.Private, false)
		if err != nil || p.Major != 3 || p.Minor != 1 || p.Src != k.to || p.Dst != k.addr || p.Credit != 0 {
			k.fail("a reply of %x: %v", ev.Private, err)
		}
		k.acked(p.AckSeq)
	}
	k.refill(k.recvWR) // only now: what came before has met no buffer
	k.state = kUp
	k.ceiling = 0
	k.mapQueued = true
	k.up()
}

// connectRequest is rds_ib_cm_handle_connect.
func (k *kpeer) connectRequest(ev *verbs.CMEvent) {
	reject := func() {
		k.rejected++
		_ = k.dev.Reject(ev.Req, (&wire.Reject{Code: wire.RejectIncompat}).Append(nil))
	}
	p, err := wire.ParsePrivate(ev.Private, false)
	if err != nil || p.Major != 3 || p.Minor != 1 || p.MinorMask != wire.MinorMask || p.Src != k.to || p.Dst != k.addr || p.Credit != 0 {
		k.fail("a request of %x: %v", ev.Private, err)
	}
	switch k.state {
	case kUp:
		k.drop()
		reject()
		return
	case kConnecting, kError:
		reject()
		return
	}
	k.acked(p.AckSeq)
	k.reconnectAt = 0
	k.state = kConnecting
	k.setup()
	if k.dev.Accept(ev.Req, k.qp, k.private(p.TOS)) != nil {
		k.drop()
	}
}

// shutdown is rds_conn_shutdown, rds_ib_conn_path_shutdown and
// rds_send_path_reset. What has arrived and was not looked at is processed on
// its way, or lost.
func (k *kpeer) shutdown(now int64) {
	k.bounces++
	if k.qp != nil {
		if k.r.IntN(2) == 0 {
			k.recv()
		}
		must(k.qp.Destroy())
		must(k.scq.Destroy())
		must(k.rcq.Destroy())
		k.qp = nil
	}
	k.inc, k.cur, k.opSent, k.sent = nil, nil, false, 0
	k.mapQueued = false
	k.packets = 8
	for _, m := range k.retrans {
		m.retrans = true
	}
	k.sendq = append(k.retrans, k.sendq...)
	k.retrans = nil
	k.state = kDown
	// rds_queue_reconnect
	if k.ceiling == 0 {
		k.ceiling = 1e6
		k.reconnectAt = now + 1
		return
	}
	k.reconnectAt = now + 1 + k.r.Int64N(k.ceiling)
	k.ceiling = min(2*k.ceiling, 1000e6)
}

// xmit is rds_send_xmit.
func (k *kpeer) xmit() {
	for k.state == kUp {
		if k.cur == nil && k.mapSent == 0 && k.mapQueued {
			k.mapQueued = false
			k.mapSent = 1
		}
		if k.mapSent > 0 {
			if !k.sendMap() {
				return
			}
			continue
		}
		if k.cur == nil {
			if len(k.sendq) == 0 {
				break
			}
			m := k.sendq[0]
			k.sendq = k.sendq[1:]
			if m.op != nil && m.retrans {
				m.op.status = kDropped
				m.end(false)
				continue
			}
			k.retrans = append(k.retrans, m)
			k.cur, k.opSent, k.sent = m, false, 0
			if m.retrans || k.packets == 0 {
				m.h.Flags |= wire.FlagAckRequired
				k.packets = 8
			} else {
				k.packets--
			}
			if m.retrans {
				m.h.Flags |= wire.FlagRetransmitted
			}
		}
		if !k.xmitMessage(k.cur) {
			return
		}
		k.cur = nil
	}
	if k.state == kUp && k.ackDue && !k.ackBusy && len(k.ring) < kSendWR {
		k.ackDue = false
		k.ackBusy = true
		k.post(wire.Header{}, nil, nil, true, 0)
	}
}

func (m *kmsg) end(acked bool) {
	if m.op != nil && m.op.mr != nil {
		must(m.op.mr.Dereg())
		m.op.mr = nil
	}
	if m.done != nil {
		m.done(acked)
		m.done = nil
	}
}

// xmitMessage is rds_ib_xmit_rdma and rds_ib_xmit; false: the ring is full.
func (k *kpeer) xmitMessage(m *kmsg) bool {
	flags := verbs.SendFlags(0)
	if o := m.op; o != nil {
		if !k.opSent {
			if len(k.ring) >= kSendWR-1 {
				return false
			}
			if o.mr == nil {
				var err error
				o.mr, err = k.pd.RegMR(o.mem, 0, verbs.AccessLocalWrite)
				must(err)
			}
			wr := verbs.SendWR{WRID: k.nextWRID(), Op: verbs.OpRDMARead, RKey: uint32(o.cookie), RemoteAddr: o.cookie>>32 + o.off,
				SGL: []verbs.SGE{{Length: uint32(len(o.mem)), LKey: o.mr.LKey()}}}
			if o.write {
				wr.Op = verbs.OpRDMAWrite
			}
			k.ring = append(k.ring, kslot{wrid: wr.WRID})
			if !k.postWR(wr) {
				return false
			}
			k.opSent = true
		}
		if o.fence {
			flags = verbs.SendFence
		}
	}
	for first := true; first || k.sent < len(m.data); first = false {
		if len(k.ring) == kSendWR {
			return false
		}
		n := min(len(m.data)-k.sent, 4096)
		piece := m.data[k.sent : k.sent+n]
		k.sent += n
		last := k.sent == len(m.data)
		if !k.post(m.h, piece, m, last, flags) {
			return false
		}
	}
	return true
}

// sendMap is rds_cong_update_alloc on its way; false: the ring is full.
func (k *kpeer) sendMap() bool {
	var b [cong.Len]byte
	k.cong.Put(b[:])
	for k.mapSent > 0 {
		if len(k.ring) == kSendWR {
			return false
		}
		i := k.mapSent - 1
		if !k.post(wire.Header{Flags: wire.FlagCong, Len: cong.Len}, b[4096*i:4096*(i+1)], nil, i == 1, 0) {
			return false
		}
		k.mapSent = (k.mapSent + 1) % 3
	}
	return true
}

func (k *kpeer) nextWRID() uint64 {
	k.wrid++
	return k.wrid
}

// post posts a frame.
func (k *kpeer) post(h wire.Header, piece []byte, m *kmsg, last bool, flags verbs.SendFlags) bool {
	id := k.nextWRID()
	off := int(id%kSendWR) * kFrame
	h.Ack = k.ackNext
	k.ackDue = false // it is piggybacked
	h.Put(k.sendMem[off:])
	n := wire.HeaderLen + copy(k.sendMem[off+wire.HeaderLen:], piece)
	s := kslot{wrid: id, ack: m == nil && len(piece) == 0}
	if last {
		s.last = m
		flags |= verbs.SendSolicited
	}
	if k.unsig++; last || k.unsig > 4 {
		flags |= verbs.SendSignaled
		k.unsig = 0
	}
	k.ring = append(k.ring, s)
	return k.postWR(verbs.SendWR{WRID: id, Op: verbs.OpSend, Flags: flags,
		SGL: []verbs.SGE{{Addr: uint64(off), Length: uint32(n), LKey: k.sendMR.LKey()}}})
}

func (k *kpeer) postWR(wr verbs.SendWR) bool {
	if _, err := k.qp.PostSend([]verbs.SendWR{wr}); err != nil {
		k.drop()
		return false
	}
	return true
}

// poll takes completions.
func (k *kpeer) poll() bool {
	work := k.event()
	var wc [8]verbs.WC
	for n := k.scq.Poll(wc[:]); n > 0 && k.state != kError; n = k.scq.Poll(wc[:]) {
		work = true
		for i := range n {
			k.sendDone(&wc[i])
		}
	}
	if k.state == kUp {
		k.refill(k.r.IntN(8))
	}
	return work
}

// sendDone is rds_ib_send_cqe_handler: all up to the completed one are done.
func (k *kpeer) sendDone(wc *verbs.WC) {
	for len(k.ring) > 0 && k.ring[0].wrid <= wc.WRID {
		s := k.ring[0]
		k.ring = k.ring[1:]
		if s.ack {
			k.ackBusy = false
		}
		if s.last == nil || s.last.op == nil || s.last.op.status != kOpen {
			continue
		}
		switch wc.Status {
		case verbs.WCSuccess:
			s.last.op.status = 0
		case verbs.WCRemAccessErr:
			s.last.op.status = 1
		}
	}
	if wc.Status != verbs.WCSuccess && k.state == kUp {
		k.drop()
	}
}

func (k *kpeer) refill(n int) {
	if len(k.spare) > k.recvWR/2 {
		n = k.recvWR // rds_ib_ring_low
	}
	for ; n > 0 && len(k.spare) > 0 && k.qp != nil; n-- {
		i := k.spare[len(k.spare)-1]
		k.spare = k.spare[:len(k.spare)-1]
		off := uint64(i * kFrame)
		_, err := k.qp.PostRecv([]verbs.RecvWR{{WRID: uint64(i), SGL: []verbs.SGE{
			{Addr: off, Length: wire.HeaderLen, LKey: k.recvMR.LKey()}, {Addr: off + wire.HeaderLen, Length: 4096, LKey: k.recvMR.LKey()}}}})
		must(err)
	}
}

// event is rds_ib_tasklet_fn_recv: a kernel looks when what it received was
// solicited, and only then.
func (k *kpeer) event() bool {
	if !k.rcq.Notified() {
		return false
	}
	k.recv()
	if k.state != kError {
		must(k.rcq.ReqNotify(true))
		k.recv()
	}
	return true
}

// recv is rds_poll_rcq.
func (k *kpeer) recv() (work bool) {
	var wc [8]verbs.WC
	for n := k.rcq.Poll(wc[:]); n > 0; n = k.rcq.Poll(wc[:]) {
		work = true
		for i := range n {
			if wc[i].Status != verbs.WCSuccess {
				if wc[i].Status != verbs.WCWRFlushErr {
					k.fail("receive status %v: a frame longer than a kernel's buffers", wc[i].Status)
				}
				k.drop()
				return true
			}
			k.processRecv(k.recvMem[int(wc[i].WRID)*kFrame:][:wc[i].ByteLen])
			k.spare = append(k.spare, int(wc[i].WRID))
		}
	}
	if k.ackReq {
		k.ackReq = false
		k.ackDue = true // rds_ib_attempt_ack
	}
	return work
}

// processRecv is rds_ib_process_recv; it checks more than a kernel does.
func (k *kpeer) processRecv(b []byte) {
	var h wire.Header
	if err := wire.Parse(b, &h); err != nil {
		k.fail("%x: %v", b[:min(len(b), 48)], err)
		return
	}
	body := b[wire.HeaderLen:]
	isMap := h.Flags == wire.FlagCong
	switch {
	case h.Credit != 0 || h.SrcInc != 0 || binary.BigEndian.Uint16(b[30:]) == 0:
		k.fail("credit %d, padding %#x, checksum %#x", h.Credit, h.SrcInc, binary.BigEndian.Uint16(b[30:]))
	case h.Ack >= k.nextTx:
		k.fail("ack %d, the next sequence is %d", h.Ack, k.nextTx)
	case h.Flags&^(wire.FlagAckRequired|wire.FlagRetransmitted) != 0 && !isMap:
		k.fail("flags %#x", h.Flags)
	}
	if h.Ack > k.ackRecv {
		k.ackRecv = h.Ack
		k.acked(h.Ack)
	}
	if h.SPort == 0 && h.DPort == 0 && len(body) == 0 {
		if h.Seq != 0 || h.Flags != 0 || h.Len != 0 || h.Ext != [wire.ExtLen]byte{} {
			k.fail("ack frame %+v", h)
		}
		return
	}
	if k.inc == nil {
		var all [16]byte
		copy(all[:], b[32:48])
		k.inc = &kinc{h: h, ext: wire.ParseExts(all[:])}
	} else if i := &k.inc.h; h.Seq != i.Seq || h.Len != i.Len || h.SPort != i.SPort || h.DPort != i.DPort || h.Flags != i.Flags || h.Ext != i.Ext {
		k.fail("fragment %+v of %+v", h, *i)
	}
	if want := min(int(h.Len)-len(k.inc.data), 4096); len(body) != want {
		k.fail("fragment of %d bytes, want %d: %+v", len(body), want, h)
	}
	k.inc.data = append(k.inc.data, body...)
	if len(k.inc.data) < int(h.Len) {
		return
	}
	inc := k.inc
	k.inc = nil
	if isMap {
		if h.Seq != 0 || h.SPort|h.DPort != 0 || len(inc.data) != cong.Len {
			k.fail("map %+v", h)
		}
		must(k.remote.Load(inc.data, nil))
		return
	}
	k.incoming(inc)
	k.ackNext = h.Seq
	if h.Flags&wire.FlagAckRequired != 0 {
		k.ackReq = true
	}
}

// acked is rds_send_path_drop_acked.
func (k *kpeer) acked(ack uint64) {
	for len(k.retrans) > 0 && k.retrans[0].h.Seq <= ack && k.retrans[0] != k.cur {
		m := k.retrans[0]
		k.retrans = k.retrans[1:]
		if m.op != nil && m.op.status == kOpen {
			m.op.status = 0
		}
		m.end(true)
	}
}

// incoming is rds_recv_incoming.
func (k *kpeer) incoming(inc *kinc) {
	h := &inc.h
	if h.Seq < k.nextRx && h.Flags&wire.FlagRetransmitted != 0 {
		k.dups++
		return
	}
	k.nextRx = h.Seq + 1
	if h.DPort == 0 {
		if h.SPort != 0 {
			k.sendmsg(0, h.SPort, nil, 0, nil, 0, nil)
		}
		return
	}
	s := k.socks[h.DPort]
	if s == nil {
		return
	}
	s.queue = append(s.queue, inc)
	s.got(inc)
	s.bytes += len(inc.data)
	if s.bytes > s.limit {
		k.setCong(s, true)
	}
}

func (k *kpeer) setCong(s *ksock, on bool) {
	if s.congested == on {
		return
	}
	s.congested = on
	if on {
		k.cong.Set(s.port)
	} else {
		k.cong.Clear(s.port)
	}
	k.mapQueued = true
}

// recvmsg takes the first message of a socket; false: there is none.
func (k *kpeer) recvmsg(s *ksock) bool {
	if len(s.queue) == 0 {
		return false
	}
	s.bytes -= len(s.queue[0].data)
	s.queue = s.queue[1:]
	if s.bytes < s.limit/2 || s.bytes == 0 {
		k.setCong(s, false)
	}
	return true
}
