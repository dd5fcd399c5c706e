package store

import (
	"context"

	"github.com/rdsd/rdsd/rds"
)

// Slot is one buffer of a client with, at most times, a region over it that the
// server may use. One goroutine at a time; from Begin until done it is the call's.
type Slot struct {
	c      *Client
	buf    *rds.Buffer
	mem    []byte
	region *rds.Region // nil: the server cannot reach the buffer
	pushed uint64      // the id of the last push's operation; 0 if there is none
}

// Bytes is the slot's memory, a block long.
func (s *Slot) Bytes() []byte { return s.mem }

// cookie returns the cookie of the buffer's region. It registers the buffer if that has no
// region.
func (s *Slot) cookie() (rds.Cookie, error) {
	if s.region == nil {
		r, err := s.c.sock.Register(s.buf, 0, len(s.mem), rds.AllowWrite)
		if err != nil {
			return 0, err
		}
		s.region = r
	}
	return s.region.Cookie(), nil
}

// Ready waits until the last push from the slot does not use its memory any more. The caller
// must call it before it changes the bytes. After the answer to a push it mostly returns at
// once.
func (s *Slot) Ready(ctx context.Context) error {
	to := s.c.Server.Addr()
	if s.pushed == 0 || s.c.sock.HWM(to) >= s.pushed {
		s.pushed = 0
		return nil
	}
	_, err := s.c.sock.Barrier(ctx, to, s.pushed)
	if err == nil {
		s.pushed = 0
	}
	return err
}

// Recall takes the buffer back from a request that did not end cleanly: when it
// returns nil nobody can touch the memory, and the next cookie is another.
func (s *Slot) Recall(ctx context.Context) error {
	if err := s.Ready(ctx); err != nil {
		return err
	}
	if s.region == nil {
		return nil
	}
	if err := s.region.Release(ctx); err != nil {
		return err
	}
	s.region = nil
	return nil
}
