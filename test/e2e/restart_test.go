package e2e

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/attach"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/rds"
)

// returning is a process at a host whose daemon dies. After each death, it opens a client of the
// next daemon and binds its port again.
type returning struct {
	h    *host
	port uint16
	use  func(*rds.Client, *rds.Socket) error // called with each socket, until the socket ends
	wg   sync.WaitGroup
	ctx  context.Context
	end  context.CancelFunc

	mu   sync.Mutex
	s    *rds.Socket // guarded by mu
	gone int         // how often the daemon went away; guarded by mu
}

func newReturning(h *host, port uint16, use func(*rds.Client, *rds.Socket) error) *returning {
	r := &returning{h: h, port: port, use: use}
	r.ctx, r.end = context.WithCancel(context.Background())
	up := make(chan struct{})
	r.wg.Go(func() { r.run(up) })
	<-up
	return r
}

func (r *returning) run(up chan struct{}) {
	for r.ctx.Err() == nil {
		c, err := rds.Open(r.ctx, rds.Options{Socket: r.h.sock})
		if err != nil {
			time.Sleep(time.Millisecond) // there is no daemon now
			continue
		}
		s, err := c.Bind(r.h.at(r.port))
		if err == nil {
			r.mu.Lock()
			r.s = s
			stopped := r.ctx.Err() != nil
			r.mu.Unlock()
			if up != nil {
				close(up)
				up = nil
			}
			if err = rds.ErrClosed; !stopped {
				err = r.use(c, s)
			}
		}
		switch {
		case errors.Is(err, rds.ErrDaemonGone):
			r.mu.Lock()
			r.gone++
			r.mu.Unlock()
			r.cannotSend(s)
		case !errors.Is(err, rds.ErrClosed):
			r.h.t.Errorf("socket ended with %v", err)
		}
		c.Close()
	}
}

func (r *returning) cannotSend(s *rds.Socket) {
	if s == nil { // the daemon died before the bind
		return
	}
	if _, err := s.SendTo(nil, r.h.at(9)); !errors.Is(err, rds.ErrDaemonGone) {
		r.h.t.Errorf("send after the daemon's death: %v", err)
	}
}

// stop closes the socket, which ends its use. The client is closed after that, because use may
// be in the client's memory.
func (r *returning) stop() int {
	r.end()
	r.mu.Lock()
	r.s.Close()
	r.mu.Unlock()
	r.wg.Wait()
	return r.gone
}

// lateControl cancels the context of Open when the daemon has sent everything.
type lateControl struct {
	ipc.Control
	cancel context.CancelFunc
}

func (l lateControl) Call(req ipc.Request, fds []int) (ipc.Response, []int, error) {
	resp, got, err := l.Control.Call(req, fds)
	l.cancel()
	return resp, got, err
}

// TestOpenCanceledLate cancels Open at the last moment. noLeaks checks that nothing is left
// behind.
func TestOpenCanceledLate(t *testing.T) {
	isolated(t, func(t *testing.T) {
		h := newHost(t)
		for range 3 {
			ctl, err := ipc.Dial(t.Context(), h.sock)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			if _, err := rds.Open(attach.Through(ctx, attach.Way{Control: lateControl{ctl, cancel}}), rds.Options{}); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
}

// TestPeerKilled kills the peer's daemon under load and starts it again.
func TestPeerKilled(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		here, there := hosts[0], hosts[1]
		c := here.open()
		a := newAudit()
		src := here.bind(c, 0)
		ops := newOpPair(t, c, here.bind(c, 0), there.at(5001))
		sink := newReturning(there, 5000, func(_ *rds.Client, s *rds.Socket) error { return a.take(s) })
		target := newReturning(there, 5001, ops.serve)

		stop := make(chan struct{})
		var ended sync.WaitGroup
		ended.Go(func() { a.stream(t, src, there.at(5000), stop) })
		ended.Go(func() {
			if err := ops.run(stop); err != nil {
				t.Errorf("operations: %v", err)
			}
		})
		l := &load{t: t, audit: a, ops: ops}
		rounds := 8
		if long {
			rounds = 300
		}
		rng := rand.New(rand.NewPCG(7, 7))
		for range rounds {
			l.progress(1 + uint64(rng.IntN(300)))
			there.restart()
		}
		l.progress(100)
		close(stop)
		ended.Wait()
		if t.Failed() {
			return
		}
		a.balance(t, src)
		ops.check(t)
		s := a.sums()
		t.Logf("%+v, operations %v, %d of them refused for a dead instance's key", s, ops.sums, ops.stale)
		if s.lost+s.nosock == 0 {
			t.Error("nothing was ever lost: nothing was tested")
		}
		// A daemon may die before the socket is bound again.
		if n := sink.stop(); n > rounds || n < rounds/2 {
			t.Errorf("the socket saw its daemon die %d times of %d", n, rounds)
		}
		target.stop()
	})
}
