package main

import (
	"context"

	"github.com/rdsd/rdsd/rds"
)

// slot is one buffer of a client with, at most times, a region over it that
// the server may use. One goroutine at a time.
type slot struct {
	sock   *rds.Socket
	buf    *rds.Buffer
	access rds.Access
	region *rds.Region // nil: the server cannot reach the buffer
}

// cookie registers the buffer if it is not and returns what names it.
func (s *slot) cookie() (rds.Cookie, error) {
	if s.region == nil {
		r, err := s.sock.Register(s.buf, 0, s.buf.Len(), s.access)
		if err != nil {
			return 0, err
		}
		s.region = r
	}
	return s.region.Cookie(), nil
}

// recall takes the buffer back from a request that did not end cleanly: when
// it returns nil nobody can touch the memory, and the next cookie is another.
func (s *slot) recall(ctx context.Context) error {
	if s.region == nil {
		return nil
	}
	if err := s.region.Release(ctx); err != nil {
		return err
	}
	s.region = nil
	return nil
}
