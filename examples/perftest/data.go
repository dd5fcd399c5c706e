package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/rdsd/rdsd/examples/link"
	"github.com/rdsd/rdsd/verbs"
)

const (
	txDepth = 128
	rxDepth = 512
)

// data is the connection that is measured. Its memory has the messages first, and
// behind them two words for the flow control of send.
//
// iWARP has no RNR NAK: a SEND without a receive ends the connection. So from time
// to time perftest's receiver WRITEs into the sender's memory how many messages it
// has received. The word has the receiver's byte order. This code takes it as
// little-endian, as on amd64 and arm64.
type data struct {
	config
	*link.Link
	words int // offset of the word that the peer writes; behind it is the word that the peer is sent
	depth int // receives posted
}

// newData makes the connection's side of this test.
func (e *end) newData(cycle int) (*data, error) {
	d := &data{config: e.config, words: (max(e.size, cycle) + 7) &^ 7}
	d.depth = min(rxDepth, e.iters)
	d.depth += d.depth & 1
	access := verbs.AccessRemoteWrite
	if e.test == testRead {
		access = verbs.AccessRemoteRead
	}
	var err error
	d.Link, err = e.newLink(d.words+8, rxDepth, access)
	return d, err
}

// keys returns the keys that tell the peer where to write or read.
func (d *data) keys() keys {
	k := keys{qpn: d.QP.Num(), rkey: d.MR.RKey(), addr: link.IOVA}
	if d.test == testSend {
		k.addr += uint64(d.words)
	}
	return k
}

// credit returns how many messages the peer has received, by its last WRITE.
func (d *data) credit() uint32 {
	return binary.LittleEndian.Uint32(d.Mem[d.words:])
}

// room reports whether the peer has a receive for one more message.
func (d *data) room(posted int) bool {
	return d.test != testSend || uint32(posted)+1-d.credit() < uint32(d.depth)
}

// ready makes both sides ready for the test once the data connection is up, and returns
// the peer's keys.
func (e *end) ready(c *control, d *data) (keys, error) {
	if _, err := c.meet(keys{}); err != nil {
		return keys{}, err
	}
	peer, err := c.meet(d.keys())
	if err != nil {
		return peer, err
	}
	if e.test == testSend && !e.isClient {
		for range d.depth {
			if err := d.PostRecv(0, e.size); err != nil {
				return peer, err
			}
		}
	}
	meetings := 2
	if e.test == testSend {
		meetings = 3
	}
	for range meetings {
		if _, err := c.meet(d.keys()); err != nil {
			return peer, err
		}
	}
	return peer, nil
}

// finish ends the test and returns the client's rate. For send the server does not learn
// it, so there finish returns rate, the server's own.
func (e *end) finish(c *control, d *data, rate, messages float64) (float64, error) {
	if e.test != testSend {
		if _, err := c.meet(d.keys()); err != nil {
			return 0, err
		}
		theirs, err := c.report(e.size, e.iters, rate, messages)
		if err != nil {
			return 0, err
		}
		if !e.isClient {
			rate = theirs
		}
	}
	_, err := c.meet(d.keys())
	return rate, err
}

// print writes the result. As in the original, MB/s means MiB/s.
func (e *end) print(stdout io.Writer, rate float64) {
	fmt.Fprintf(stdout, "%d bytes, %d messages, %.2f MB/s\n", e.size, e.iters, rate)
}

// mibPerSecond returns the rate in MiB/s since start.
func (e *end) mibPerSecond(start time.Time) float64 {
	return float64(e.size) * float64(e.iters) / time.Since(start).Seconds() / (1 << 20)
}
