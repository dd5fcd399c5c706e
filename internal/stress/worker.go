package stress

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/internal/krds"
	"github.com/rdsd/rdsd/internal/loadgen"
	"github.com/rdsd/rdsd/internal/stress/proto"
	"github.com/rdsd/rdsd/internal/stress/report"
	"github.com/rdsd/rdsd/rds"
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
	loop  loadgen.Loop
	sock  *rds.Socket
	local netip.AddrPort
	flows []flow

	pattern []byte      // payload behind a header
	out     rds.Message // the message being sent, with op if it carries one
	op      rds.RDMA
	outBuf  []byte
	mem     *memory // nil: no RDMA
	n       counters
}

// counters are the report.Counts of one task.
type counters struct {
	reqTx, reqRx, ackTx, ackRx, bytesTx, bytesRx, rdmaIn, rdmaOut atomic.Uint64
	sendNs, trips, tripNs                                         atomic.Uint64
	retries, downs                                                atomic.Uint64
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
	krds.Of(w.sock).SetCongMonitor(o.CongMonitor)
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
	w.loop = loadgen.Loop{Sock: w.sock, In: loadgen.Room(most), Take: w.take, Notice: w.notice, CongMonitor: o.CongMonitor}
	w.flows = make([]flow, o.Tasks)
	for i := range w.flows {
		f := &w.flows[i]
		f.init(w, i)
		w.loop.Flows = append(w.loop.Flows, loadgen.Flow{To: f.to, Send: f.sendAll})
	}
	w.n.hist.init()
	if o.RDMASize == 0 {
		return nil
	}
	w.loop.Comps, w.loop.Settled = make([]rds.Completion, 16), w.completed
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

// take checks one message and passes it to its flow.
func (w *worker) take(m *rds.Received, now time.Time) error {
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

// notice handles what is said about a destination.
func (w *worker) notice(n *rds.Notice) error {
	switch n.Kind {
	case rds.PeerDown:
		w.n.downs.Add(1)
	case rds.Lost:
		return fmt.Errorf("the daemon at %v restarted: %d messages are lost", n.To.Addr(), n.Count)
	case rds.NoSocket:
		if !w.loop.Stopping {
			return peerGone{fmt.Errorf("a task of the peer has ended: no socket is bound at %v", n.To)}
		}
	}
	return nil
}
