package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/test/bench/worker"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft"
)

const (
	verbsIOVA = 1 << 20

	sendList  = 64   // work requests for one PostSend
	sendDepth = 2048 // work requests that may be outstanding
	recvDepth = 8192 // more than the device receives at a time
)

// queuePair is a device with one connected QP and one region. Only the goroutine that calls turn
// may use it.
type queuePair struct {
	dev *soft.Device
	cq  verbs.CQ
	qp  verbs.QP
	mr  verbs.MR
	wc  [256]verbs.WC
	ev  [4]verbs.CMEvent
	fd  [1]unix.PollFd
}

// newQueuePair makes a queuePair that is not connected yet. Nobody writes its memory while it is
// sent, so checksums need no copy of it.
func newQueuePair(w *worker.Worker, size int) (*queuePair, error) {
	e := &queuePair{}
	var err error
	if e.dev, err = soft.New(soft.Options{Congestion: wantCongestion}); err != nil {
		return nil, err
	}
	e.fd[0] = unix.PollFd{Fd: int32(e.dev.FD()), Events: unix.POLLIN}
	pd, err := e.dev.AllocPD()
	if err != nil {
		return nil, err
	}
	if e.cq, err = e.dev.CreateCQ(2 * recvDepth); err != nil {
		return nil, err
	}
	const remote = verbs.AccessRemoteWrite | verbs.AccessRemoteRead
	mem := make([]byte, size)
	fill(mem)
	if e.mr, err = pd.RegMR(mem, verbsIOVA, verbs.AccessLocalWrite|verbs.AccessPrivate|remote); err != nil {
		return nil, err
	}
	attr := verbs.QPInitAttr{SendCQ: e.cq, RecvCQ: e.cq, Access: remote, CRC: verbs.CRCOff, Ack: verbs.AckRemote,
		Cap: verbs.QPCap{MaxSendWR: sendDepth, MaxRecvWR: recvDepth, MaxSendSGE: 1, MaxRecvSGE: 1, ReadDepth: 2 * rdmaWindow}}
	if w.Get("crc") == "on" {
		attr.CRC = verbs.CRCOn
	}
	e.qp, err = pd.CreateQP(attr)
	return e, err
}

// turn moves bytes, and waits if there are none to move.
func (e *queuePair) turn() error {
	if e.dev.Progress() {
		return nil
	}
	for _, ev := range e.ev[:e.dev.PollCM(e.ev[:])] {
		if ev.Type == verbs.CMDisconnected {
			return io.EOF
		}
	}
	if _, err := unix.Poll(e.fd[:], -1); err != nil && err != unix.EINTR {
		return err
	}
	return nil
}

// event waits for an event of the connection manager.
func (e *queuePair) event(want verbs.CMEventType) (verbs.CMEvent, error) {
	for {
		if e.dev.PollCM(e.ev[:1]) == 0 {
			e.dev.Progress()
			_, _ = unix.Poll(e.fd[:], 1)
			continue
		}
		if ev := e.ev[0]; ev.Type == want {
			return ev, nil
		} else if ev.Type != verbs.CMConnectRequest && ev.Type != verbs.CMEstablished {
			return ev, fmt.Errorf("connection event %d: %v", ev.Type, errors.Join(ev.Err, io.ErrUnexpectedEOF))
		}
	}
}

// poll takes completions. A failed completion is an error, and io.EOF if the peer has ended.
func (e *queuePair) poll() (int, error) {
	n := e.cq.Poll(e.wc[:])
	for i := range e.wc[:n] {
		if st := e.wc[i].Status; st != verbs.WCSuccess {
			for _, ev := range e.ev[:e.dev.PollCM(e.ev[:])] {
				if ev.Type == verbs.CMDisconnected {
					return 0, io.EOF
				}
			}
			return 0, fmt.Errorf("completion of %d: status %d", e.wc[i].WRID, st)
		}
	}
	return n, nil
}

// sge returns the piece of the region at off.
func (e *queuePair) sge(off, n int) []verbs.SGE {
	return []verbs.SGE{{Addr: verbsIOVA + uint64(off), Length: uint32(n), LKey: e.mr.LKey()}}
}

// verbsAccept connects the server's QP. prepare posts receives before, and the reply names the
// region.
func verbsAccept(w *worker.Worker, size int, prepare func(*queuePair) error) (*queuePair, error) {
	e, err := newQueuePair(w, size)
	if err != nil {
		return nil, err
	}
	l, err := e.dev.Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	if err := prepare(e); err != nil {
		return nil, err
	}
	if err := w.Ready(l.Addr().String()); err != nil {
		return nil, err
	}
	ev, err := e.event(verbs.CMConnectRequest)
	if err != nil {
		return nil, err
	}
	if err := e.dev.Accept(ev.Req, e.qp, binary.BigEndian.AppendUint32(nil, e.mr.RKey())); err != nil {
		return nil, err
	}
	_, err = e.event(verbs.CMEstablished)
	w.Begin()
	return e, err
}

// verbsConnect connects the client's QP, and returns the key of the server's region.
func verbsConnect(w *worker.Worker, size int) (e *queuePair, rkey uint32, err error) {
	if e, err = newQueuePair(w, size); err != nil {
		return nil, 0, err
	}
	if err = w.Ready("-"); err != nil {
		return nil, 0, err
	}
	to, err := netip.ParseAddrPort(w.Get("addr"))
	if err != nil {
		return nil, 0, err
	}
	if err = e.dev.Connect(e.qp, verbs.ConnectParam{Remote: to}); err != nil {
		return nil, 0, err
	}
	ev, err := e.event(verbs.CMEstablished)
	if err == nil && len(ev.Private) != 4 {
		err = fmt.Errorf("private data of %d bytes, want 4", len(ev.Private))
	}
	if err != nil {
		return nil, 0, err
	}
	w.Begin()
	return e, binary.BigEndian.Uint32(ev.Private), nil
}

// verbsTarget lets the client write and read its region.
func verbsTarget(w *worker.Worker) error {
	e, err := verbsAccept(w, w.Int("footprint")<<20, func(*queuePair) error { return nil })
	if err != nil {
		return err
	}
	defer e.dev.Close()
	return w.Serve(func() error {
		for {
			if err := e.turn(); err != nil {
				return err
			}
		}
	})
}

func verbsWrite(w *worker.Worker) error { return verbsRDMA(w, verbs.OpRDMAWrite) }
func verbsRead(w *worker.Worker) error  { return verbsRDMA(w, verbs.OpRDMARead) }

// verbsRDMA walks through the regions at both ends. It counts operations that are complete, with
// their data in place.
func verbsRDMA(w *worker.Worker, op verbs.Opcode) error {
	n, size := w.Int("footprint")<<20, w.Int("size")
	e, rkey, err := verbsConnect(w, n)
	if err != nil {
		return err
	}
	defer e.dev.Close()
	wr := []verbs.SendWR{{Op: op, Flags: verbs.SendSignaled, RKey: rkey, SGL: e.sge(0, size)}}
	return w.Count(func() error {
		for off, inFlight := 0, 0; ; {
			for ; inFlight < rdmaWindow; inFlight++ {
				wr[0].SGL[0].Addr, wr[0].RemoteAddr = verbsIOVA+uint64(off), verbsIOVA+uint64(off)
				if _, err := e.qp.PostSend(wr); err != nil {
					return err
				}
				off = (off + size) % n
			}
			if err := e.turn(); err != nil {
				return err
			}
			k, err := e.poll()
			if err != nil {
				return err
			}
			inFlight -= k
			w.Msgs.Add(uint64(k))
		}
	})
}

// verbsSink counts the messages it receives.
func verbsSink(w *worker.Worker) error {
	size := w.Int("size")
	wr := make([]verbs.RecvWR, recvDepth)
	e, err := verbsAccept(w, recvDepth*size, func(e *queuePair) error {
		for i := range wr {
			wr[i] = verbs.RecvWR{WRID: uint64(i), SGL: e.sge(i*size, size)}
		}
		_, err := e.qp.PostRecv(wr)
		return err
	})
	if err != nil {
		return err
	}
	defer e.dev.Close()
	return w.Count(func() error {
		for next := 0; ; { // receives complete in the order in which they were posted
			k, err := e.poll()
			if err != nil {
				return err
			}
			if k == 0 {
				if err := e.turn(); err != nil {
					return err
				}
				continue
			}
			for left := k; left > 0; {
				m := min(left, recvDepth-next)
				if _, err := e.qp.PostRecv(wr[next : next+m]); err != nil {
					return err
				}
				next = (next + m) % recvDepth
				left -= m
			}
			w.Msgs.Add(uint64(k))
		}
	})
}

// verbsSource sends messages: many work requests in one call, with one completion for all.
func verbsSource(w *worker.Worker) error {
	size := w.Int("size")
	e, _, err := verbsConnect(w, sendList*size)
	if err != nil {
		return err
	}
	defer e.dev.Close()
	wr := make([]verbs.SendWR, sendList)
	for i := range wr {
		wr[i] = verbs.SendWR{Op: verbs.OpSend, SGL: e.sge(i*size, size)}
	}
	wr[sendList-1].Flags = verbs.SendSignaled
	return w.Serve(func() error {
		for open := 0; ; {
			for ; open+sendList <= sendDepth; open += sendList {
				if _, err := e.qp.PostSend(wr); err != nil {
					return err
				}
			}
			if err := e.turn(); err != nil {
				return err
			}
			k, err := e.poll()
			if err != nil {
				return err
			}
			open -= k * sendList
			w.Msgs.Add(uint64(k * sendList))
		}
	})
}
