package main

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft"
)

var errDisconnected = errors.New("the peer disconnected")

// end is one of the two programs: a device, and all that its connections share.
type end struct {
	config
	dev      verbs.Device
	pd       verbs.PD
	requests []verbs.CMEvent // connection requests to accept
	links    []*link
}

// link is one connection with its memory. Every wait calls end.step, which counts the
// completions in done by the work request's id.
type link struct {
	*end
	qp    verbs.QP
	cq    verbs.CQ
	mr    verbs.MR
	mem   []byte
	iova  uint64
	done  [ids]int
	n     uint32 // length of the last message received
	up    bool
	err   error // why it ended
	ended bool
}

// Ids of work requests.
const (
	idSend   uint64 = iota // of the control connection
	idRecv                 // of both connections
	idTest                 // of the test
	idCredit               // the receiver's WRITE of its credit
	ids
)

func newEnd(c config, opt soft.Options) (*end, error) {
	e := &end{config: c}
	var err error
	if e.dev, err = soft.New(opt); err != nil {
		return nil, err
	}
	if e.pd, err = e.dev.AllocPD(); err != nil {
		e.dev.Close()
		return nil, err
	}
	return e, nil
}

// newLink makes a queue pair for depth work requests each way and registers n
// bytes of memory.
func (e *end) newLink(n, depth int, access verbs.Access) (*link, error) {
	l := &link{end: e, mem: make([]byte, n), iova: 1 << 20}
	var err error
	if l.cq, err = e.dev.CreateCQ(2 * depth); err != nil {
		return nil, err
	}
	if l.mr, err = e.pd.RegMR(l.mem, l.iova, verbs.AccessLocalWrite|access); err != nil {
		return nil, err
	}
	l.qp, err = e.pd.CreateQP(verbs.QPInitAttr{
		SendCQ: l.cq, RecvCQ: l.cq, Ack: verbs.AckLocal, Access: access,
		Cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 1, MaxRecvSGE: 1, ReadDepth: 16},
	})
	if err != nil {
		return nil, err
	}
	e.links = append(e.links, l)
	return l, nil
}

func (l *link) sge(off, n int) []verbs.SGE {
	return []verbs.SGE{{Addr: l.iova + uint64(off), Length: uint32(n), LKey: l.mr.LKey()}}
}

func (l *link) recv(off, n int) error {
	_, err := l.qp.PostRecv([]verbs.RecvWR{{WRID: idRecv, SGL: l.sge(off, n)}})
	return err
}

func (l *link) post(wr verbs.SendWR) error {
	wr.Flags = verbs.SendSignaled
	_, err := l.qp.PostSend([]verbs.SendWR{wr})
	return err
}

// take waits for one completion of the id.
func (l *link) take(id uint64) error {
	if err := l.until(func() bool { return l.done[id] > 0 }); err != nil {
		return err
	}
	l.done[id]--
	return nil
}

// until waits until the condition holds. It fails if the connection ends before that.
func (l *link) until(cond func() bool) error {
	for !cond() {
		if l.ended {
			return l.err
		}
		if err := l.step(); err != nil {
			return err
		}
	}
	return nil
}

// established waits until the connection is up or could not be made. The device limits
// that time.
func (l *link) established() error {
	return l.until(func() bool { return l.up })
}

// request waits for a connection request.
func (e *end) request(timeout time.Duration) (verbs.RequestID, error) {
	for len(e.requests) == 0 {
		if err := e.wait(timeout); err != nil {
			return 0, err
		}
	}
	r := e.requests[0]
	e.requests = e.requests[1:]
	return r.Req, nil
}

func (e *end) step() error { return e.wait(e.timeout) }

// wait takes all completions and events. If there are none, it waits until there may be
// some. It fails after timeout; 0 is no limit.
func (e *end) wait(timeout time.Duration) error {
	did := e.dev.Progress()
	for _, l := range e.links {
		did = l.poll() || did
	}
	var ev [1]verbs.CMEvent
	for e.dev.PollCM(ev[:]) > 0 {
		did = true
		e.event(ev[0])
	}
	if did {
		return nil
	}
	ms := -1
	if timeout > 0 {
		ms = int((timeout + time.Millisecond - 1) / time.Millisecond)
	}
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(e.dev.FD()), Events: unix.POLLIN}}, ms)
	if n == 0 && err == nil {
		return fmt.Errorf("no sign of the peer for %v", timeout)
	}
	if err == unix.EINTR {
		return nil
	}
	return err
}

// poll takes completions. The first one with an error ends the link.
func (l *link) poll() bool {
	var wc [16]verbs.WC
	n := l.cq.Poll(wc[:])
	for _, c := range wc[:n] {
		if c.Status != verbs.WCSuccess {
			if c.Status != verbs.WCWRFlushErr {
				l.fail(fmt.Errorf("work request completed with status %d", c.Status))
			}
			continue
		}
		l.done[c.WRID]++
		if c.WRID == idRecv {
			l.n = c.ByteLen
		}
	}
	return n > 0
}

// fail ends the link. The first error stays.
func (l *link) fail(err error) {
	if !l.ended {
		l.ended, l.err = true, err
	}
}

func (e *end) event(ev verbs.CMEvent) {
	if ev.Type == verbs.CMConnectRequest {
		e.requests = append(e.requests, ev)
		return
	}
	for _, l := range e.links {
		if l.qp != ev.QP {
			continue
		}
		switch ev.Type {
		case verbs.CMEstablished:
			l.up = true
		case verbs.CMDisconnected:
			l.fail(errDisconnected)
		case verbs.CMRejected:
			l.fail(errors.New("the peer rejected the connection"))
		default:
			l.fail(ev.Err)
		}
	}
}
