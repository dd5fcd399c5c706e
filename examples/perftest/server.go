package main

import (
	"encoding/binary"
	"io"
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/examples/link"
	"github.com/rdsd/rdsd/verbs"
)

// server serves one test. The client writes, reads or sends.
func (e *end) server(stdout io.Writer, listening func(netip.AddrPort)) error {
	ln, err := e.Dev.Listen(e.addr)
	if err != nil {
		return err
	}
	defer ln.Close()
	if listening != nil {
		listening(ln.Addr())
	}
	c, err := e.newControl()
	if err != nil {
		return err
	}
	if err := acceptNext(c.Link, 0); err != nil {
		return err
	}
	if err := c.hello(); err != nil {
		return err
	}
	d, err := e.newData(c.cycle)
	if err != nil {
		return err
	}
	if _, err := c.meet(keys{}); err != nil {
		return err
	}
	if err := acceptNext(d.Link, e.Timeout); err != nil {
		return err
	}
	peer, err := e.ready(c, d)
	if err != nil {
		return err
	}
	start := time.Now()
	if e.test == testSend {
		if err := d.receive(peer); err != nil {
			return err
		}
	}
	rate, err := e.finish(c, d, e.mibPerSecond(start), 0)
	if err != nil {
		return err
	}
	e.print(stdout, rate)
	// The client disconnects the measured connection once it has the server's last message. Only
	// then the server disconnects the control connection. Earlier, the completion of that message
	// could be lost with the connection.
	if err := d.Left(); err != nil {
		return err
	}
	c.QP.Disconnect()
	return nil
}

// acceptNext waits for the next request and accepts it.
func acceptNext(l *link.Link, timeout time.Duration) error {
	r, err := l.Request(timeout)
	if err != nil {
		return err
	}
	return l.Accept(r, nil)
}

// receive takes the messages of send. Three times in each round of the receives it
// WRITEs to the client how many messages have come.
func (d *data) receive(peer keys) error {
	const word = 4
	own := d.words + word
	for had := 0; had < d.iters; {
		if err := d.Take(idRecv); err != nil {
			return err
		}
		had++
		if err := d.PostRecv(0, d.size); err != nil {
			return err
		}
		if had%d.depth%(d.depth/3) != 0 {
			continue
		}
		binary.LittleEndian.PutUint32(d.Mem[own:], uint32(had))
		wr := verbs.SendWR{WRID: idCredit, Op: verbs.OpRDMAWrite, SGL: d.SGE(own, word), RemoteAddr: peer.addr, RKey: peer.rkey}
		if err := d.Post(wr); err != nil {
			return err
		}
		if err := d.Take(idCredit); err != nil {
			return err
		}
	}
	return nil
}
