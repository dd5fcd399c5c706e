package trace

// Max is how many traces there are at a time.
const Max = 8

// Set is a set of traces, by their places in Traces.
type Set uint8

// User is whose socket an event is about. Known is false if it is about none.
type User struct {
	UID   uint32
	Known bool
}

// Traces are those that are on. The engine's goroutine owns them.
type Traces struct {
	On  bool // there is one
	all [Max]*Trace
}

// Begin starts t at now; false: there are Max.
func (a *Traces) Begin(t *Trace, now int64) bool {
	for i, at := range a.all {
		if at == nil {
			t.until = now + int64(t.spec.Duration)
			t.looked, t.credit = now, burst*nsPerSec
			a.all[i], a.On = t, true
			return true
		}
	}
	return false
}

// End stops t. It may have ended before.
func (a *Traces) End(t *Trace) {
	a.On = false
	for i, at := range a.all {
		if at == t {
			a.all[i] = nil
		}
		a.On = a.On || a.all[i] != nil
	}
}

// Follow chooses at now the traces that ev's message is for. It is about a socket of whose.
func (a *Traces) Follow(ev *Event, whose User, now int64) (set Set) {
	for i, t := range a.all {
		if t != nil && t.matches(ev, whose) && t.takes(now) {
			set |= 1 << i
		}
	}
	return set
}

// FollowReceiver chooses at now the traces that want what happens to a message at its receiver on
// this host, and not what happens at its sender.
func (a *Traces) FollowReceiver(sent *Event, sender User, came *Event, receiver User, now int64) (set Set) {
	for i, t := range a.all {
		if t != nil && t.matches(came, receiver) && !t.matches(sent, sender) && t.takes(now) {
			set |= 1 << i
		}
	}
	return set
}

// Put gives ev to the traces in set that may see it. A place may belong to another trace by now.
func (a *Traces) Put(set Set, ev *Event, whose User) {
	for i, t := range a.all {
		if set&(1<<i) != 0 && t != nil && t.matches(ev, whose) {
			t.put(ev)
		}
	}
}
