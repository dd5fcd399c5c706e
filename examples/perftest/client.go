package main

import (
	"io"
	"time"

	"github.com/rdsd/rdsd/verbs"
)

// client runs the test against the server. The client writes, reads or sends.
func (e *end) client(stdout io.Writer) error {
	c, err := e.newControl()
	if err != nil {
		return err
	}
	if err := c.Connect(e.to(e.Timeout)); err != nil {
		return err
	}
	if err := c.hello(); err != nil {
		return err
	}
	if _, err := c.meet(keys{}); err != nil {
		return err
	}
	d, err := e.newData(c.cycle)
	if err != nil {
		return err
	}
	// The original server starts to listen for the second connection only after its
	// answer. A request that comes before is rejected, or lost by siw. So try again.
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if err = d.Connect(e.to(time.Second)); err == nil {
			break
		}
		if time.Since(start) > e.Timeout {
			return err
		}
		if err := d.Renew(); err != nil {
			return err
		}
	}
	peer, err := e.ready(c, d)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := d.measure(peer); err != nil {
		return err
	}
	rate := e.mibPerSecond(start)
	if _, err := e.finish(c, d, rate, rate*(1<<20)/float64(e.size)/1e6); err != nil {
		return err
	}
	e.print(stdout, rate)
	d.QP.Disconnect()
	return c.Left()
}

// to is a connection to the server.
func (e *end) to(timeout time.Duration) verbs.ConnectParam {
	return verbs.ConnectParam{Remote: e.addr, TimeoutNs: int64(timeout)}
}

// measure keeps the queue pair busy until every message has completed.
func (d *data) measure(peer keys) error {
	wr := verbs.SendWR{WRID: idTest, SGL: d.SGE(0, d.size), RemoteAddr: peer.addr, RKey: peer.rkey}
	switch d.test {
	case testWrite:
		wr.Op = verbs.OpRDMAWrite
	case testRead:
		wr.Op = verbs.OpRDMARead
	case testSend:
		wr.Op = verbs.OpSend
	}
	for posted := 0; d.Done[idTest] < d.iters; {
		for posted < d.iters && posted-d.Done[idTest] < txDepth && d.room(posted) {
			if err := d.Post(wr); err != nil {
				return err
			}
			posted++
		}
		was, credit := d.Done[idTest], d.credit()
		if err := d.Until(func() bool { return d.Done[idTest] > was || d.credit() != credit }); err != nil {
			return err
		}
	}
	return nil
}
