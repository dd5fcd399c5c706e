package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/examples/link"
	"github.com/rdsd/rdsd/test/bench/worker"
	"github.com/rdsd/rdsd/verbs"
)

const (
	sendList  = 64   // work requests for one PostSend
	sendDepth = 2048 // work requests that may be outstanding
	recvDepth = 8192 // more than the device receives at a time
)

// Ids of work requests.
const (
	idSend uint64 = iota
	idRecv
)

// newQueuePair makes one connected QP and one region, on a device of their own. Nobody writes the
// region while it is sent, so checksums need no copy of it.
func newQueuePair(w *worker.Worker, size int) (*link.Link, error) {
	crc := verbs.CRCOff
	if w.Get("crc") == "on" {
		crc = verbs.CRCOn
	}
	e, err := link.Open(link.Options{CRC: true, Timeout: time.Hour, Congestion: wantCongestion})
	if err != nil {
		return nil, err
	}
	l, err := e.NewLink(size, verbs.QPInitAttr{Access: verbs.AccessRemoteWrite | verbs.AccessRemoteRead, CRC: crc, Ack: verbs.AckRemote,
		Cap: verbs.QPCap{MaxSendWR: sendDepth, MaxRecvWR: recvDepth, ReadDepth: 2 * rdmaWindow}}, verbs.AccessPrivate, idRecv)
	if err == nil {
		fill(l.Mem)
	}
	return l, err
}

// verbsAccept connects the server's QP. prepare posts receives before, and the reply names the
// region.
func verbsAccept(w *worker.Worker, size int, prepare func(*link.Link) error) (*link.Link, error) {
	l, err := newQueuePair(w, size)
	if err != nil {
		return nil, err
	}
	ln, err := l.Dev.Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	if err := prepare(l); err != nil {
		return nil, err
	}
	if err := w.Ready(ln.Addr().String()); err != nil {
		return nil, err
	}
	req, err := l.Request(0)
	if err != nil {
		return nil, err
	}
	err = l.Accept(req, binary.BigEndian.AppendUint32(nil, l.MR.RKey()))
	w.Begin()
	return l, err
}

// verbsConnect connects the client's QP, and returns the key of the server's region.
func verbsConnect(w *worker.Worker, size int) (l *link.Link, rkey uint32, err error) {
	if l, err = newQueuePair(w, size); err != nil {
		return nil, 0, err
	}
	if err = w.Ready("-"); err != nil {
		return nil, 0, err
	}
	to, err := netip.ParseAddrPort(w.Get("addr"))
	if err != nil {
		return nil, 0, err
	}
	if err = l.Connect(verbs.ConnectParam{Remote: to}); err != nil {
		return nil, 0, err
	}
	if len(l.Private) != 4 {
		return nil, 0, fmt.Errorf("private data of %d bytes, want 4", len(l.Private))
	}
	w.Begin()
	return l, binary.BigEndian.Uint32(l.Private), nil
}

// completed waits for completions of id, and returns how many there are. The end of the peer is
// io.EOF.
func completed(l *link.Link, id uint64) (n int, err error) {
	err = l.Until(func() bool { return l.Done[id] > 0 })
	if errors.Is(err, link.ErrDisconnected) {
		err = io.EOF
	}
	n, l.Done[id] = l.Done[id], 0
	return n, err
}

// verbsTarget lets the client write and read its region.
func verbsTarget(w *worker.Worker) error {
	l, err := verbsAccept(w, w.Int("footprint")<<20, func(*link.Link) error { return nil })
	if err != nil {
		return err
	}
	defer l.Close()
	return w.Serve(func() error {
		_, err := completed(l, idSend) // there is none, until the client ends
		return err
	})
}

func verbsWrite(w *worker.Worker) error { return verbsRDMA(w, verbs.OpRDMAWrite) }
func verbsRead(w *worker.Worker) error  { return verbsRDMA(w, verbs.OpRDMARead) }

// verbsRDMA walks through the regions at both ends. It counts operations that are complete, with
// their data in place.
func verbsRDMA(w *worker.Worker, op verbs.Opcode) error {
	n, size := w.Int("footprint")<<20, w.Int("size")
	l, rkey, err := verbsConnect(w, n)
	if err != nil {
		return err
	}
	defer l.Close()
	wr := []verbs.SendWR{{WRID: idSend, Op: op, Flags: verbs.SendSignaled, RKey: rkey, SGL: l.SGE(0, size)}}
	off, inFlight := 0, 0
	return w.Each(w.Count, func() (int, error) {
		for ; inFlight < rdmaWindow; inFlight++ {
			wr[0].SGL[0].Addr, wr[0].RemoteAddr = link.IOVA+uint64(off), link.IOVA+uint64(off)
			if _, err := l.QP.PostSend(wr); err != nil {
				return 0, err
			}
			off = (off + size) % n
		}
		k, err := completed(l, idSend)
		inFlight -= k
		return k, err
	})
}

// verbsSink counts the messages it receives.
func verbsSink(w *worker.Worker) error {
	size := w.Int("size")
	wr := make([]verbs.RecvWR, recvDepth)
	l, err := verbsAccept(w, recvDepth*size, func(l *link.Link) error {
		for i := range wr {
			wr[i] = verbs.RecvWR{WRID: idRecv, SGL: l.SGE(i*size, size)}
		}
		_, err := l.QP.PostRecv(wr)
		return err
	})
	if err != nil {
		return err
	}
	defer l.Close()
	next := 0 // receives complete in the order in which they were posted
	return w.Each(w.Count, func() (int, error) {
		k, err := completed(l, idRecv)
		for left := k; left > 0 && err == nil; {
			m := min(left, recvDepth-next)
			_, err = l.QP.PostRecv(wr[next : next+m])
			next = (next + m) % recvDepth
			left -= m
		}
		return k, err
	})
}

// verbsSource sends messages: many work requests in one call, with one completion for all.
func verbsSource(w *worker.Worker) error {
	size := w.Int("size")
	l, _, err := verbsConnect(w, sendList*size)
	if err != nil {
		return err
	}
	defer l.Close()
	wr := make([]verbs.SendWR, sendList)
	for i := range wr {
		wr[i] = verbs.SendWR{WRID: idSend, Op: verbs.OpSend, SGL: l.SGE(i*size, size)}
	}
	wr[sendList-1].Flags = verbs.SendSignaled
	open := 0
	return w.Each(w.Serve, func() (int, error) {
		for ; open+sendList <= sendDepth; open += sendList {
			if _, err := l.QP.PostSend(wr); err != nil {
				return 0, err
			}
		}
		k, err := completed(l, idSend)
		open -= k * sendList
		return k * sendList, err
	})
}
