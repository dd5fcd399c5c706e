package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// server accepts NBD clients.
type server struct {
	disks       []*disk
	connections int
	log         *slog.Logger
}

// disk returns the disk called name, which is one of names.
func (s *server) disk(name string) *disk { return s.disks[slices.Index(s.names(), name)] }

// names of the exports.
func (s *server) names() (all []string) {
	for _, d := range s.disks {
		all = append(all, d.name)
	}
	return all
}

// run serves clients until ctx ends. It then waits for their requests in hand.
func (s *server) run(ctx context.Context, listen string, stderr io.Writer) error {
	// The first sessions are begun before anybody is invited, to say here what is
	// wrong with a REMOTE.
	for _, d := range s.disks {
		first, err := d.use(ctx)
		if err != nil {
			return err
		}
		defer d.close()
		first.leave()
	}
	l, err := listenAt(listen)
	if err != nil {
		return err
	}
	for _, d := range s.disks {
		fmt.Fprintf(stderr, "serving %v as %q at %v\n", d.server, d.name, l.Addr())
	}
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer l.Close()

	s.accept(ctx, l)
	return nil
}

// acceptPause is how long accept waits after an error.
const acceptPause = 10 * time.Millisecond

// accept serves the clients of l until ctx ends or l is closed. Another error, as EMFILE, is one of the
// moment: those who are connected keep their disks, and who connects waits.
func (s *server) accept(ctx context.Context, l net.Listener) {
	var clients sync.WaitGroup
	defer clients.Wait()
	room := make(chan struct{}, s.connections)
	failing := false
	for {
		c, err := l.Accept()
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if !failing {
				s.log.Warn("no client can connect for now", "err", err)
			}
			failing = true
			select {
			case <-ctx.Done():
			case <-time.After(acceptPause):
			}
			continue
		}
		failing = false
		select {
		case room <- struct{}{}:
		default:
			s.log.Warn("client refused", "client", c.RemoteAddr(), "err", fmt.Sprintf("%d are connected", s.connections))
			c.Close()
			continue
		}
		clients.Go(func() {
			defer func() { <-room }()
			defer c.Close()
			if err := s.client(ctx, c); err != nil {
				s.log.Warn("client gone", "client", c.RemoteAddr(), "err", err)
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
	h := handshake{conn: c, names: s.names(), attach: func(name string) (export, error) {
		d := s.disk(name)
		if held != nil { // GO after INFO attaches again
			held.leave()
			held = nil
		}
		ctx, cancel := context.WithTimeout(ctx, handshakePatience)
		defer cancel()
		sess, err := d.use(ctx)
		_ = c.SetDeadline(time.Now().Add(handshakePatience)) // the blockstore's time does not count as the client's
		if err != nil {
			s.log.Warn("no session at the blockstore", "disk", d.server, "err", err)
			return export{}, err
		}
		held = sess
		return export{name, sess.size, sess.flags(), largestOf(sess.Block)}, nil
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
	conn := newConn(c, held, s.log)
	conn.structured, conn.status = h.structured, h.status && h.meta == h.taken
	return conn.serve(ctx)
}
