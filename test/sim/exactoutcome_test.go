package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rdsd/rdsd/rds"
)

// exactOutcome is what sender and receiver saw of the message.
type exactOutcome struct {
	told      string // a status, "lost", or "-"
	delivered bool
	once      string // "", or what happened more than once or in the wrong order
}

func (o exactOutcome) String() string {
	d := "no"
	if o.delivered {
		d = "yes"
	}
	return strings.TrimSpace(o.told + " " + d + " " + o.once)
}

func (x *exact) got() (o exactOutcome) {
	all := append(slices.Clone(x.got1), x.got2...)
	n := 0
	for _, m := range all {
		if m == underTest {
			n++
		}
	}
	o.delivered = n > 0
	if n > 1 {
		o.once = "delivered twice"
	}
	if x.ran > x.kind.ops() {
		o.once = fmt.Sprintf("%d operations ran", x.ran)
	}
	if x.kind.ops() > 0 && slices.Contains(x.got2, underTest) {
		o.once = "delivered by another instance"
	}
	if len(all) == 0 || all[len(all)-1] != afterwards || slices.Index(all, afterwards) != len(all)-1 {
		o.once = fmt.Sprintf("order %q", all)
	}
	o.told = "-"
	switch {
	case x.kind.ops() == 0 && x.lost > 0:
		o.told = "lost"
	case x.kind.ops() > 0 && len(x.statuses) != x.kind.ops():
		o.told = fmt.Sprint(x.statuses)
	case x.kind.ops() > 0:
		if o.told = x.statuses[0].Error(); slices.Max(x.statuses) != slices.Min(x.statuses) {
			o.told = fmt.Sprint(x.statuses)
		}
	}
	if x.lost > 1 || x.lost > 0 && x.kind.ops() > 0 {
		o.once = fmt.Sprintf("%d notices", x.lost)
	}
	return o
}

// want returns the outcome that docs/guarantees.md promises.
func (x *exact) want() (o exactOutcome) {
	st, op := x.step, x.kind.ops() > 0
	arrived := st.arrived
	// The initiator knows what an ack or the peer's HELLO told it.
	known := st.acked || x.met
	status := func(s rds.Status) { o.told = s.Error() }
	o.told = "-"
	switch x.harm {
	case breaks, breaksLong:
		switch {
		case !op:
			o.delivered = true
		case st.queued, x.kind.carried() && x.kind.byDevice() == 0: // sent again until it has run
			o.delivered = true
			status(rds.Success)
		case x.harm == breaksLong && !known && !x.kind.carried():
			o.delivered = arrived
			status(rds.Unknown)
		case arrived:
			o.delivered = true
			status(rds.Success)
		default:
			status(rds.Dropped)
		}
	case restarts:
		switch {
		case st.queued && !op:
			o.delivered = true // to the new instance
		case st.queued: // it never runs, because its key ended with the peer
			if status(rds.RemoteError); x.kind.ops() > 1 {
				o.told = fmt.Sprint([]rds.Status{rds.RemoteError, rds.Dropped})
			}
		case x.kind.carried() && known && !st.acked && (arrived || x.kind.byDevice() == 0):
			// The result had not come, or it was sent again and may have run.
			status(rds.Unknown)
		case op && known && arrived:
			status(rds.Success)
		case op && known:
			status(rds.Dropped)
		case op:
			status(rds.Unknown)
		case !known || !arrived:
			o.told = "lost"
		}
		o.delivered = o.delivered || st.taken
	}
	if x.kind.silent {
		o.delivered = false
	}
	return o
}
