package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/rdsd/rdsd/examples/link"
	"github.com/rdsd/rdsd/verbs"
)

// serve is the server. It serves one client, or with -P one client after the other. It
// rejects clients that come while it serves another one.
func serve(e *link.End, c config, stdout io.Writer, listening func(netip.AddrPort)) error {
	ln, err := e.Dev.Listen(c.addr)
	if err != nil {
		return err
	}
	defer ln.Close()
	if listening != nil {
		listening(ln.Addr())
	}
	e.Alone = true
	for {
		req, err := e.Request(0)
		if err != nil {
			return err
		}
		err = serveOne(e, req, c, stdout)
		if !c.persistent {
			return err
		}
		if err != nil {
			fmt.Fprintf(stdout, "client %v: %v\n", req.Remote, err)
		}
	}
}

// serveOne serves a client until it disconnects.
func serveOne(e *link.End, req verbs.CMEvent, c config, stdout io.Writer) error {
	l, err := newConn(e, c.size)
	if err != nil {
		return err
	}
	defer l.Free()
	if err := l.Accept(req, nil); err != nil {
		return err
	}
	for {
		err := l.pong(c, stdout)
		if errors.Is(err, link.ErrDisconnected) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// pong serves one ping. A client may disconnect before a ping, but not within one.
func (l *conn) pong(c config, stdout io.Writer) error {
	source, err := l.offer(c)
	if err != nil {
		return err
	}
	if err := l.pongRest(c, source, stdout); err != nil {
		return fmt.Errorf("within a ping: %v", err) // not %w, so that a disconnect here is an error
	}
	return nil
}

func (l *conn) pongRest(c config, source info, stdout io.Writer) error {
	if err := l.rdma(verbs.OpRDMARead, source); err != nil {
		return err
	}
	if c.verbose {
		fmt.Fprintf(stdout, "server ping data: %s\n", text(l.Mem[dataOff:dataOff+int(source.size)]))
	}
	if err := l.send(info{}); err != nil {
		return err
	}
	sink, err := l.offer(c)
	if err != nil {
		return err
	}
	if err := l.rdma(verbs.OpRDMAWrite, sink); err != nil {
		return err
	}
	return l.send(info{})
}

// offer waits until the client names a buffer.
func (l *conn) offer(c config) (info, error) {
	b, err := l.recv()
	if err != nil {
		return info{}, err
	}
	return parseInfo(b, c.size)
}
