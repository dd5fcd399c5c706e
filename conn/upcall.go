package conn

// A call is a kind of call into a Conn or TCP. Host says which kinds may come from
// inside which up-call. The build tag upcalls checks it: then each method of that
// kind tells upcalls.called first, and each up-call goes through upcalls.host.
// Methods that only read are of no kind.
type call uint8

const (
	callNote     call = iota // Send, QueueCong, Hold, Excuse, TookRun, Probe
	callWithdraw             // Withdraw
	callForget               // ForgetPartial
	callWaiting              // Waiting
	callCancel               // Cancel, GiveUp, CancelMatching
	callAttr                 // UseAttr
	callDrive                // whatever brings an event, the time or a setting
)
