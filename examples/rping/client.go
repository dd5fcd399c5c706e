package main

import (
	"bytes"
	"fmt"
	"io"

	"github.com/rdsd/rdsd/examples/link"
	"github.com/rdsd/rdsd/verbs"
)

// ping is the client. The first half of the connection's data is the source that the server
// reads. The second half is the sink to which the server writes it back.
func ping(e *link.End, c config, stdout io.Writer) error {
	l, err := newConn(e, 2*c.size)
	if err != nil {
		return err
	}
	defer l.Free()
	if err := l.Connect(verbs.ConnectParam{Remote: c.addr, TimeoutNs: int64(e.Timeout)}); err != nil {
		return err
	}
	for n := 0; c.count == 0 || n < c.count; n++ {
		if err := l.pingOnce(c, n, stdout); err != nil {
			return fmt.Errorf("ping %d: %w", n, err)
		}
	}
	l.QP.Disconnect()
	return nil
}

// pingOnce offers the source, then the sink. After each it waits for the server's message.
func (l *conn) pingOnce(c config, n int, stdout io.Writer) error {
	source, sink := l.Mem[dataOff:dataOff+c.size], l.Mem[dataOff+c.size:]
	fill(source, n)
	clear(sink)
	for _, off := range []int{dataOff, dataOff + c.size} {
		if err := l.send(info{link.IOVA + uint64(off), l.MR.RKey(), uint32(c.size)}); err != nil {
			return err
		}
		if _, err := l.recv(); err != nil {
			return err
		}
	}
	if c.verify && !bytes.Equal(source, sink) {
		return fmt.Errorf("data differ: sent %q, got %q", source, sink)
	}
	if c.verbose {
		fmt.Fprintf(stdout, "ping data: %s\n", text(sink))
	}
	return nil
}

// text returns the data up to its zero byte.
func text(b []byte) []byte {
	b, _, _ = bytes.Cut(b, []byte{0})
	return b
}
