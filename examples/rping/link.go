package main

import (
	"github.com/rdsd/rdsd/examples/link"
	"github.com/rdsd/rdsd/verbs"
)

// Offsets in a connection's memory.
const (
	outOff  = 0       // the message to send
	inOff   = infoLen // the message received
	dataOff = 2 * infoLen
)

// Ids of work requests. At most one of each kind is outstanding.
const (
	idSend uint64 = iota
	idRecv
	idRDMA
)

// conn is one connection and its memory: two messages, then data.
type conn struct{ *link.Link }

// newConn makes a connection with one receive posted, and n bytes of data.
func newConn(e *link.End, n int) (*conn, error) {
	l, err := e.NewLink(dataOff+n, verbs.QPInitAttr{Ack: verbs.AckLocal, Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite,
		Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 2, ReadDepth: 1}}, 0, idRecv)
	if err != nil {
		return nil, err
	}
	return &conn{l}, l.PostRecv(inOff, infoLen)
}

// send sends a message.
func (c *conn) send(i info) error {
	i.put(c.Mem[outOff:])
	return c.Do(verbs.SendWR{WRID: idSend, Op: verbs.OpSend, SGL: c.SGE(outOff, infoLen)})
}

// rdma reads or writes the first bytes of the data.
func (c *conn) rdma(op verbs.Opcode, i info) error {
	return c.Do(verbs.SendWR{WRID: idRDMA, Op: op, SGL: c.SGE(dataOff, int(i.size)), RemoteAddr: i.addr, RKey: i.rkey})
}

// recv waits for a message, copies it, and posts the receive for the next one.
func (c *conn) recv() ([]byte, error) {
	if err := c.Take(idRecv); err != nil {
		return nil, err
	}
	b := append([]byte(nil), c.Mem[inOff:inOff+c.N]...)
	return b, c.PostRecv(inOff, infoLen)
}
