package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/rdsd/rdsd/verbs"
)

// serve is the server. It serves one client, or with -P one client after the other. It
// rejects clients that come while it serves another one.
func serve(dev verbs.Device, c config, stdout io.Writer, listening func(netip.AddrPort)) error {
	ln, err := dev.Listen(c.addr)
	if err != nil {
		return err
	}
	defer ln.Close()
	if listening != nil {
		listening(ln.Addr())
	}
	for {
		req, err := request(dev)
		if err != nil {
			return err
		}
		err = serveOne(dev, req, c, stdout)
		if !c.persistent {
			return err
		}
		if err != nil {
			fmt.Fprintf(stdout, "client %v: %v\n", req.Remote, err)
		}
	}
}

// request waits for a client's connection request.
func request(dev verbs.Device) (verbs.CMEvent, error) {
	var ev [1]verbs.CMEvent
	for {
		did := dev.Progress()
		if dev.PollCM(ev[:]) > 0 {
			if ev[0].Type == verbs.CMConnectRequest {
				return ev[0], nil
			}
			continue // the end of a connection served before
		}
		if !did {
			if err := poll(dev, 0); err != nil {
				return ev[0], err
			}
		}
	}
}

// serveOne serves a client until it disconnects.
func serveOne(dev verbs.Device, req verbs.CMEvent, c config, stdout io.Writer) error {
	l, err := newLink(dev, c.size, c.timeout)
	if err != nil {
		return err
	}
	defer l.close()
	if err := dev.Accept(req.Req, l.qp, nil); err != nil {
		return err
	}
	if err := l.established(); err != nil {
		return err
	}
	for {
		err := l.pong(c, stdout)
		if errors.Is(err, errDisconnected) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// pong serves one ping. A client may disconnect before a ping, but not within one.
func (l *link) pong(c config, stdout io.Writer) error {
	source, err := l.offer(c)
	if err != nil {
		return err
	}
	if err := l.pongRest(c, source, stdout); err != nil {
		return fmt.Errorf("within a ping: %v", err) // not %w, so that a disconnect here is an error
	}
	return nil
}

func (l *link) pongRest(c config, source info, stdout io.Writer) error {
	if err := l.rdma(verbs.OpRDMARead, source); err != nil {
		return err
	}
	if c.verbose {
		fmt.Fprintf(stdout, "server ping data: %s\n", text(l.mem[dataOff:dataOff+int(source.size)]))
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
func (l *link) offer(c config) (info, error) {
	b, err := l.recv()
	if err != nil {
		return info{}, err
	}
	return parseInfo(b, c.size)
}
