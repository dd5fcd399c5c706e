//go:build upcalls

package upcalls

import "fmt"

// Call is a kind of call into a connection. Kinds has the methods of each.
type Call uint8

const (
	note Call = iota
	withdraw
	forget
	waiting
	cancel
	attr
	drive
	numCalls
)

// Upcall is a method of a host.
type Upcall uint8

const (
	_ Upcall = iota // none
	InDeliver
	InBegin
	InCommit
	InAbort
	InBound
	InInternal
	InAimAtomic
	InRunAtomic
	InAtomicResult
	InCanPost
	InOpLocal
	InOpPlaced
	InMsgDone
	InHasWaiting
	InInstance
	InPeerUp
	InPeerDown
	InCongestion
	InNewQP
	InCloseQP
	InDial
	InAccept
	InReject
	InSendBuf
	InPutSendBuf
	InCtlBuf
	InPutCtlBuf
	InTrace

	NumUpcalls
)

// Names has the name of each up-call.
var Names = [NumUpcalls]string{
	InDeliver: "Deliver", InBegin: "Begin", InCommit: "Commit", InAbort: "Abort", InBound: "Bound", InInternal: "Internal",
	InAimAtomic: "AimAtomic", InRunAtomic: "RunAtomic", InAtomicResult: "AtomicResult", InCanPost: "CanPost", InOpLocal: "OpLocal", InOpPlaced: "OpPlaced", InMsgDone: "MsgDone", InHasWaiting: "HasWaiting", InInstance: "Instance", InPeerUp: "PeerUp",
	InPeerDown: "PeerDown", InCongestion: "Congestion", InNewQP: "NewQP", InCloseQP: "CloseQP", InDial: "Dial", InAccept: "Accept",
	InReject: "Reject", InSendBuf: "SendBuf", InPutSendBuf: "PutSendBuf", InCtlBuf: "CtlBuf", InPutCtlBuf: "PutCtlBuf", InTrace: "Trace",
}

// Kinds has the methods of each kind of call.
var Kinds = [numCalls][]string{
	note:     {"Send", "QueueCong", "Hold", "Excuse", "TookRun", "Probe"},
	withdraw: {"Withdraw"},
	forget:   {"ForgetPartial"},
	waiting:  {"Waiting"},
	cancel:   {"Cancel", "GiveUp", "CancelMatching"},
	attr:     {"UseAttr"},
	drive: {"Reset", "Close", "CutOff", "Tick", "Flush", "SetSilence", "CQEmpty",
		"HoldOps", "Halt", "Resume", "Encode", "Adopt",
		"HandleRequest", "HandleCM", "HandleRecv", "HandleSend",
		"HandleConnected", "HandleAccept", "HandleFailed", "HandleClosed", "HandleData", "HandlePlaced", "HandleRoom"},
}

// allowed has what may be called from inside each up-call, as Host says.
var allowed = [NumUpcalls][]Call{
	InDeliver:      {note, withdraw, forget},
	InBegin:        {note, forget},
	InCommit:       {note, withdraw, forget},
	InAbort:        {note},
	InBound:        {note},
	InInternal:     {note},
	InAimAtomic:    {note},
	InRunAtomic:    {note},
	InAtomicResult: {note},
	InOpLocal:      {note},
	InOpPlaced:     {note},
	InMsgDone:      {note},
	InInstance:     {note, waiting},
	InPeerUp:       {note},
	InPeerDown:     {note, cancel},
	InCongestion:   {note},
	InNewQP:        {note, attr},
}

// Calls knows which up-calls a connection is in, and panics at a call that one
// of them does not allow.
type Calls struct {
	forbids [numCalls]Upcall // for each kind the outermost up-call that does not allow it
}

// Enter notes that up-call n begins, and returns what Leave needs.
func (u *Calls) Enter(n Upcall) (before Calls) {
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

// Leave notes that the up-call has returned.
func (u *Calls) Leave(before Calls) { *u = before }

// Note is told by Send, QueueCong, Hold, Excuse, TookRun and Probe.
func (u *Calls) Note() { u.called(note) }

// Withdraw is told by Withdraw.
func (u *Calls) Withdraw() { u.called(withdraw) }

// Forget is told by ForgetPartial.
func (u *Calls) Forget() { u.called(forget) }

// Waiting is told by Waiting.
func (u *Calls) Waiting() { u.called(waiting) }

// Cancel is told by Cancel, GiveUp and CancelMatching.
func (u *Calls) Cancel() { u.called(cancel) }

// Attr is told by UseAttr.
func (u *Calls) Attr() { u.called(attr) }

// Drive is told by whatever brings an event, the time or a setting.
func (u *Calls) Drive() { u.called(drive) }

// called notes a call of kind k.
func (u *Calls) called(k Call) {
	if n := u.forbids[k]; n != 0 {
		panic(fmt.Sprintf("conn: one of %v was called from inside %s of the same connection's host: conn.Host says what may be",
			Kinds[k], Names[n]))
	}
}

// Forbidden reports whether a call of kind k is not allowed now.
func (u *Calls) Forbidden(k Call) bool { return u.forbids[k] != 0 }
