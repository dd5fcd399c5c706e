// Package link is what rping, perftest and the bench share: a device of verbs/soft, and connections with
// memory over it, for a program that waits for one thing at a time.
package link

import (
	"errors"
	"flag"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/pcapng"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft"
)

// ErrDisconnected says that the peer ended the connection.
var ErrDisconnected = errors.New("the peer disconnected")

// IOVA is the address of each Link's memory for the peer.
const IOVA = 1 << 20

// Options are the flags that the examples have, and what the bench sets.
type Options struct {
	CRC        bool
	Capture    string
	Timeout    time.Duration
	Congestion string // control of TCP, if not the device's own choice
}

// Flags adds the flags to f.
func (o *Options) Flags(f *flag.FlagSet) {
	f.BoolVar(&o.CRC, "crc", true, "ask for checksums")
	f.StringVar(&o.Capture, "w", "", "record a capture in `file` (pcapng)")
	f.DurationVar(&o.Timeout, "timeout", 10*time.Second, "time after which a silent peer counts as gone")
}

// End is one of the two programs: a device and all that its connections share.
type End struct {
	Options
	Dev verbs.Device
	// Alone makes the End reject requests for connections while it has a Link.
	Alone bool

	pd       verbs.PD
	ev       [1]verbs.CMEvent
	requests []verbs.CMEvent // to accept
	links    []*Link
	done     func() error // ends the capture
}

// Open opens a device.
func Open(o Options) (*End, error) {
	e := &End{Options: o, done: func() error { return nil }}
	opt := soft.Options{Congestion: o.Congestion}
	if !o.CRC {
		opt.CRC = verbs.CRCOff
	}
	if o.Capture != "" {
		tap, done, err := pcapng.CreateTap(o.Capture)
		if err != nil {
			return nil, err
		}
		opt.Tap, e.done = tap, done
	}
	var err error
	if e.Dev, err = soft.New(opt); err != nil {
		return nil, errors.Join(err, e.done())
	}
	if e.pd, err = e.Dev.AllocPD(); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// Close closes the device with its connections, and the capture.
func (e *End) Close() error {
	e.Dev.Close()
	return e.done()
}

// Request waits for a request for a connection; a timeout of 0 is no limit.
func (e *End) Request(timeout time.Duration) (verbs.CMEvent, error) {
	for len(e.requests) == 0 {
		if err := e.wait(timeout); err != nil {
			return verbs.CMEvent{}, err
		}
	}
	r := e.requests[0]
	e.requests = e.requests[1:]
	return r, nil
}

// wait takes all completions and events. If there are none, it waits until there may be some.
// It fails after timeout; 0 is no limit.
func (e *End) wait(timeout time.Duration) error {
	did := e.Dev.Progress()
	for _, l := range e.links {
		did = l.poll() || did
	}
	for e.Dev.PollCM(e.ev[:]) > 0 {
		did = true
		if err := e.event(e.ev[0]); err != nil {
			return err
		}
	}
	if did {
		return nil
	}
	ms := -1
	if timeout > 0 {
		ms = int((timeout + time.Millisecond - 1) / time.Millisecond)
	}
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(e.Dev.FD()), Events: unix.POLLIN}}, ms)
	if n == 0 && err == nil {
		return fmt.Errorf("no sign of the peer for %v", timeout)
	}
	if err == unix.EINTR {
		return nil
	}
	return err
}

func (e *End) event(ev verbs.CMEvent) error {
	if ev.Type == verbs.CMConnectRequest {
		if e.Alone && len(e.links) > 0 {
			return e.Dev.Reject(ev.Req, nil)
		}
		e.requests = append(e.requests, ev)
		return nil
	}
	for _, l := range e.links {
		if l.QP != ev.QP {
			continue
		}
		switch ev.Type {
		case verbs.CMEstablished:
			l.up, l.Private = true, ev.Private
		case verbs.CMDisconnected:
			l.fail(ErrDisconnected)
		case verbs.CMRejected:
			l.fail(errors.New("the peer rejected the connection"))
		default:
			l.fail(ev.Err)
		}
	}
	return nil
}

// ids is how many ids of work requests a program can have.
const ids = 4

// Link is one connection with its memory. Every wait takes the completions of all links of
// its End, and counts them by the id of the work request.
type Link struct {
	*End
	QP   verbs.QP
	MR   verbs.MR
	Mem  []byte
	Done [ids]int // completions by id, which Take counts down
	N    uint32   // length of the last message received
	// Private is what the peer said when it accepted the connection.
	Private []byte

	cq    verbs.CQ
	wc    [128]verbs.WC
	recv  uint64 // the id of receives
	up    bool
	err   error // why it ended
	ended bool
}

// NewLink makes a queue pair as attr says, with a completion queue of its own and one piece of
// memory for a work request. It registers n bytes of memory, with attr's access and what else
// access says. recv is the id of its receives.
func (e *End) NewLink(n int, attr verbs.QPInitAttr, access verbs.Access, recv uint64) (*Link, error) {
	l := &Link{End: e, Mem: make([]byte, n), recv: recv}
	var err error
	if l.cq, err = e.Dev.CreateCQ(attr.Cap.MaxSendWR + attr.Cap.MaxRecvWR); err != nil {
		return nil, err
	}
	if l.MR, err = e.pd.RegMR(l.Mem, IOVA, verbs.AccessLocalWrite|attr.Access|access); err != nil {
		return nil, err
	}
	attr.SendCQ, attr.RecvCQ = l.cq, l.cq
	attr.Cap.MaxSendSGE, attr.Cap.MaxRecvSGE = 1, 1
	if l.QP, err = e.pd.CreateQP(attr); err != nil {
		return nil, err
	}
	e.links = append(e.links, l)
	return l, nil
}

// Free frees the link. A connection that is still up breaks.
func (l *Link) Free() {
	for i, o := range l.links {
		if o == l {
			l.links = append(l.links[:i], l.links[i+1:]...)
		}
	}
	_ = l.QP.Destroy()
	_ = l.MR.Dereg()
	_ = l.cq.Destroy()
}

// SGE is a piece of the memory.
func (l *Link) SGE(off, n int) []verbs.SGE {
	return []verbs.SGE{{Addr: IOVA + uint64(off), Length: uint32(n), LKey: l.MR.LKey()}}
}

// PostRecv posts a receive.
func (l *Link) PostRecv(off, n int) error {
	_, err := l.QP.PostRecv([]verbs.RecvWR{{WRID: l.recv, SGL: l.SGE(off, n)}})
	return err
}

// Post posts a request that completes.
func (l *Link) Post(wr verbs.SendWR) error {
	wr.Flags = verbs.SendSignaled
	_, err := l.QP.PostSend([]verbs.SendWR{wr})
	return err
}

// Do posts a request and waits for its completion.
func (l *Link) Do(wr verbs.SendWR) error {
	if err := l.Post(wr); err != nil {
		return err
	}
	return l.Take(wr.WRID)
}

// Take waits for one completion of the id.
func (l *Link) Take(id uint64) error {
	if err := l.Until(func() bool { return l.Done[id] > 0 }); err != nil {
		return err
	}
	l.Done[id]--
	return nil
}

// Until waits until the condition holds. It fails if the connection ends before that.
func (l *Link) Until(cond func() bool) error {
	for !cond() {
		if l.ended {
			return l.err
		}
		if err := l.wait(l.Timeout); err != nil {
			return err
		}
	}
	return nil
}

// Connect connects the link and waits until the connection is up.
func (l *Link) Connect(p verbs.ConnectParam) error {
	if err := l.Dev.Connect(l.QP, p); err != nil {
		return err
	}
	return l.established()
}

// Accept accepts a request and waits until the connection is up. private is for the peer's
// Private.
func (l *Link) Accept(r verbs.CMEvent, private []byte) error {
	if err := l.Dev.Accept(r.Req, l.QP, private); err != nil {
		return err
	}
	return l.established()
}

// established waits until the connection is up or could not be made. The device limits that
// time.
func (l *Link) established() error { return l.Until(func() bool { return l.up }) }

// Renew makes the queue pair ready for another attempt to connect.
func (l *Link) Renew() error {
	if err := l.QP.Modify(verbs.QPReset); err != nil {
		return err
	}
	l.ended, l.err = false, nil
	return l.QP.Modify(verbs.QPInit)
}

// Left waits until the peer disconnects.
func (l *Link) Left() error {
	if err := l.Until(func() bool { return l.ended }); err != nil && err != ErrDisconnected {
		return err
	}
	return nil
}

// poll takes completions. The first one with an error ends the link.
func (l *Link) poll() bool {
	n := l.cq.Poll(l.wc[:])
	for i := range l.wc[:n] {
		c := &l.wc[i]
		if c.Status != verbs.WCSuccess {
			if c.Status != verbs.WCWRFlushErr && c.Status != verbs.WCRetryExcErr { // an event says why the connection ended
				l.fail(fmt.Errorf("work request %d completed with status %d", c.WRID, c.Status))
			}
			continue
		}
		l.Done[c.WRID]++
		if c.WRID == l.recv {
			l.N = c.ByteLen
		}
	}
	return n > 0
}

// fail ends the link. The first error stays.
func (l *Link) fail(err error) {
	if !l.ended {
		l.ended, l.err = true, err
	}
}
