// Package trace follows single messages through an engine and notes when something happened to
// each: rdsctl trace. A message is chosen once, at the first moment at which its sequence is
// known: when it is posted, and when it arrives. Both ends of a connection see the same sequence,
// so both choose the same messages of every Nth. From then on the message has the Set of the traces
// that follow it, which is empty while there is no trace.
//
// An engine writes events into a ring that another goroutine reads, and never waits for it: an
// event that does not fit is counted.
package trace

import (
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
)

// Step is what happened to a message.
type Step uint8

// The steps of a message's life. At its sender Submitted to Ended, at its receiver Arrived to
// NoSocket; on the same host there is no Posted and Arrived.
const (
	Submitted Step = iota // the daemon took it from the process
	Posted                // it was handed to the queue pair or the TCP connection
	Resent                // ... again, on another connection or because it was refused
	Local                 // its operations are locally complete
	Placed                // the data of its operations is in place
	Settled               // the status of an operation is known
	Acked                 // the peer has acked it
	Ended                 // it has ended in another way
	Arrived               // its header arrived
	Delivered             // it is in the process's event ring
	Read                  // the process has read it
	Refused               // there was no room; it comes again
	NoSocket              // no socket is bound to its port
)

var names = [...]string{Submitted: "submitted", Posted: "posted", Resent: "resent", Local: "local", Placed: "placed",
	Settled: "settled", Acked: "acked", Ended: "ended", Arrived: "arrived", Delivered: "delivered", Read: "read",
	Refused: "refused", NoSocket: "nosocket"}

// Event is a step of one message.
type Event struct {
	At            int64 // ns of unix time
	Local, Remote netip.AddrPort
	Seq           uint64
	Datagrams     uint32
	Bytes         uint32
	Ops           uint8
	Lane, Path    uint8
	Step          Step
	Outcome       string
}

// told is ev as rdsctl gets it.
func (ev *Event) told() ctl.TraceEvent {
	return ctl.TraceEvent{Time: time.Unix(0, ev.At).UTC(), Step: names[ev.Step], Local: ev.Local.Addr(), LocalPort: ev.Local.Port(),
		Remote: ev.Remote.Addr(), RemotePort: ev.Remote.Port(), Lane: ev.Lane, Path: ev.Path, Seq: ev.Seq, Datagrams: uint64(ev.Datagrams),
		Bytes: uint64(ev.Bytes), Ops: int(ev.Ops), Outcome: ev.Outcome}
}
