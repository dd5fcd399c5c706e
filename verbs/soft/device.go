// Package soft is an RDMA provider that needs no RDMA adapter: its queue pairs speak
// iWARP (MPA revision 2, DDP, RDMAP) over TCP, in user space. It also talks to iWARP
// adapters and to Linux's siw.
//
// A Device moves bytes only in Progress, Flush and the Post calls, on its owner's
// thread. It has no goroutine per connection and no lock on the data path.
// Goroutines exist only while connections are set up (TCP connect, MPA exchange) or
// closed (to deliver the last bytes). They hand their results to the owner through
// one locked queue.
//
// # Completions
//
// With AckLocal a SEND or WRITE completes when the kernel has taken its last byte
// (RFC 5040 section 5.5 rule 9). With AckRemote it completes when a READ behind it
// was answered: a READ of the consumer, or a fence, a READ of no bytes that serves
// many requests. READs and atomics complete when the data is in place. Completions
// are in post order.
//
// # Peers
//
// Two devices of this package agree on what iWARP leaves open, in bytes behind the
// consumer's private data: immediate data and atomics (RFC 7306), RNR retries, room
// for fences. With other peers those operations are refused with EOPNOTSUPP.
// Everything else works with any iWARP.
//
// # What the peer may do
//
// Everything received is checked before memory is touched. A peer that breaks a rule
// gets the Terminate that the RFCs name and loses its connection, nothing else. A
// SEND that finds no posted receive is put aside, up to 1 MiB and 256 messages per
// QP, while WRITEs and responses behind it go on. Beyond that the connection is not
// read until a receive is posted. With AckRemote and a peer of this package the
// sender stays within those bounds and pauses in the middle of a longer SEND, so
// that streams never stand still.
//
// # Limits
//
// MPA markers are sent to peers that want them, and never asked for. Segments of one
// message are not interleaved with other messages of the same direction: a large
// READ response delays the sends behind it. A SEND above 1 MiB from a sender with
// AckLocal, or from another kind of peer, stops its stream until a receive is
// posted. The local key of a region is also its remote key.
//
// Not covered by docs/stability.md: any release may change this package.
package soft

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// epoll data values that are not QP slots.
const (
	slotWake = -1
	slotCtl  = -2
	slotTime = -3
)

// Device implements verbs.Device.
type Device struct {
	opt       Options
	epfd      int
	wakeFD    int // readable while the owner has something to collect
	timerFD   int
	timed     lists.List[qp] // with a timer running
	nextTimer int64          // that timerFD is set to; 0: none
	awake     bool
	ctl       *control
	closed    bool
	ctx       context.Context
	cancel    context.CancelFunc

	keys keyTable
	qps  []*qp // by slot; nil: free
	free []int32
	qpn  uint32

	dirty    lists.List[qp] // with output to write
	ready    lists.List[qp] // with messages put aside that have a receive now
	overruns []*cq          // whose queue pairs have to go

	lent   lending
	grown  lists.List[qp] // with queues that have grown
	writes lists.List[qp] // with memory for output
	trimAt int64          // when to take back what is not used, 0: nothing is

	records []byte // see scratchOf; nil without TLS

	events   cmQueue
	async    asyncQueue
	requests map[verbs.RequestID]*request
	lastReq  verbs.RequestID
	fired    int // events of CQs not taken

	stats   Stats
	io      scratch
	threads *threads // nil: none
	nowhere *parked  // where data goes that is not wanted
	lateOn  *atomic.Uint32
}

// scratch is memory for the arguments of system calls, so that they allocate
// nothing.
type scratch struct {
	ev     [64]unix.EpollEvent
	iov    [maxSegs]unix.Iovec
	msg    unix.Msghdr
	pieces [maxSGE]piece
	hdr    [iwarp.UntaggedLen + iwarp.AtomicReqLen]byte // of the FPDU being made: on the stack it would escape to the checksum
}

// piece is a part of registered memory.
type piece struct {
	mem []byte
	mr  *mr
}

var _ verbs.Device = (*Device)(nil)

// New makes a device. It opens one epoll descriptor, one timerfd and two eventfds.
func New(opt Options) (*Device, error) {
	opt.defaults()
	d := &Device{opt: opt, requests: map[verbs.RequestID]*request{}, epfd: -1, wakeFD: -1, timerFD: -1, lateOn: &off}
	if opt.Late != nil {
		d.lateOn = opt.Late.On()
	}
	d.keys.init()
	d.ctx, d.cancel = context.WithCancel(context.Background())
	var err error
	if d.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	d.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		d.ctl, err = newControl(&d.opt)
	}
	if err == nil {
		d.timerFD, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	}
	if err == nil {
		err = d.watch(unix.EPOLL_CTL_ADD, d.timerFD, slotTime, unix.EPOLLIN)
	}
	if err == nil {
		err = d.watch(unix.EPOLL_CTL_ADD, d.wakeFD, slotWake, unix.EPOLLIN)
	}
	if err == nil {
		err = d.watch(unix.EPOLL_CTL_ADD, d.ctl.fd, slotCtl, unix.EPOLLIN)
	}
	if err != nil {
		if d.ctl != nil {
			unix.Close(d.ctl.fd)
		}
		closeFD(d.wakeFD)
		closeFD(d.timerFD)
		unix.Close(d.epfd)
		return nil, fmt.Errorf("soft: %w", err)
	}
	if n := min(opt.Threads, maxThreads); n > 0 {
		d.startThreads(n)
	}
	return d, nil
}

// Attr returns the limits of the device.
func (d *Device) Attr() verbs.DeviceAttr {
	return verbs.DeviceAttr{
		Name: d.opt.Name, MaxMsg: maxMsg, MaxSendWR: maxWR, MaxRecvWR: maxWR,
		MaxSGE: maxSGE, MaxReadSGE: maxSGE, MaxInline: maxInline,
		MaxReadDepth: d.opt.MaxReadDepth, MaxPrivate: d.opt.maxPrivate(),
		Caps: verbs.CapOrderedCQ | verbs.CapImm | verbs.CapAtomics | verbs.CapMaskedAtomic | verbs.CapGlobalAtomics | verbs.CapRNR | verbs.CapRNRRetry | verbs.CapAnyIOVA |
			verbs.CapRestrictedMR | verbs.CapRemoteAck | verbs.CapInvalidate | verbs.CapMW,
	}
}

// Congestion returns the congestion control of the last connection that was set up,
// "" if there was none, and why Options.Congestion was not accepted, if it was not.
// Any goroutine may call it.
func (d *Device) Congestion() (string, error) { return d.ctl.congestion() }

// Stats returns a copy of the counters. Only the owner may call it.
func (d *Device) Stats() Stats {
	s := d.stats
	s.HandshakeGarbage = atomic.LoadUint64(&d.ctl.stats.HandshakeGarbage)
	s.HandshakeTimeout = atomic.LoadUint64(&d.ctl.stats.HandshakeTimeout)
	s.HandshakeRefused = atomic.LoadUint64(&d.ctl.stats.HandshakeRefused)
	s.HandshakeMarkers = atomic.LoadUint64(&d.ctl.stats.HandshakeMarkers)
	h := d.Handshakes()
	s.HandshakePlain, s.HandshakeTLS, s.HandshakeLimited, s.HandshakeSecured = h.Plain, h.TLS, h.Limited, h.Secured
	return s
}

// Handshakes are those counters of Stats that are about TLS.
type Handshakes struct{ Plain, TLS, Limited, Secured uint64 }

// Handshakes returns the counters of TLS. Any goroutine may call it.
func (d *Device) Handshakes() Handshakes {
	s := &d.ctl.stats
	return Handshakes{Plain: atomic.LoadUint64(&s.HandshakePlain), TLS: atomic.LoadUint64(&s.HandshakeTLS),
		Limited: atomic.LoadUint64(&s.HandshakeLimited), Secured: atomic.LoadUint64(&s.HandshakeSecured)}
}

// FD returns the epoll descriptor. It is readable when something has arrived or can
// be written again. It does not report output that a Post call left buffered: call
// Flush or Progress before blocking on it.
func (d *Device) FD() int { return d.epfd }

// Progress implements verbs.Device. It makes one epoll_wait and one or a few
// socket calls per QP with work.
func (d *Device) Progress() bool {
	if d.closed {
		return false
	}
	ready := d.ready // not what comes now: its owner has a round to post receives
	d.ready = lists.List[qp]{}
	did := d.takeResults()
	for q := ready.Pop(); q != nil; q = ready.Pop() {
		did = true
		if q.state.connected() {
			q.unpark()
		}
	}
	did = d.flushDirty() || did // ahead of a system call that does not hurry
	n := d.poll()
	for i := range d.io.ev[:n] {
		did = d.dispatch(&d.io.ev[i]) || did
	}
	did = d.flushDirty() || did
	if len(d.overruns) > 0 {
		d.failOverrun()
	}
	d.updateWake(d.dirty.N > 0)
	return did
}

// Flush implements verbs.Device.
func (d *Device) Flush() {
	if !d.closed {
		d.flushDirty()
		d.updateWake(d.dirty.N > 0)
	}
}

func (d *Device) flushDirty() bool {
	did := false
	dirty := d.dirty
	d.dirty = lists.List[qp]{}
	for q := dirty.Pop(); q != nil; q = dirty.Pop() {
		did = q.flush() || did
	}
	return did
}

func (d *Device) markDirty(q *qp) {
	if !q.on.dirty.On() {
		d.dirty.Add(&q.on.dirty, q)
	}
}

func (d *Device) markReady(q *qp) {
	if !q.on.ready.On() {
		d.ready.Add(&q.on.ready, q)
		d.updateWake(false)
	}
}

func (d *Device) dispatch(ev *unix.EpollEvent) bool {
	if ev.Fd == slotTime {
		d.expire()
		return true
	}
	if ev.Fd == slotCtl {
		clearFD(d.ctl.fd)
		return d.takeResults() // what came since the start of Progress
	}
	if ev.Fd < 0 {
		return false
	}
	q := d.qps[ev.Fd]
	if q == nil || q.fd < 0 {
		return false
	}
	if ev.Events&unix.EPOLLOUT != 0 {
		q.interest(q.events &^ unix.EPOLLOUT)
		d.markDirty(q)
	}
	if q.rx.job != nil {
		return false // its thread sees it
	}
	if !q.intake.reads() || q.held {
		if ev.Events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
			q.lost(unix.ECONNRESET)
			return true
		}
		return false
	}
	if ev.Events&(unix.EPOLLIN|unix.EPOLLERR|unix.EPOLLHUP|unix.EPOLLRDHUP) != 0 {
		return q.receive()
	}
	return false
}

// poll asks epoll for events without waiting.
func (d *Device) poll() int {
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(d.epfd),
		uintptr(unsafe.Pointer(&d.io.ev[0])), uintptr(len(d.io.ev)), 0, 0, 8)
	if e != 0 {
		return 0 // EINTR: the next Progress asks again
	}
	return int(n)
}

func (d *Device) watch(op, fd int, slot int32, events uint32) error {
	ev := unix.EpollEvent{Events: events, Fd: slot}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(d.epfd, op, fd, &ev))
}

// updateWake makes the wake descriptor readable exactly while the owner has
// something to collect: connection events, completions of a CQ that it armed, input
// that was read behind a stall, or, with more, unfinished output.
func (d *Device) updateWake(more bool) {
	want := more || d.events.len() > 0 || len(d.async.ev) > 0 || d.fired > 0 || d.ready.N > 0 || len(d.overruns) > 0
	if want == d.awake || d.closed {
		return
	}
	d.awake = want
	if want {
		ring(d.wakeFD)
	} else {
		clearFD(d.wakeFD)
	}
}

// Close implements verbs.Device. It waits for the I/O threads, for the goroutines of connection
// set-up, which it cancels, and up to a tenth of a second for closed
// connections to hand their last bytes to the kernel.
func (d *Device) Close() error {
	if d.closed {
		return nil
	}
	for _, q := range d.qps {
		if q != nil {
			q.cut()
			q.become(failed)
		}
	}
	d.closed = true
	if d.threads != nil {
		d.threads.stop()
	}
	d.cancel()
	for id, r := range d.requests {
		r.drop()
		delete(d.requests, id)
	}
	d.ctl.close()
	unix.Close(d.wakeFD)
	unix.Close(d.timerFD)
	unix.Close(d.epfd)
	return nil
}
