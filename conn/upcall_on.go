//go:build upcalls

package conn

import (
	"fmt"

	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// upcall is a method of a Host or TCPHost.
type upcall uint8

const (
	_ upcall = iota // none
	upDeliver
	upBegin
	upCommit
	upAbort
	upBound
	upInternal
	upAimAtomic
	upRunAtomic
	upAtomicResult
	upCanPost
	upOpLocal
	upOpPlaced
	upMsgDone
	upHasStopped
	upInstance
	upPeerUp
	upPeerDown
	upCongestion
	upNewQP
	upCloseQP
	upDial
	upAccept
	upReject
	upSendBuf
	upPutSendBuf
	upCtlBuf
	upPutCtlBuf
	upTrace

	numUpcalls
)

var upcallNames = [numUpcalls]string{
	upDeliver: "Deliver", upBegin: "Begin", upCommit: "Commit", upAbort: "Abort", upBound: "Bound", upInternal: "Internal",
	upAimAtomic: "AimAtomic", upRunAtomic: "RunAtomic", upAtomicResult: "AtomicResult", upCanPost: "CanPost", upOpLocal: "OpLocal", upOpPlaced: "OpPlaced", upMsgDone: "MsgDone", upHasStopped: "HasStopped", upInstance: "Instance", upPeerUp: "PeerUp",
	upPeerDown: "PeerDown", upCongestion: "Congestion", upNewQP: "NewQP", upCloseQP: "CloseQP", upDial: "Dial", upAccept: "Accept",
	upReject: "Reject", upSendBuf: "SendBuf", upPutSendBuf: "PutSendBuf", upCtlBuf: "CtlBuf", upPutCtlBuf: "PutCtlBuf", upTrace: "Trace",
}

const numCalls = callDrive + 1

var callNames = [numCalls]string{
	callNote: "Send, QueueCong, Hold, Excuse or TookRun", callWithdraw: "Withdraw", callForget: "ForgetPartial", callWaiting: "Waiting",
	callCancel: "Cancel, GiveUp or CancelMatching", callAttr: "UseAttr", callDrive: "a method that brings an event, the time or a setting",
}

// allowed has what may be called from inside each up-call, as Host says.
var allowed = [numUpcalls][]call{
	upDeliver:      {callNote, callWithdraw, callForget},
	upBegin:        {callNote, callForget},
	upCommit:       {callNote, callWithdraw, callForget},
	upAbort:        {callNote},
	upBound:        {callNote},
	upInternal:     {callNote},
	upAimAtomic:    {callNote},
	upRunAtomic:    {callNote},
	upAtomicResult: {callNote},
	upOpLocal:      {callNote},
	upOpPlaced:     {callNote},
	upMsgDone:      {callNote},
	upInstance:     {callNote, callWaiting},
	upPeerUp:       {callNote},
	upPeerDown:     {callNote, callCancel},
	upCongestion:   {callNote},
	upNewQP:        {callNote, callAttr},
}

// upcalls knows which up-calls a connection is in, and panics at a call that one
// of them does not allow.
type upcalls struct {
	forbids [numCalls]upcall // for each kind the outermost up-call that does not allow it
}

// enter notes that up-call n begins, and returns what leave needs.
func (u *upcalls) enter(n upcall) (before upcalls) {
	before = *u
	for k := range numCalls {
		if u.forbids[k] == 0 {
			u.forbids[k] = n
		}
	}
	for _, k := range allowed[n] {
		u.forbids[k] = before.forbids[k]
	}
	return before
}

// leave notes that the up-call has returned.
func (u *upcalls) leave(before upcalls) { *u = before }

// called notes a call of kind k into the connection.
func (u *upcalls) called(k call) {
	if n := u.forbids[k]; n != 0 {
		panic(fmt.Sprintf("conn: %s was called from inside %s of the same connection's host: conn.Host says what may be",
			callNames[k], upcallNames[n]))
	}
}

// host returns a Host that notes each up-call and passes it on to h.
func (u *upcalls) host(h Host) Host { return &checkedHost{u, h} }

// tcpHost returns a TCPHost that notes each up-call and passes it on to h.
func (u *upcalls) tcpHost(h TCPHost) TCPHost { return &checkedTCPHost{u, h} }

type checkedHost struct {
	up *upcalls
	h  Host
}

func (x *checkedHost) Deliver(c *Conn, h *wire.Header, payload []byte) (v Verdict, met uint32) {
	defer x.up.leave(x.up.enter(upDeliver))
	return x.h.Deliver(c, h, payload)
}

func (x *checkedHost) Begin(c *Conn, h *wire.Header) (dst []byte, token any, v Verdict) {
	defer x.up.leave(x.up.enter(upBegin))
	return x.h.Begin(c, h)
}

func (x *checkedHost) Commit(c *Conn, h *wire.Header, token any) (met uint32) {
	defer x.up.leave(x.up.enter(upCommit))
	return x.h.Commit(c, h, token)
}

func (x *checkedHost) Abort(c *Conn, token any) {
	defer x.up.leave(x.up.enter(upAbort))
	x.h.Abort(c, token)
}

func (x *checkedHost) Bound(c *Conn, m *Msg, inc uint32) {
	defer x.up.leave(x.up.enter(upBound))
	x.h.Bound(c, m, inc)
}

func (x *checkedHost) Internal(c *Conn, t wire.InternalType, body []byte) {
	defer x.up.leave(x.up.enter(upInternal))
	x.h.Internal(c, t, body)
}

func (x *checkedHost) AimAtomic(c *Conn, h *wire.Header, r *wire.Atomic) wire.AtomicStatus {
	defer x.up.leave(x.up.enter(upAimAtomic))
	return x.h.AimAtomic(c, h, r)
}

func (x *checkedHost) RunAtomic(c *Conn, r *wire.Atomic, run bool) (old uint64) {
	defer x.up.leave(x.up.enter(upRunAtomic))
	return x.h.RunAtomic(c, r, run)
}

func (x *checkedHost) AtomicResult(c *Conn, m *Msg, old uint64) {
	defer x.up.leave(x.up.enter(upAtomicResult))
	x.h.AtomicResult(c, m, old)
}

func (x *checkedHost) CanPost(c *Conn, m *Msg) bool {
	defer x.up.leave(x.up.enter(upCanPost))
	return x.h.CanPost(c, m)
}

func (x *checkedHost) OpLocal(c *Conn, m *Msg) {
	defer x.up.leave(x.up.enter(upOpLocal))
	x.h.OpLocal(c, m)
}

func (x *checkedHost) OpPlaced(c *Conn, m *Msg) {
	defer x.up.leave(x.up.enter(upOpPlaced))
	x.h.OpPlaced(c, m)
}

func (x *checkedHost) HasStopped(c *Conn) bool {
	defer x.up.leave(x.up.enter(upHasStopped))
	return x.h.HasStopped(c)
}

func (x *checkedHost) MsgDone(c *Conn, m *Msg, o Outcome) {
	defer x.up.leave(x.up.enter(upMsgDone))
	x.h.MsgDone(c, m, o)
}

func (x *checkedHost) Instance(c *Conn, id uint64) bool {
	defer x.up.leave(x.up.enter(upInstance))
	return x.h.Instance(c, id)
}

func (x *checkedHost) PeerUp(c *Conn, restarted bool) {
	defer x.up.leave(x.up.enter(upPeerUp))
	x.h.PeerUp(c, restarted)
}

func (x *checkedHost) PeerDown(c *Conn, why error) {
	defer x.up.leave(x.up.enter(upPeerDown))
	x.h.PeerDown(c, why)
}

func (x *checkedHost) Congestion(c *Conn, m *cong.Map) {
	defer x.up.leave(x.up.enter(upCongestion))
	x.h.Congestion(c, m)
}

func (x *checkedHost) NewQP(c *Conn, req verbs.RequestID) (verbs.QP, error) {
	defer x.up.leave(x.up.enter(upNewQP))
	return x.h.NewQP(c, req)
}

func (x *checkedHost) CloseQP(c *Conn, qp verbs.QP) {
	defer x.up.leave(x.up.enter(upCloseQP))
	x.h.CloseQP(c, qp)
}

func (x *checkedHost) Dial(c *Conn, qp verbs.QP, private []byte) error {
	defer x.up.leave(x.up.enter(upDial))
	return x.h.Dial(c, qp, private)
}

func (x *checkedHost) Accept(c *Conn, req verbs.RequestID, qp verbs.QP, private []byte) error {
	defer x.up.leave(x.up.enter(upAccept))
	return x.h.Accept(c, req, qp, private)
}

func (x *checkedHost) Reject(req verbs.RequestID, private []byte) {
	defer x.up.leave(x.up.enter(upReject))
	x.h.Reject(req, private)
}

func (x *checkedHost) SendBuf() *SendBuf {
	defer x.up.leave(x.up.enter(upSendBuf))
	return x.h.SendBuf()
}

func (x *checkedHost) PutSendBuf(b *SendBuf) {
	defer x.up.leave(x.up.enter(upPutSendBuf))
	x.h.PutSendBuf(b)
}

func (x *checkedHost) CtlBuf() *SendBuf {
	defer x.up.leave(x.up.enter(upCtlBuf))
	return x.h.CtlBuf()
}

func (x *checkedHost) PutCtlBuf(b *SendBuf) {
	defer x.up.leave(x.up.enter(upPutCtlBuf))
	x.h.PutCtlBuf(b)
}

func (x *checkedHost) Trace(c *Conn, event string, err error) {
	defer x.up.leave(x.up.enter(upTrace))
	x.h.Trace(c, event, err)
}

type checkedTCPHost struct {
	up *upcalls
	h  TCPHost
}

func (x *checkedTCPHost) Deliver(c *TCP, h *wire.Header, payload []byte) Verdict {
	defer x.up.leave(x.up.enter(upDeliver))
	return x.h.Deliver(c, h, payload)
}

func (x *checkedTCPHost) Begin(c *TCP, h *wire.Header) (dst []byte, token any, v Verdict) {
	defer x.up.leave(x.up.enter(upBegin))
	return x.h.Begin(c, h)
}

func (x *checkedTCPHost) Commit(c *TCP, h *wire.Header, token any) {
	defer x.up.leave(x.up.enter(upCommit))
	x.h.Commit(c, h, token)
}

func (x *checkedTCPHost) Abort(c *TCP, token any) {
	defer x.up.leave(x.up.enter(upAbort))
	x.h.Abort(c, token)
}

func (x *checkedTCPHost) MsgDone(c *TCP, m *Msg, o Outcome) {
	defer x.up.leave(x.up.enter(upMsgDone))
	x.h.MsgDone(c, m, o)
}

func (x *checkedTCPHost) PeerUp(c *TCP) {
	defer x.up.leave(x.up.enter(upPeerUp))
	x.h.PeerUp(c)
}

func (x *checkedTCPHost) PeerDown(c *TCP, why error) {
	defer x.up.leave(x.up.enter(upPeerDown))
	x.h.PeerDown(c, why)
}

func (x *checkedTCPHost) Congestion(c *TCP, m *cong.Map) {
	defer x.up.leave(x.up.enter(upCongestion))
	x.h.Congestion(c, m)
}

func (x *checkedTCPHost) Dial(c *TCP, lane int, id uint64, must bool) error {
	defer x.up.leave(x.up.enter(upDial))
	return x.h.Dial(c, lane, id, must)
}

func (x *checkedTCPHost) Trace(c *TCP, event string, err error) {
	defer x.up.leave(x.up.enter(upTrace))
	x.h.Trace(c, event, err)
}
