package sim

import (
	"slices"

	"github.com/rdsd/rdsd/verbs"
)

// letting is memory of a region that has ended, which a thread of the device still touches.
type letting struct {
	until int64
	told  []func() // what waits for it
}

// letGo begins it: a thread has something of every other region that ends.
func (mr *MR) letGo() {
	n, d := mr.pd.dev.net, mr.pd.dev
	if t := n.Timing.LetGo; t.Max > 0 && n.rand.letGo.below(2) == 0 {
		mr.letting = &letting{until: n.now + n.rand.letGo.between(t)}
		d.letting = append(d.letting, mr.letting)
		n.At(mr.letting.until, func() {})
	}
}

// Untouched implements verbs.Touched.
func (mr *MR) Untouched(f func()) {
	if l := mr.letting; l != nil && mr.pd.dev.touches(l) {
		l.told = append(l.told, f)
		return
	}
	f()
}

var _ verbs.Touched = (*MR)(nil)

// touches reports whether a thread still touches what l says.
func (d *Device) touches(l *letting) bool { return !d.dead && d.net.now < l.until }

// Touches reports whether a thread of the device touches memory of a region that has ended.
func (d *Device) Touches() bool { return slices.ContainsFunc(d.letting, d.touches) }

// Releasing implements verbs.Releaser: a queue pair that has failed is of the threads that touch such memory.
func (q *QP) Releasing() bool { return q.state == verbs.QPErr && q.dev.Touches() }

var _ verbs.Releaser = (*QP)(nil)

// lets reports whether threads have let go of something that the owner was not told of.
func (d *Device) lets() bool {
	return slices.ContainsFunc(d.letting, func(l *letting) bool { return !d.touches(l) })
}

// Progress tells what threads have let go of. Network.Step moves everything else.
func (d *Device) Progress() bool {
	if !d.lets() {
		return false
	}
	all := d.letting
	d.letting = nil
	for _, l := range all {
		if d.touches(l) {
			d.letting = append(d.letting, l)
			continue
		}
		for _, f := range l.told {
			f()
		}
	}
	return true
}
