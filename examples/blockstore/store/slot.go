package store

import (
	"context"

	"github.com/rdsd/rdsd/rds"
)

// Slot is one buffer of a client with, at most times, a region over it that
// the server may use. One goroutine at a time.
type Slot struct {
	sock   *rds.Socket
	Buf    *rds.Buffer
	access rds.Access
	region *rds.Region // nil: the server cannot reach the buffer
}

// cookie registers the buffer if it is not and returns what names it.
func (s *Slot) cookie() (rds.Cookie, error) {
	if s.region == nil {
		r, err := s.sock.Register(s.Buf, 0, s.Buf.Len(), s.access)
		if err != nil {
			return 0, err
		}
		s.region = r
	}
	return s.region.Cookie(), nil
}

// Recall takes the buffer back from a request that did not end cleanly: when
// it returns nil nobody can touch the memory, and the next cookie is another.
func (s *Slot) Recall(ctx context.Context) error {
	if s.region == nil {
		return nil
	}
	if err := s.region.Release(ctx); err != nil {
		return err
	}
	s.region = nil
	return nil
}
