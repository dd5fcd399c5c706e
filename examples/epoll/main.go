// Command epoll shows RDS in an event loop: one goroutine, one epoll descriptor,
// and a socket that never blocks.
//
//	epoll -bind 10.0.0.1:4000                         # answers every client, until interrupted
//	epoll -bind 10.0.0.2:0 -to 10.0.0.1:4000 -n 10000 # sends as fast as there is room, counts the answers
//
// The loop polls for what it can do next. While the server's answer waits for room at its
// destination, the loop polls for that room and not for the next message. So a client that
// does not read its answers cannot fill the server's memory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"

	"github.com/rdsd/rdsd/rds"
)

func main() {
	bind := flag.String("bind", "127.0.0.1:0", "`address:port` of the socket")
	to := flag.String("to", "", "`address:port` of the server; without it, be the server")
	n, size := flag.Int("n", 1000, "messages to send"), flag.Int("size", 1000, "bytes of a message")
	flag.Parse()
	if err := run(*bind, *to, *n, *size); err != nil {
		fmt.Fprintln(os.Stderr, "epoll:", err)
		os.Exit(1)
	}
}

func run(bind, to string, n, size int) error {
	local, err := netip.ParseAddrPort(bind)
	if err != nil {
		return fmt.Errorf("-bind: %w", err)
	}
	c, err := rds.Open(context.Background(), rds.Options{})
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := c.Bind(local)
	if err != nil {
		return err
	}
	l, err := newLoop(s)
	if err != nil {
		return err
	}
	defer l.close()
	if to == "" {
		fmt.Println("serving", s.LocalAddrPort())
		return l.run((&server{s: s, buf: make([]byte, rds.MaxMessage)}).step)
	}
	server, err := netip.ParseAddrPort(to)
	if err != nil {
		return fmt.Errorf("-to: %w", err)
	}
	cl := &client{s: s, to: server, left: n, missing: n, msg: make([]byte, size), buf: make([]byte, rds.MaxMessage)}
	if err := l.run(cl.step); err != nil {
		return err
	}
	fmt.Printf("%d messages of %d bytes sent and answered, %d waits for room\n", n, size, cl.waits)
	return nil
}

// full reports whether a send failed for want of room, so that a later send may succeed.
func full(err error) bool {
	return errors.Is(err, rds.ErrWouldBlock) || errors.Is(err, rds.ErrCongested)
}

// server answers every message with itself.
type server struct {
	s   *rds.Socket
	buf []byte
	n   int            // bytes in buf of the answer that waits for room
	to  netip.AddrPort // destination of that answer; the zero value if no answer waits
}

func (v *server) step() (done bool, err error) {
	for {
		if v.to.IsValid() {
			switch _, err := v.s.Send(rds.DontWait, &rds.Message{Payload: v.buf[:v.n], Addr: v.to}); {
			case full(err):
				return false, poll(v.s, rds.WaitSet{SendTo: []netip.AddrPort{v.to}})
			case err != nil:
				return false, err
			}
			v.to = netip.AddrPort{}
		}
		m := rds.Received{Payload: v.buf}
		switch err := v.s.Recv(rds.DontWait, &m); {
		case errors.Is(err, rds.ErrWouldBlock):
			return false, poll(v.s, rds.WaitSet{Message: true})
		case err != nil:
			return false, err
		}
		v.n, v.to = m.N, m.Addr
	}
}

// client sends messages and counts their answers.
type client struct {
	s        *rds.Socket
	to       netip.AddrPort
	left     int // messages to send
	missing  int // answers to come
	waits    int // times that a send found no room
	msg, buf []byte
}

func (c *client) step() (done bool, err error) {
	for {
		m := rds.Received{Payload: c.buf}
		err := c.s.Recv(rds.DontWait, &m)
		if errors.Is(err, rds.ErrWouldBlock) {
			break
		}
		if err != nil {
			return false, err
		}
		if m.N != len(c.msg) {
			return false, fmt.Errorf("an answer of %d bytes, want %d", m.N, len(c.msg))
		}
		c.missing--
	}
	var notices [8]rds.Notice
	for _, n := range notices[:c.s.Notices(notices[:])] {
		if n.Kind == rds.NoSocket {
			return false, fmt.Errorf("nobody is bound to %s", n.To)
		}
	}
	set := rds.WaitSet{Message: true, Notice: true}
	for c.left > 0 {
		_, err := c.s.Send(rds.DontWait, &rds.Message{Payload: c.msg, Addr: c.to})
		if full(err) {
			c.waits++
			set.SendTo = []netip.AddrPort{c.to}
			break
		}
		if err != nil {
			return false, err
		}
		c.left--
	}
	return c.missing == 0, poll(c.s, set)
}
