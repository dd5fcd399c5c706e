package verbs

// Arming is what makes the next event of a completion queue, for providers. The zero
// value is Unarmed.
type Arming uint8

const (
	Unarmed        Arming = iota // nothing
	ArmedSolicited               // a completion that is solicited, or has failed
	ArmedAny                     // any completion
)

// Request is ReqNotify. A queue that is armed for any completion stays so.
func (a *Arming) Request(solicitedOnly bool) {
	want := ArmedAny
	if solicitedOnly {
		want = ArmedSolicited
	}
	*a = max(*a, want)
}

// Take reports whether a new completion makes an event; the queue is unarmed then.
// A completion that has failed counts as solicited.
func (a *Arming) Take(solicited bool) bool {
	if *a == ArmedAny || *a == ArmedSolicited && solicited {
		*a = Unarmed
		return true
	}
	return false
}
