package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdsd/rdsd/rds"
)

// load is what goes on beside the ping-pong.
type load struct {
	streams []*stream
	writers []*writer
}

// start begins a stream and operations in each direction.
func (l *load) start(a, b *host) error {
	for _, h := range [][2]*host{{a, b}, {b, a}} {
		s, err := newStream(h[0], h[1], 4096)
		if err != nil {
			return err
		}
		l.streams = append(l.streams, s)
		w, err := newWriter(h[0], h[1])
		if err != nil {
			return err
		}
		l.writers = append(l.writers, w)
	}
	return nil
}

func (l *load) close() (err error) {
	for _, s := range l.streams {
		s.close()
	}
	for _, w := range l.writers {
		err = errors.Join(err, w.close())
	}
	return err
}

func (l *load) String() string {
	var messages, ops, again uint64
	for _, s := range l.streams {
		messages += s.n.Load()
	}
	for _, w := range l.writers {
		ops += w.n.Load()
		again += w.again.Load()
	}
	return fmt.Sprintf("beside it %d messages, %d operations, of which %d were DROPPED", messages, ops, again)
}

// writer writes to memory of another host, one operation after the other.
type writer struct {
	*end
	owner *end
	n     atomic.Uint64
	again atomic.Uint64 // operations that were DROPPED, because their connection broke, and sent again
	stop  atomic.Bool
	wg    sync.WaitGroup
	err   error // of the sender; valid when it has ended
}

// writeLen is how much an operation moves.
const writeLen = 64 << 10

func newWriter(a, b *host) (w *writer, err error) {
	w = &writer{}
	if w.end, err = newEnd(a); err != nil {
		return nil, err
	}
	if w.owner, err = newEnd(b); err != nil {
		return nil, err
	}
	mine, err := w.c.Alloc(writeLen)
	if err != nil {
		return nil, err
	}
	theirs, err := w.owner.c.Alloc(writeLen)
	if err != nil {
		return nil, err
	}
	r, err := w.owner.s.Register(theirs, 0, writeLen, rds.AllowWrite)
	if err != nil {
		return nil, err
	}
	if err := r.Expose(context.Background(), w.s.LocalAddrPort()); err != nil {
		return nil, err
	}
	// The grant is on its way, ahead of what the owner's socket sends after it.
	if _, err := w.owner.s.SendTo([]byte("exposed"), w.s.LocalAddrPort()); err != nil {
		return nil, err
	}
	if err := w.s.Recv(context.Background(), &rds.Received{}); err != nil {
		return nil, err
	}
	w.wg.Go(func() { w.err = w.write(mine, r.Cookie()) })
	return w, nil
}

func (w *writer) write(mine *rds.Buffer, cookie rds.Cookie) error {
	to := w.owner.s.LocalAddrPort()
	for token := uint64(1); !w.stop.Load(); token++ {
		op := rds.RDMA{Write: true, Cookie: cookie, Local: []rds.Segment{{Buf: mine, Len: writeLen}}, Notify: true, Silent: true, Token: token}
		if _, err := w.s.Send(context.Background(), &rds.Message{Addr: to, Op: &op}); err != nil {
			return err
		}
		if _, err := w.s.Wait(context.Background(), rds.WaitSet{Completion: true}); err != nil {
			return err
		}
		var cs [2]rds.Completion
		for _, c := range cs[:w.s.Completions(cs[:])] {
			switch {
			case c.Token != token:
				return fmt.Errorf("a status of operation %d, not of %d", c.Token, token)
			case c.Status == rds.Dropped:
				w.again.Add(1)
			case c.Status != rds.Success:
				return fmt.Errorf("operation %d has the status %v (errno %d)", token, c.Status, c.Errno)
			}
		}
		w.n.Add(1)
	}
	return nil
}

func (w *writer) close() error {
	w.stop.Store(true)
	w.wg.Wait()
	return errors.Join(w.err, w.c.Close(), w.owner.c.Close())
}
