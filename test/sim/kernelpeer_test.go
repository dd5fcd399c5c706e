package sim

import (
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
	reconnectAt int64 // 0: no reconnect is queued
	ceiling     int64 // cp_reconnect_jiffies

	sendMem []byte
	sendMR  verbs.MR
	ring    []kslot // posted buffers, oldest first
	wrid    uint64
	unsig   int

	recvMem  []byte
	recvMR   verbs.MR
	spare    []int // receive buffers that are not posted
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
	last *kmsg // the message whose last fragment this frame is
	ack  bool
}

// kinc is a message that has arrived.
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

// sendmsg queues a message, or returns false for ENOBUFS.
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

// step does what there is to do, and reports whether there was anything.
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
	k.refill(k.recvWR) // only now, so a message that came earlier found no buffer
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

// shutdown is rds_conn_shutdown, rds_ib_conn_path_shutdown and rds_send_path_reset. Received
// frames that the kernel has not looked at are either processed or lost.
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

// poll takes completions and reports whether there were any.
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

// event is rds_ib_tasklet_fn_recv. A kernel polls for receives only after a solicited one.
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
