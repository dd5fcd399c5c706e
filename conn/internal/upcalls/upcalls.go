// Package upcalls checks which methods of a connection its host calls from inside which up-calls.
package upcalls

// Call is a kind of call into a connection: a conn.Conn or a tcp.Conn. conn.Host says which
// kinds may come from inside which up-call. The build tag upcalls checks it: then each method of
// that kind tells Called first, and each up-call enters and leaves. Methods that only read are of no kind.
type Call uint8

const (
	Note     Call = iota // Send, QueueCong, Hold, Excuse, TookRun, Probe
	Withdraw             // Withdraw
	Forget               // ForgetPartial
	Waiting              // Waiting
	Cancel               // Cancel, GiveUp, CancelMatching
	Attr                 // UseAttr
	Drive                // whatever brings an event, the time or a setting
)
