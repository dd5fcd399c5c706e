package main

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
)

// Offsets in a link's memory, and its address for the peer.
const (
	outOff  = 0       // the message to send
	inOff   = infoLen // the message received
	dataOff = 2 * infoLen
	iova    = 1 << 20
)

// Ids of work requests. At most one of each kind is outstanding.
const (
	idSend uint64 = iota
	idRecv
	idRDMA
	ids
)

var errDisconnected = errors.New("the peer disconnected")

// link is one connection and its memory: two messages, then data.
type link struct {
	dev     verbs.Device
	pd      verbs.PD
	cq      verbs.CQ
	qp      verbs.QP
	mr      verbs.MR
	mem     []byte
	timeout time.Duration
	done    [ids]int      // completions that wait has not returned yet
	recvLen uint32        // length of the last received message
	event   verbs.CMEvent // the last event of the connection
	gone    bool          // the connection has ended or was not made
}

// newLink makes a queue pair with one receive posted, and registers memory with n bytes of
// data.
func newLink(dev verbs.Device, n int, timeout time.Duration) (*link, error) {
	l := &link{dev: dev, mem: make([]byte, dataOff+n), timeout: timeout}
	var err error
	if l.pd, err = dev.AllocPD(); err != nil {
		return nil, err
	}
	if l.cq, err = dev.CreateCQ(8); err != nil {
		return nil, err
	}
	const remote = verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	if l.mr, err = l.pd.RegMR(l.mem, iova, verbs.AccessLocalWrite|remote); err != nil {
		return nil, err
	}
	l.qp, err = l.pd.CreateQP(verbs.QPInitAttr{
		SendCQ: l.cq, RecvCQ: l.cq, Ack: verbs.AckLocal, Access: remote,
		Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 2, MaxSendSGE: 1, MaxRecvSGE: 1, ReadDepth: 1},
	})
	if err != nil {
		return nil, err
	}
	return l, l.postRecv()
}

// close frees everything. A connection that is still up breaks.
func (l *link) close() {
	_ = l.qp.Destroy()
	_ = l.mr.Dereg()
	_ = l.cq.Destroy()
	_ = l.pd.Dealloc()
}

func (l *link) sge(off, n int) []verbs.SGE {
	return []verbs.SGE{{Addr: iova + uint64(off), Length: uint32(n), LKey: l.mr.LKey()}}
}

func (l *link) postRecv() error {
	_, err := l.qp.PostRecv([]verbs.RecvWR{{WRID: idRecv, SGL: l.sge(inOff, infoLen)}})
	return err
}

// send sends a message.
func (l *link) send(i info) error {
	i.put(l.mem[outOff:])
	return l.do(verbs.SendWR{WRID: idSend, Op: verbs.OpSend, SGL: l.sge(outOff, infoLen)})
}

// rdma reads or writes the first bytes of the data.
func (l *link) rdma(op verbs.Opcode, i info) error {
	return l.do(verbs.SendWR{WRID: idRDMA, Op: op, SGL: l.sge(dataOff, int(i.size)), RemoteAddr: i.addr, RKey: i.rkey})
}

// do posts a request and waits for its completion.
func (l *link) do(wr verbs.SendWR) error {
	wr.Flags = verbs.SendSignaled
	if _, err := l.qp.PostSend([]verbs.SendWR{wr}); err != nil {
		return err
	}
	return l.wait(wr.WRID)
}

// recv waits for a message, copies it, and posts the receive for the next one.
func (l *link) recv() ([]byte, error) {
	if err := l.wait(idRecv); err != nil {
		return nil, err
	}
	b := append([]byte(nil), l.mem[inOff:inOff+l.recvLen]...)
	return b, l.postRecv()
}

// wait returns when the request has completed.
func (l *link) wait(id uint64) error {
	for l.done[id] == 0 {
		if l.gone {
			return errDisconnected
		}
		if err := l.step(); err != nil {
			return err
		}
	}
	l.done[id]--
	return nil
}

// established waits until the connection is up or could not be made.
func (l *link) established() error {
	for l.event.Type == 0 {
		if err := l.step(); err != nil {
			return err
		}
	}
	switch l.event.Type {
	case verbs.CMEstablished, verbs.CMDisconnected: // after a disconnect the next wait fails
		return nil
	case verbs.CMRejected:
		return errors.New("the peer rejected the connection")
	}
	return l.event.Err
}

// step takes all completions and events. If there are none, it waits until there may be some.
func (l *link) step() error {
	did := l.dev.Progress()
	var wc [8]verbs.WC
	for _, c := range wc[:l.cq.Poll(wc[:])] {
		did = true
		switch {
		case c.Status == verbs.WCSuccess:
			l.done[c.WRID]++
			if c.WRID == idRecv {
				l.recvLen = c.ByteLen
			}
		case c.Status != verbs.WCWRFlushErr:
			return fmt.Errorf("work request %d completed with status %d", c.WRID, c.Status)
		}
	}
	var ev [1]verbs.CMEvent
	for l.dev.PollCM(ev[:]) > 0 {
		did = true
		switch {
		case ev[0].Type == verbs.CMConnectRequest:
			if err := l.dev.Reject(ev[0].Req, nil); err != nil { // busy
				return err
			}
		case ev[0].QP == l.qp:
			l.event = ev[0]
			l.gone = l.gone || l.event.Type != verbs.CMEstablished
		}
	}
	if did {
		return nil
	}
	return poll(l.dev, l.timeout)
}

// poll blocks until dev has work. It fails after timeout; 0 is no limit.
func poll(dev verbs.Device, timeout time.Duration) error {
	fds := []unix.PollFd{{Fd: int32(dev.FD()), Events: unix.POLLIN}}
	ms := -1
	if timeout > 0 {
		ms = int((timeout + time.Millisecond - 1) / time.Millisecond)
	}
	n, err := unix.Poll(fds, ms)
	if err != nil && err != unix.EINTR {
		return err
	}
	if n == 0 && err == nil {
		return fmt.Errorf("no sign of the peer for %v", timeout)
	}
	return nil
}
