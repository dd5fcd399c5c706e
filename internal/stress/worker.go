package stress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/internal/stress/proto"
	"github.com/rdsd/rdsd/internal/stress/report"
	"github.com/rdsd/rdsd/rds"
)

// receiveBatch is how many messages a task receives at a time. receiveBytes is how much
// memory it has for them.
const (
	receiveBatch = 32
	receiveBytes = 256 << 10
)

// peerGone is an error that is expected if the peer's tasks have ended: a task or its
// memory does not exist any more.
type peerGone struct{ error }

func (e peerGone) Unwrap() error { return e.error }

func mayBeGone(err error) bool {
	var e peerGone
	return errors.As(err, &e)
}

// worker is one task: a socket, and a flow to each task of the peer. It belongs to one
// goroutine. Other goroutines read the counters.
type worker struct {
	*test
	id    int
	sock  *rds.Socket
	local netip.AddrPort
	flows []flow

	pattern []byte // payload behind a header
	in      []rds.Message
	comps   []rds.Completion
	out     rds.Message // the message being sent, with op if it carries one
	op      rds.RDMA
	outBuf  []byte
	mem     *memory // nil: no RDMA

	wantSpace bool // a send found the buffer full
	relief    []netip.AddrPort
	stopping  bool
	n         counters
}

// counters are the report.Counts of one task.
type counters struct {
	reqTx, reqRx, ackTx, ackRx, bytesTx, bytesRx, rdmaIn, rdmaOut atomic.Uint64
	sendNs, trips, tripNs                                         atomic.Uint64
	retries, downs, congested                                     atomic.Uint64
	hist                                                          latencies // the goroutine's own until it has ended
}

func (n *counters) addTo(c *report.Counts) {
	c.RequestsSent += n.reqTx.Load()
	c.RequestsReceived += n.reqRx.Load()
	c.AcksSent += n.ackTx.Load()
	c.AcksReceived += n.ackRx.Load()
	c.SentBytes += n.bytesTx.Load()
	c.ReceivedBytes += n.bytesRx.Load()
	c.RDMAInBytes += n.rdmaIn.Load()
	c.RDMAOutBytes += n.rdmaOut.Load()
	c.SendCalls += n.reqTx.Load()
	c.SendTime += n.sendNs.Load()
	c.RoundTrips += n.trips.Load()
	c.RoundTripTime += n.tripNs.Load()
}

// newWorker binds task id and allocates its memory.
func newWorker(t *test, id int) (*worker, error) {
	o := &t.opts
	w := &worker{test: t, id: id}
	var err error
	if w.sock, err = t.client.Bind(netip.AddrPortFrom(t.local, o.Port+1+uint16(id))); err != nil {
		if errors.Is(err, syscall.EADDRNOTAVAIL) {
			err = fmt.Errorf("%w; name an address of this host's daemon with -r", err)
		}
		return nil, fmt.Errorf("task %d: %w", id, err)
	}
	if err := w.prepare(); err != nil {
		w.close()
		return nil, fmt.Errorf("task %d: %w", id, err)
	}
	return w, nil
}

func (w *worker) prepare() error {
	o := &w.opts
	w.local = w.sock.LocalAddrPort()
	w.sock.SetNotices(rds.Lost, rds.NoSocket, rds.PeerDown)
	w.sock.SetCongMonitor(o.CongMonitor)
	if o.TOS != 0 {
		if err := w.sock.SetLane(o.TOS); err != nil {
			return err
		}
	}
	// rds-stress asks for as much. Less is enough, if one message fits.
	want := int64(o.Tasks) * int64(o.Depth) * int64(o.ReqSize+o.AckSize) * 2
	size := int(min(want, maxSocketBuffer))
	if err := errors.Join(w.sock.SetSndBuf(size), w.sock.SetRcvBuf(size)); err != nil {
		return fmt.Errorf("socket buffers of %d bytes: %w", size, err)
	}
	most := int(max(o.ReqSize, o.AckSize))
	w.pattern = proto.Payload(most - proto.HeaderSize)
	w.outBuf = make([]byte, most)
	w.in = make([]rds.Message, max(1, min(receiveBatch, receiveBytes/most)))
	for i := range w.in {
		w.in[i].Payload = make([]byte, most)
	}
	w.in[0].DontWait = true
	w.comps = make([]rds.Completion, 16)
	w.flows = make([]flow, o.Tasks)
	for i := range w.flows {
		w.flows[i].init(w, i)
	}
	w.n.hist.init()
	if o.RDMASize == 0 {
		return nil
	}
	var err error
	w.mem, err = newMemory(w)
	return err
}

// maxSocketBuffer bounds the send and receive buffers that a task asks for.
const maxSocketBuffer = 1 << 30

func (w *worker) close() {
	if w.mem != nil {
		w.mem.close()
	}
	_ = w.sock.Close()
}

// run exchanges messages until work ends, then receives what still arrives until ctx ends.
// Its error is what is wrong with the test.
func (w *worker) run(ctx, work context.Context) error {
	for {
		if err := w.turn(); err != nil {
			return err
		}
		if err := w.wait(ctx, work); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if !w.stopping && work.Err() != nil {
				w.stopping = true
				continue
			}
			return err
		}
	}
}

func (w *worker) wait(ctx, work context.Context) error {
	if w.stopping {
		work = ctx
	}
	set := rds.WaitSet{Message: true, Completion: w.mem != nil, Notice: true}
	if !w.stopping {
		set.SendSpace = w.wantSpace
		if w.opts.CongMonitor {
			set.Congestion = true
		} else {
			set.Relief = w.congestedFlows()
		}
	}
	_, err := w.sock.Wait(work, set)
	return err
}

// turn receives what has arrived and sends what may be sent.
func (w *worker) turn() error {
	if err := w.receive(); err != nil {
		return err
	}
	if err := w.takeCompletions(); err != nil {
		return err
	}
	if err := w.takeNotices(); err != nil {
		return err
	}
	w.relieve()
	if w.stopping {
		return nil
	}
	w.wantSpace = false
	for i := range w.flows {
		f := &w.flows[i]
		if f.congested {
			continue
		}
		switch err := f.sendAll(); {
		case err == nil || errors.Is(err, errDrain):
		case errors.Is(err, rds.ErrCongested):
			// Only this destination is congested. The others go on.
			f.congested = true
			w.n.congested.Add(1)
		case errors.Is(err, rds.ErrCompletionsFull):
			return nil // a completion comes first
		case errors.Is(err, rds.ErrWouldBlock):
			w.wantSpace = true
			return nil // no use to try the others
		default:
			return fmt.Errorf("to %v: %w", f.to, err)
		}
	}
	return nil
}

// receive receives all messages that have arrived.
func (w *worker) receive() error {
	for {
		n, err := w.sock.RecvMsgs(w.in)
		for i := range n {
			if err := w.take(&w.in[i], time.Now()); err != nil {
				return err
			}
		}
		switch {
		case err == nil && n == len(w.in):
		case err == nil || errors.Is(err, rds.ErrWouldBlock):
			return nil
		default:
			return err
		}
	}
}

// take checks one message and passes it to its flow.
func (w *worker) take(m *rds.Message, now time.Time) error {
	b := m.Payload[:m.N]
	if w.corrupt != nil {
		w.corrupt(b)
	}
	i := int(m.Addr.Port()) - int(w.opts.Port) - 1
	if m.Addr.Addr() != w.peer || i < 0 || i >= len(w.flows) {
		return fmt.Errorf("a message of %d bytes from %v, where the peer has no task", m.Len, m.Addr)
	}
	f := &w.flows[i]
	err := f.take(b, m.Len, m.Cookie, now)
	if err != nil {
		return fmt.Errorf("from %v to task %d: %w", m.Addr, w.id, err)
	}
	return nil
}

// takeNotices reads the notices about destinations.
func (w *worker) takeNotices() error {
	var ns [8]rds.Notice
	for {
		n := w.sock.Notices(ns[:])
		for _, x := range ns[:n] {
			switch x.Kind {
			case rds.PeerDown:
				w.n.downs.Add(1)
			case rds.Lost:
				return fmt.Errorf("the daemon at %v restarted: %d messages are lost", x.To.Addr(), x.Count)
			case rds.NoSocket:
				if !w.stopping {
					return peerGone{fmt.Errorf("a task of the peer has ended: no socket is bound at %v", x.To)}
				}
			}
		}
		if n < len(ns) {
			return nil
		}
	}
}

// relieve clears congestion that is over.
func (w *worker) relieve() {
	if w.opts.CongMonitor {
		mask := w.sock.CongUpdates()
		for i := range w.flows {
			if f := &w.flows[i]; mask&(1<<(f.to.Port()%64)) != 0 {
				f.congested = false
			}
		}
		return
	}
	for i := range w.flows {
		w.flows[i].congested = false // Wait said so, or the next send says it again
	}
}

func (w *worker) congestedFlows() []netip.AddrPort {
	w.relief = w.relief[:0]
	for i := range w.flows {
		if w.flows[i].congested {
			w.relief = append(w.relief, w.flows[i].to)
		}
	}
	return w.relief
}
