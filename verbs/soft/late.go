package soft

import (
	"net/netip"
	"sync/atomic"

	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// LateTap is a Tap that is switched on and off while connections are up. It sees a
// connection from a frame on, with the MPA start-up frames in front of it, whenever they
// were. Its methods are called on the owner's thread.
type LateTap interface {
	Tap
	// On is not 0 while the tap is on. It is another number whenever it is switched on. The
	// owner's thread switches it.
	On() *atomic.Uint32
	// Begin announces a connection and reports whether the tap wants its streams. passive
	// says that the remote end has made the connection, marked that the stream to the
	// remote end has MPA markers.
	Begin(local, remote netip.AddrPort, passive, marked bool) bool
}

// off is never switched on.
var off atomic.Uint32

// late is what a QP knows of the device's LateTap.
type late struct {
	on      uint32    // LateTap.On when the QP looked last
	tap     Tap       // nil: it sees nothing of this QP
	passive bool      // the remote end has made the connection
	mpa     [2][]byte // request and reply; nil on a device without a LateTap
	skip    [2]int    // bytes to come of the frame in which the tap began; 1: out
}

// tap returns who sees q's streams, nil: nobody.
func (q *qp) tap() Tap {
	d := q.dev
	if d.opt.Tap != nil {
		return d.opt.Tap
	}
	if on := d.lateOn.Load(); on != q.late.on && q.rx.job == nil {
		q.switchTap(on)
	}
	return q.late.tap
}

// switchTap begins or ends what a LateTap sees of q. What was read last is not in the stage
// yet, and what was written last is still among the pending output.
func (q *qp) switchTap(on uint32) {
	l, t := &q.late, q.dev.opt.Late
	l.on, l.tap, l.skip = on, nil, [2]int{}
	if on == 0 || l.mpa[0] == nil || !t.Begin(q.local, q.remote, l.passive, q.markers) {
		return
	}
	l.tap = t
	t.Stream(q.local, q.remote, !l.passive, l.mpa[0])
	t.Stream(q.local, q.remote, l.passive, l.mpa[1])
	x := &q.rx
	if x.placing {
		l.skip[0] = x.left + x.trailer
	}
	q.saw(t, false, x.stage[x.r:x.w])
	if q.out.written != q.out.whole {
		l.skip[1] = q.out.pending
	}
}

// saw shows t bytes of a stream, except those of a frame that it has not seen from its
// beginning.
func (q *qp) saw(t Tap, out bool, b []byte) {
	skip := &q.late.skip[0]
	if out {
		skip = &q.late.skip[1]
	}
	n := min(*skip, len(b))
	*skip -= n
	if n < len(b) {
		t.Stream(q.local, q.remote, out, b[n:])
	}
}

// rawMPA is a start-up frame for a LateTap that comes later, nil if there is none.
func (o *Options) rawMPA(m *iwarp.MPA) []byte {
	if o.Late == nil {
		return nil
	}
	return m.Append(nil)
}
