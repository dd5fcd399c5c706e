package sim

import (
	"fmt"

	"github.com/rdsd/rdsd/verbs"
	"golang.org/x/sys/unix"
)

// CQ implements verbs.CQ. A completion that finds it full is lost and takes the
// queue's QPs down.
type CQ struct {
	dev     *Device
	cap     int
	q       []cqe // ring, power of two
	head, n int
	users   int // queue ends that complete here
	gone    bool
	overrun bool
	arm     verbs.Arming
	fired   bool // an event was not taken yet
}

const maxCQE = 1 << 22

// cqe is a completion, with what is released when it is polled.
type cqe struct {
	wc   verbs.WC
	qp   *QP
	upto uint64 // send queue slots below are released
	recv bool   // one receive queue slot is released

	solicited bool
}

func (c *CQ) push(e cqe) {
	if c.dev.dead || c.overrun {
		return
	}
	c.dev.net.note(traceComplete, e.wc.QPNum, e.wc.WRID<<8|uint64(e.wc.Status))
	if c.n == c.cap {
		c.overrun = true
		c.dev.raise(verbs.AsyncEvent{Type: verbs.AsyncCQErr, CQ: c})
		for _, q := range c.dev.qps {
			if q.sendCQ == c || q.recvCQ == c {
				q.fatal = true
				q.learnLater(false)
			}
		}
		return
	}
	if c.n == len(c.q) {
		q := make([]cqe, max(64, 2*len(c.q)))
		for i := range c.n {
			q[i] = c.q[(c.head+i)&(len(c.q)-1)]
		}
		c.q, c.head = q, 0
	}
	c.q[(c.head+c.n)&(len(c.q)-1)] = e
	c.n++
	c.dev.cqReady++
	c.notice(e.solicited || e.wc.Status != verbs.WCSuccess)
}

// Poll implements verbs.CQ.
func (c *CQ) Poll(wc []verbs.WC) int {
	if c.dev.dead {
		return 0
	}
	k := min(len(wc), c.n)
	for i := range k {
		e := &c.q[c.head]
		wc[i] = e.wc
		if e.qp == nil {
		} else if e.recv {
			e.qp.recvq.outstanding--
		} else {
			e.qp.released = max(e.qp.released, e.upto)
		}
		c.head = (c.head + 1) & (len(c.q) - 1)
	}
	c.n -= k
	c.dev.cqReady -= k
	return k
}

// Destroy implements verbs.CQ. EBUSY: a queue pair uses it.
func (c *CQ) Destroy() error {
	if c.dev.dead {
		return nil
	}
	if c.users > 0 {
		return fmt.Errorf("sim: CQ.Destroy: %d ends of queue pairs complete there: %w", c.users, unix.EBUSY)
	}
	if c.gone {
		return c.dev.invalid("Destroy", "completion queue destroyed")
	}
	c.gone, c.fired = true, false
	c.dev.cqReady -= c.n
	c.n = 0
	c.dev.forgetAsync(func(e *verbs.AsyncEvent) bool { return e.CQ == c })
	return nil
}
