package daemon

import (
	"github.com/rdsd/rdsd/internal/mutant"
	"github.com/rdsd/rdsd/rdmaop"
	"golang.org/x/sys/unix"
)

// A port that is bound again has another owner. A message that is for the socket
// at a port, and for no later one, names its incarnation (conn.Msg.DstInc).

// meant returns the socket that a message means: the one at port, but only if its
// incarnation is inc; inc 0 means whoever is bound. nil: there is none.
func (e *Engine) meant(l *local, port uint16, inc uint32) *socket {
	s := e.bound(l, port)
	if s == nil || inc != 0 && inc != s.inc && !mutant.On(mutant.Incarnation) {
		return nil
	}
	return s
}

// meansOwner has a message with operations mean the socket that owns their
// memory, if that socket is at the port that the message is for: the port's next
// owner has another memory, and the data would not be there. owner says whose the
// memory of an operation is. A region of a socket at another port says nothing
// about the destination.
//
// EINVAL: bad names memory of another socket than the message means. One port has
// one owner at a time, so one of the keys has ended.
func (t *txMsg) meansOwner(owner func(*txOp) rdmaop.Owner) (bad *txOp, errno unix.Errno) {
	if mutant.On(mutant.OwnerNotMeant) {
		return nil, 0
	}
	means := uint32(0)
	for _, o := range t.ops() {
		w := owner(o)
		if w.Inc == 0 || w.Port != t.m.DPort {
			continue
		}
		if means != 0 && means != w.Inc {
			return o, unix.EINVAL
		}
		means = w.Inc
	}
	if means != 0 {
		t.m.DstInc = means
	}
	return nil, 0
}

// localOwner is whose the memory of a same-host operation is. The caller has
// asked localTarget.
func (e *Engine) localOwner(o *txOp) rdmaop.Owner {
	s := e.regions[o.RKey()].sock
	return rdmaop.Owner{Port: s.port, Inc: s.inc}
}
