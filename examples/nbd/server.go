package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// server accepts NBD clients.
type server struct {
	disk        *disk
	name        string
	connections int
}

// run serves clients until ctx ends. It then waits for their requests in hand.
func (s *server) run(ctx context.Context, listen string, stderr io.Writer) error {
	// Begin the first session before clients can connect, so that an error of REMOTE
	// ends the program.
	first, err := s.disk.use(ctx)
	if err != nil {
		return err
	}
	defer s.disk.close()
	first.leave()
	l, err := listenAt(listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "serving %v at %v\n", s.disk.server, l.Addr())
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer l.Close()

	var clients sync.WaitGroup
	defer clients.Wait()
	room := make(chan struct{}, s.connections)
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case room <- struct{}{}:
		default:
			s.disk.log.Warn("client refused", "client", c.RemoteAddr(), "err", fmt.Sprintf("%d are connected (-connections)", s.connections))
			c.Close()
			continue
		}
		clients.Go(func() {
			defer func() { <-room }()
			defer c.Close()
			if err := s.client(ctx, c); err != nil {
				s.disk.log.Warn("client gone", "client", c.RemoteAddr(), "err", err)
			}
		})
	}
}

// client serves one client. It returns nil if the client has disconnected properly, or if
// ctx has ended.
func (s *server) client(ctx context.Context, c net.Conn) error {
	var held *session
	defer func() {
		if held != nil {
			held.leave()
		}
	}()
	h := handshake{conn: c, name: s.name, attach: func() (export, error) {
		if held != nil { // GO after INFO attaches again
			held.leave()
			held = nil
		}
		ctx, cancel := context.WithTimeout(ctx, handshakePatience)
		defer cancel()
		sess, err := s.disk.use(ctx)
		_ = c.SetDeadline(time.Now().Add(handshakePatience)) // the blockstore's time does not count as the client's
		if err != nil {
			s.disk.log.Warn("no session at the blockstore", "server", s.disk.server, "err", err)
			return export{}, err
		}
		held = sess
		return export{s.name, sess.size, sess.flags(), largestOf(sess.Block)}, nil
	}}
	unhook := context.AfterFunc(ctx, func() { c.Close() })
	err := h.run()
	unhook()
	switch {
	case ctx.Err() != nil, errors.Is(err, errAborted), errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the handshake has not ended within %v", handshakePatience)
	case err != nil:
		return fmt.Errorf("handshake: %w", err)
	}
	return newConn(c, held, s.disk.log).serve(ctx)
}
