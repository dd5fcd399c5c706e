package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/rdsd/rdsd/examples/blockstore/store"
	"github.com/rdsd/rdsd/rds"
)

const (
	// sendPatience is how long an answer waits for a congested client before the server
	// drops it. The client then repeats its request.
	sendPatience = 5 * time.Second
	// stopPatience is how long a stopping server waits for operations in flight.
	stopPatience = 3 * time.Second
)

// request is a client's message with the client's address and cookie.
type request struct {
	store.Message
	from   netip.AddrPort
	cookie rds.Cookie
}

// server serves one export at one socket. It has these goroutines: receive takes
// requests, workers pread and start operations, complete takes the statuses of
// operations, storers pwrite, and the syncer fsyncs.
type server struct {
	sock   *rds.Socket
	export *export
	log    *slog.Logger
	block  int // bytes of a buffer: the largest block

	lender   *lender
	syncer   *syncer
	quota    *quota
	ops      *operations
	requests chan request    // receive to workers
	stores   chan *operation // complete to storers; has room for one per buffer, so a send never blocks
}

// serveOptions are the sizes of a server.
type serveOptions struct {
	block   int // largest block, bytes
	buffers int
	workers int
}

// serve answers requests until ctx ends. It then finishes the requests in hand and returns.
// All blocks that it has confirmed are on stable storage.
func serve(ctx context.Context, c *rds.Client, sock *rds.Socket, e *export, o serveOptions, log *slog.Logger) (serveStats, error) {
	buffers := make([]*rds.Buffer, o.buffers)
	for i := range buffers {
		b, err := c.Alloc(o.block)
		if err != nil {
			return serveStats{}, fmt.Errorf("buffer %d of %d: %w", i+1, o.buffers, err)
		}
		buffers[i] = b
	}
	s := &server{
		sock: sock, export: e, log: log, block: o.block,
		lender: newLender(buffers, sock.Barrier), quota: newQuota(max(1, o.buffers/2)), ops: newOperations(),
		requests: make(chan request, o.buffers), stores: make(chan *operation, o.buffers),
	}
	s.syncer = newSyncer(e.file.Sync, s.confirm)

	work, stopWork := context.WithCancel(context.Background())
	defer stopWork()
	var workers, storers, completer sync.WaitGroup
	for range o.workers {
		workers.Go(func() {
			for r := range s.requests {
				s.do(work, r)
			}
		})
		storers.Go(func() {
			for op := range s.stores {
				s.store(op)
			}
		})
	}
	settled, stopSettling := context.WithCancel(context.Background())
	completer.Go(func() { s.complete(settled) })

	err := s.receive(ctx)
	// Finish the received requests stage by stage. A worker may wait for a buffer that
	// an operation to an unreachable client has: stopPatience limits that.
	limit := time.AfterFunc(stopPatience, stopWork)
	close(s.requests)
	workers.Wait()
	limit.Stop()
	if err == nil {
		s.ops.drain(stopPatience)
	}
	stopSettling()
	completer.Wait()
	close(s.stores)
	storers.Wait()
	s.syncer.close()
	s.lender.stop()
	return s.stats(), err
}

// receive takes requests until ctx ends or the socket fails. It returns nil in the first
// case.
func (s *server) receive(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = s.sock.SetReadDeadline(time.Unix(1, 0)) })()
	m := rds.Message{Payload: make([]byte, store.MaxMessage)}
	for {
		if err := s.sock.RecvMsg(&m); err != nil {
			if ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) {
				return nil
			}
			return err
		}
		msg, err := store.Parse(m.Payload[:m.N])
		if err == nil && m.Truncated {
			err = fmt.Errorf("%w: %d bytes", store.ErrMessage, m.Len)
		}
		if err != nil {
			s.log.Warn("message refused", "peer", m.Addr, "err", err)
			continue
		}
		s.accept(request{msg, m.Addr, m.Cookie})
	}
}

// accept checks a request and queues it.
func (s *server) accept(r request) {
	switch r.Kind {
	case store.KindOpen, store.KindCommit:
		s.requests <- r
	case store.KindRead, store.KindWrite, store.KindZero, store.KindFlush:
		if err := r.CheckBlock(s.block); err != nil && r.Kind != store.KindFlush {
			s.fail(r, store.Failf(store.StatusBad, "%v: %v", r.Kind, err))
			return
		}
		if r.cookie == 0 && (r.Kind == store.KindRead || r.Kind == store.KindWrite) {
			s.fail(r, store.Failf(store.StatusBad, "%v without a cookie", r.Kind))
			return
		}
		if !s.quota.charge(r.from) {
			s.fail(r, store.Failf(store.StatusBusy, "block %d: more than %d requests in hand", r.Block, s.quota.limit))
			return
		}
		s.requests <- r
	default:
		s.log.Warn("answer without a request", "peer", r.from, "type", r.Kind.String())
	}
}

// do carries out one request, up to the start of its operation.
func (s *server) do(ctx context.Context, r request) {
	switch r.Kind {
	case store.KindOpen:
		s.open(r)
	case store.KindCommit:
		s.commit(r)
	case store.KindRead:
		s.read(ctx, r)
	case store.KindWrite:
		s.fetch(ctx, r)
	case store.KindZero:
		s.zero(r)
	case store.KindFlush:
		s.flush(r)
	}
}

func (s *server) open(r request) {
	if r.Flags&store.FlagWrite != 0 {
		if f := s.export.begin(r.Session); f != nil {
			s.fail(r, f)
			return
		}
	}
	size, f := s.export.size()
	if f != nil {
		s.fail(r, f)
		return
	}
	block := min(max(int(r.BlockSize), store.MinBlock), s.block)
	s.answer(r, &store.Message{Kind: store.KindOpened, ID: r.ID, Session: r.Session,
		Block: uint64(size), BlockSize: uint32(block), Window: uint32(s.quota.limit)})
}

func (s *server) commit(r request) {
	if r.Block > 1<<62 {
		s.fail(r, store.Failf(store.StatusBad, "size %d", r.Block))
		return
	}
	if f := s.export.commit(r.Session, int64(r.Block)); f != nil {
		s.fail(r, f)
		return
	}
	s.answer(r, &store.Message{Kind: store.KindCommitted, ID: r.ID, Session: r.Session, Block: r.Block})
}

// fail answers r with FAILED. It counts and logs f unless f is transient.
func (s *server) fail(r request, f *store.Failure) {
	if !f.Status.Transient() {
		s.ops.countFailed()
		s.log.Warn("request failed", "peer", r.from, "type", r.Kind.String(), "err", f)
	}
	s.answer(r, &store.Message{Kind: store.KindFailed, Status: f.Status, ID: r.ID, Block: r.Block, Text: f.Text})
}

// answer sends m to r's client. It only logs an error, because a client that gets no answer
// repeats its request.
func (s *server) answer(r request, m *store.Message) {
	if _, err := s.send(&rds.Message{Payload: m.Append(nil), Addr: r.from}); err != nil {
		s.log.Warn("answer not sent", "peer", r.from, "type", m.Kind.String(), "err", err)
	}
}

// send sends m. It waits at most sendPatience for room, so that a client that does not
// read cannot keep a worker for ever.
func (s *server) send(m *rds.Message) (id uint64, err error) {
	m.DontWait = true
	id, err = s.sock.SendMsg(m)
	if !errors.Is(err, rds.ErrCongested) && !errors.Is(err, rds.ErrWouldBlock) {
		return id, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), sendPatience)
	defer cancel()
	for {
		want := rds.WaitSet{SendSpace: true}
		if errors.Is(err, rds.ErrCongested) {
			want = rds.WaitSet{Relief: []netip.AddrPort{m.Addr}}
		}
		if _, err := s.sock.Wait(ctx, want); err != nil {
			return 0, err
		}
		id, err = s.sock.SendMsg(m)
		if !errors.Is(err, rds.ErrCongested) && !errors.Is(err, rds.ErrWouldBlock) {
			return id, err
		}
	}
}

// stats returns the counts so far.
func (s *server) stats() serveStats {
	st := s.ops.stats(s.sock.HWM)
	st.Fsyncs = s.syncer.count()
	return st
}
