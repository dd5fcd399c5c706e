package store

import (
	"context"

	"github.com/rdsd/rdsd/rds"
)

// Slot is one buffer of a client. Most of the time it has a region that the server may
// use. Only one goroutine may use a slot at a time.
type Slot struct {
	sock   *rds.Socket
	Buf    *rds.Buffer
	access rds.Access
	region *rds.Region // nil: the server cannot reach the buffer
}

// cookie returns the cookie of the buffer's region. It registers the buffer if that has no
// region.
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

// Recall takes the buffer back from a request that did not end cleanly. When it returns
// nil, the server can no longer touch the memory, and the next cookie is another one.
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
