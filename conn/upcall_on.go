//go:build upcalls

package conn

import (
	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/internal/upcalls"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// checked returns a Host that notes each up-call in u and passes it on to h.
func checked(u *upcalls.Calls, h Host) Host { return &checkedHost{u, h} }

type checkedHost struct {
	up *upcalls.Calls
	h  Host
}

func (x *checkedHost) Deliver(c *Conn, h *wire.Header, payload []byte) (v Verdict, met uint32) {
	defer x.up.Leave(x.up.Enter(upcalls.InDeliver))
	return x.h.Deliver(c, h, payload)
}

func (x *checkedHost) Begin(c *Conn, h *wire.Header) (dst []byte, token any, v Verdict) {
	defer x.up.Leave(x.up.Enter(upcalls.InBegin))
	return x.h.Begin(c, h)
}

func (x *checkedHost) Commit(c *Conn, h *wire.Header, token any) (met uint32) {
	defer x.up.Leave(x.up.Enter(upcalls.InCommit))
	return x.h.Commit(c, h, token)
}

func (x *checkedHost) Abort(c *Conn, token any) {
	defer x.up.Leave(x.up.Enter(upcalls.InAbort))
	x.h.Abort(c, token)
}

func (x *checkedHost) Bound(c *Conn, m *msg.Msg, inc uint32) {
	defer x.up.Leave(x.up.Enter(upcalls.InBound))
	x.h.Bound(c, m, inc)
}

func (x *checkedHost) Internal(c *Conn, t wire.InternalType, body []byte) {
	defer x.up.Leave(x.up.Enter(upcalls.InInternal))
	x.h.Internal(c, t, body)
}

func (x *checkedHost) AimAtomic(c *Conn, h *wire.Header, r *wire.Atomic) wire.AtomicStatus {
	defer x.up.Leave(x.up.Enter(upcalls.InAimAtomic))
	return x.h.AimAtomic(c, h, r)
}

func (x *checkedHost) RunAtomic(c *Conn, r *wire.Atomic, run bool) (old uint64) {
	defer x.up.Leave(x.up.Enter(upcalls.InRunAtomic))
	return x.h.RunAtomic(c, r, run)
}

func (x *checkedHost) AtomicResult(c *Conn, m *msg.Msg, old uint64) {
	defer x.up.Leave(x.up.Enter(upcalls.InAtomicResult))
	x.h.AtomicResult(c, m, old)
}

func (x *checkedHost) CanPost(c *Conn, m *msg.Msg) bool {
	defer x.up.Leave(x.up.Enter(upcalls.InCanPost))
	return x.h.CanPost(c, m)
}

func (x *checkedHost) OpLocal(c *Conn, m *msg.Msg) {
	defer x.up.Leave(x.up.Enter(upcalls.InOpLocal))
	x.h.OpLocal(c, m)
}

func (x *checkedHost) OpPlaced(c *Conn, m *msg.Msg) {
	defer x.up.Leave(x.up.Enter(upcalls.InOpPlaced))
	x.h.OpPlaced(c, m)
}

func (x *checkedHost) HasWaiting(c *Conn) bool {
	defer x.up.Leave(x.up.Enter(upcalls.InHasWaiting))
	return x.h.HasWaiting(c)
}

func (x *checkedHost) MsgDone(c *Conn, m *msg.Msg, o msg.Outcome) {
	defer x.up.Leave(x.up.Enter(upcalls.InMsgDone))
	x.h.MsgDone(c, m, o)
}

func (x *checkedHost) Instance(c *Conn, id uint64) bool {
	defer x.up.Leave(x.up.Enter(upcalls.InInstance))
	return x.h.Instance(c, id)
}

func (x *checkedHost) PeerUp(c *Conn, restarted bool) {
	defer x.up.Leave(x.up.Enter(upcalls.InPeerUp))
	x.h.PeerUp(c, restarted)
}

func (x *checkedHost) PeerDown(c *Conn, why error) {
	defer x.up.Leave(x.up.Enter(upcalls.InPeerDown))
	x.h.PeerDown(c, why)
}

func (x *checkedHost) Congestion(c *Conn, m *cong.Map) {
	defer x.up.Leave(x.up.Enter(upcalls.InCongestion))
	x.h.Congestion(c, m)
}

func (x *checkedHost) NewQP(c *Conn, req verbs.RequestID) (verbs.QP, error) {
	defer x.up.Leave(x.up.Enter(upcalls.InNewQP))
	return x.h.NewQP(c, req)
}

func (x *checkedHost) CloseQP(c *Conn, qp verbs.QP) {
	defer x.up.Leave(x.up.Enter(upcalls.InCloseQP))
	x.h.CloseQP(c, qp)
}

func (x *checkedHost) Dial(c *Conn, qp verbs.QP, private []byte) error {
	defer x.up.Leave(x.up.Enter(upcalls.InDial))
	return x.h.Dial(c, qp, private)
}

func (x *checkedHost) Accept(c *Conn, req verbs.RequestID, qp verbs.QP, private []byte) error {
	defer x.up.Leave(x.up.Enter(upcalls.InAccept))
	return x.h.Accept(c, req, qp, private)
}

func (x *checkedHost) Reject(req verbs.RequestID, private []byte) {
	defer x.up.Leave(x.up.Enter(upcalls.InReject))
	x.h.Reject(req, private)
}

func (x *checkedHost) SendBuf() *SendBuf {
	defer x.up.Leave(x.up.Enter(upcalls.InSendBuf))
	return x.h.SendBuf()
}

func (x *checkedHost) PutSendBuf(b *SendBuf) {
	defer x.up.Leave(x.up.Enter(upcalls.InPutSendBuf))
	x.h.PutSendBuf(b)
}

func (x *checkedHost) CtlBuf() *SendBuf {
	defer x.up.Leave(x.up.Enter(upcalls.InCtlBuf))
	return x.h.CtlBuf()
}

func (x *checkedHost) PutCtlBuf(b *SendBuf) {
	defer x.up.Leave(x.up.Enter(upcalls.InPutCtlBuf))
	x.h.PutCtlBuf(b)
}

func (x *checkedHost) Trace(c *Conn, event string, err error) {
	defer x.up.Leave(x.up.Enter(upcalls.InTrace))
	x.h.Trace(c, event, err)
}
