package engine

import (
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/verbs"
	"golang.org/x/sys/unix"
)

// rail is a device that carries connections, with what its queue pairs need. There are one
// or two: first an adapter, then TCP in user space for the addresses and peers that the
// adapter does not reach. Memory has the same keys on both, so a cookie is valid whichever
// way the peer comes.
type rail struct {
	i     int // in devices.rails
	dev   verbs.Device
	attr  verbs.DeviceAttr
	pd    verbs.PD
	cq    verbs.CQ
	srq   verbs.SRQ
	arm   bool // completions come without Progress: the device's FD tells of them when asked to
	armed bool // the queue will tell of a completion, see mayBlock

	byQPN   map[uint32]*byQP
	lastQP  *byQP // one-entry cache in front of byQPN
	lastQPN uint32

	recvMem []byte
	recvMR  verbs.MR
	recvSGE []verbs.SGE // per buffer
	repost  []verbs.RecvWR
}

// openRail makes a device's queues and receive pool.
func (ds *devices) openRail(dev verbs.Device, recvBufs, cqe int, arm bool) (*rail, error) {
	e := ds.e
	r := &rail{i: len(ds.rails), dev: dev, attr: dev.Attr(), arm: arm, byQPN: map[uint32]*byQP{}}
	// Operations are cut by what the queue pairs have, not by what they could.
	r.attr.MaxSGE, r.attr.MaxReadSGE = min(r.attr.MaxSGE, qpSGE), min(r.attr.MaxReadSGE, qpSGE)
	var err error
	if err = failpoint.Hit(failpoint.ProtectionDomain); err != nil {
		return nil, err
	}
	if r.pd, err = dev.AllocPD(); err != nil {
		return nil, fmt.Errorf("protection domain: %w", err)
	}
	if err = failpoint.Hit(failpoint.CompletionQueue); err != nil {
		return nil, err
	}
	if r.cq, err = dev.CreateCQ(cqe); err != nil {
		return nil, fmt.Errorf("completion queue: %w", err)
	}
	if err = failpoint.Hit(failpoint.ReceiveQueue); err != nil {
		return nil, err
	}
	if r.srq, err = r.pd.CreateSRQ(recvBufs, 1); err != nil {
		return nil, fmt.Errorf("shared receive queue: %w", err)
	}
	r.recvMem = e.cfg.Alloc(recvBufs * e.cfg.MaxSend)
	e.memory = append(e.memory, r.recvMem)
	if err = failpoint.Hit(failpoint.ReceivePool); err != nil {
		return nil, err
	}
	if r.recvMR, err = r.pd.RegMR(r.recvMem, 0, verbs.AccessLocalWrite|verbs.AccessPrivate); err != nil {
		return nil, fmt.Errorf("register receive pool: %w", err)
	}
	r.recvSGE = make([]verbs.SGE, recvBufs)
	for i := range r.recvSGE {
		r.recvSGE[i] = verbs.SGE{Addr: uint64(i * e.cfg.MaxSend), Length: uint32(e.cfg.MaxSend), LKey: r.recvMR.LKey()}
		r.repost = append(r.repost, r.recvWR(i))
	}
	if err := r.postRecvs(); err != nil {
		return nil, err
	}
	ds.rails = append(ds.rails, r)
	return r, nil
}

// AddRail gives an engine that was made on an adapter a second device, which it
// owns from now on. Before AddLocal only. The adapter's regions must have one
// key each, for local and remote use.
func (e *Engine) AddRail(dev verbs.Device, recvBufs, cqe int) error {
	r, err := e.devices.openRail(dev, recvBufs, cqe, false)
	if err != nil {
		return err
	}
	if _, ok := r.pd.(verbs.Keyed); !ok || len(e.devices.rails) != 2 {
		return fmt.Errorf("%w: %s cannot be a second device", unix.EOPNOTSUPP, r.attr.Name)
	}
	e.devices.recvLeft = min(e.devices.recvLeft, recvBufs)
	if e.sendBufs.mr, err = r.twin(e.sendBufs.mr, e.sendBufs.mem, 0, verbs.AccessPrivate); err != nil {
		return fmt.Errorf("register send pool: %w", err)
	}
	if e.ctlBufs.mr, err = r.twin(e.ctlBufs.mr, e.ctlBufs.mem, 0, verbs.AccessPrivate); err != nil {
		return fmt.Errorf("register control buffers: %w", err)
	}
	return nil
}

// twoMR is a region on both devices.
type twoMR struct {
	verbs.MR
	twin verbs.MR
}

// twin registers memory on r as m is on the adapter.
func (r *rail) twin(m verbs.MR, mem []byte, iova uint64, access verbs.Access) (verbs.MR, error) {
	if m.LKey() != m.RKey() {
		return nil, fmt.Errorf("%w: the adapter has two keys for one region", unix.EOPNOTSUPP)
	}
	t, err := r.pd.(verbs.Keyed).RegMRKey(mem, iova, access, m.LKey())
	if err != nil {
		return nil, err
	}
	return &twoMR{m, t}, nil
}

// Allow and Disallow hold on both.
func (m *twoMR) Allow(p verbs.PeerKey)    { m.MR.Allow(p); m.twin.Allow(p) }
func (m *twoMR) Disallow(p verbs.PeerKey) { m.MR.Disallow(p); m.twin.Disallow(p) }

// CountIn counts on the devices that can. An adapter cannot.
func (m *twoMR) CountIn(s *verbs.Served) {
	for _, x := range []verbs.MR{m.MR, m.twin} {
		if x, ok := x.(verbs.Metered); ok {
			x.CountIn(s)
		}
	}
}

// Untouched implements verbs.Touched.
func (m *twoMR) Untouched(f func()) {
	verbs.Untouched(m.MR, func() { verbs.Untouched(m.twin, f) })
}

// Dereg frees the key here before the adapter may give it to somebody else.
func (m *twoMR) Dereg() error { return errors.Join(m.twin.Dereg(), m.MR.Dereg()) }

// regMR registers mem on all devices; point is the name of its fail point.
func (ds *devices) regMR(point string, mem []byte, iova uint64, access verbs.Access) (verbs.MR, error) {
	if err := failpoint.Hit(point); err != nil {
		return nil, err
	}
	m, err := ds.rails[0].pd.RegMR(mem, iova, access)
	if err != nil {
		return nil, err
	}
	all, err := ds.onAll(m, mem, iova, access)
	if errors.Is(err, unix.EEXIST) { // take another key
		first := m
		if m, err = ds.rails[0].pd.RegMR(mem, iova, access); err == nil {
			all, err = ds.onAll(m, mem, iova, access)
		}
		_ = first.Dereg()
	}
	if err != nil {
		if m != nil {
			_ = m.Dereg()
		}
		return nil, err
	}
	return all, nil
}

// onAll has the memory of m, which is registered on the first device, on all devices. EEXIST:
// the key is in use, by memory that the first device does not have.
func (ds *devices) onAll(m verbs.MR, mem []byte, iova uint64, access verbs.Access) (verbs.MR, error) {
	if ds.e.keys.by[m.RKey()] != nil {
		return nil, unix.EEXIST
	}
	if len(ds.rails) == 1 {
		return m, nil
	}
	return ds.rails[1].twin(m, mem, iova, access)
}

func (r *rail) recvWR(i int) verbs.RecvWR {
	return verbs.RecvWR{WRID: recvWRID | uint64(i), SGL: r.recvSGE[i : i+1]}
}

func (r *rail) postRecvs() error {
	n, err := r.srq.PostRecv(r.repost)
	r.repost = append(r.repost[:0], r.repost[n:]...)
	if err != nil {
		return fmt.Errorf("post receives: %w", err)
	}
	return nil
}

// A request is known by its device and that one's number for it.
const (
	railShift = 62
	reqMask   = 1<<railShift - 1
)

func (r *rail) request(id verbs.RequestID) verbs.RequestID {
	return id&reqMask | verbs.RequestID(r.i)<<railShift
}

func (ds *devices) railOf(id verbs.RequestID) (*rail, verbs.RequestID) {
	return ds.rails[int(id>>railShift)%len(ds.rails)], id & reqMask
}

// Way says which devices a connection may use: only the first, only the second, or the
// second if the first fails.
type Way uint8

// Ways.
const (
	FirstOnly Way = iota
	SecondOnly
	FirstElseSecond
)

// fallNs is how long a connection that the first device could not make keeps to
// the second before the first is tried again.
const fallNs = 60_000_000_000

// way is that of a connection, as far as there is a choice.
func (q *byQP) way() Way {
	e, p := q.e, q.p
	switch {
	case len(e.devices.rails) == 1:
		return FirstOnly
	case p.local.listeners[0] == nil: // the address is not on the first device
		return SecondOnly
	case p.local.listeners[1] == nil:
		return FirstOnly
	case e.cfg.Way != nil:
		return e.cfg.Way(p.local.addr, p.addr)
	}
	return FirstElseSecond
}

// dialRail is the device of the next attempt.
func (q *byQP) dialRail() *rail {
	e := q.e
	switch w := q.way(); {
	case w == SecondOnly, w == FirstElseSecond && e.now < q.fallUntil:
		return e.devices.rails[1]
	}
	return e.devices.rails[0]
}

// mayCome reports whether a connection may come in by r.
func (q *byQP) mayCome(r *rail) bool {
	w := q.way()
	return w == FirstElseSecond || (w == SecondOnly) == (r.i == 1)
}

// attemptFailed has the next attempt go by the other device, if the first did
// not reach the peer: at once if nobody listens there, else the second time, for
// a peer may only have been slow.
func (q *byQP) attemptFailed(err error) {
	if q.rail.i != 0 || !q.dialed || q.way() != FirstElseSecond {
		return
	}
	if q.misses++; q.misses < 2 && !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENETUNREACH) && !errors.Is(err, unix.EHOSTUNREACH) {
		return
	}
	q.misses = 0
	q.fallUntil, q.fellWhy = q.e.now+fallNs, err
	q.e.cfg.Trace(q.p.place(), EventFellBack, fmt.Errorf("not by %s: %w", q.rail.attr.Name, err))
}

// EventFellBack is the event of a connection that goes by the second device.
const EventFellBack = "falls back to " + softName

const softName = "soft"
