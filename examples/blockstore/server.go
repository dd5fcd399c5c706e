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

	"github.com/rdsd/rdsd/rds"
)

const (
	// sendPatience is how long an answer waits for a congested client before it
	// is dropped; the client asks again.
	sendPatience = 5 * time.Second
	// stopPatience is how long a stopping server waits for operations in flight.
	stopPatience = 3 * time.Second
)

// request is a client's message with where it came from.
type request struct {
	message
	from   netip.AddrPort
	cookie rds.Cookie
}

// server serves one export at one socket. Its goroutines: receive takes
// requests, workers pread and start operations, complete takes what has
// settled, storers pwrite, the syncer fsyncs.
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
	stores   chan *operation // complete to storers; holds one per buffer, so it never blocks
}

// serveOptions are the sizes of a server.
type serveOptions struct {
	block   int // largest block, bytes
	buffers int
	workers int
}

// serve answers requests until ctx ends, then stops cleanly: what is in hand is
// finished, and all blocks confirmed are on stable storage.
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
	// What was received is finished, in the order it flows; a buffer that an
	// unreachable client holds is not waited for longer than stopPatience.
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

// receive takes requests until ctx ends (nil) or the socket fails.
func (s *server) receive(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { s.sock.SetReadDeadline(time.Unix(1, 0)) })()
	m := rds.Message{Payload: make([]byte, maxMessage)}
	for {
		if err := s.sock.RecvMsg(&m); err != nil {
			if ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) {
				return nil
			}
			return err
		}
		msg, err := parse(m.Payload[:m.N])
		if err == nil && m.Truncated {
			err = fmt.Errorf("%w: %d bytes", errMessage, m.Len)
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
	switch r.kind {
	case kindOpen, kindCommit:
		s.requests <- r
	case kindRead, kindWrite:
		if err := r.checkBlock(s.block); err != nil {
			s.fail(r, failf(statusBad, "%v: %v", r.kind, err))
			return
		}
		if r.cookie == 0 {
			s.fail(r, failf(statusBad, "%v without a cookie", r.kind))
			return
		}
		if !s.quota.charge(r.from) {
			s.fail(r, failf(statusBusy, "block %d: more than %d requests in hand", r.block, s.quota.limit))
			return
		}
		s.requests <- r
	default:
		s.log.Warn("answer without a request", "peer", r.from, "type", r.kind.String())
	}
}

// do carries out one request, up to the start of its operation.
func (s *server) do(ctx context.Context, r request) {
	switch r.kind {
	case kindOpen:
		s.open(r)
	case kindCommit:
		s.commit(r)
	case kindRead:
		s.read(ctx, r)
	case kindWrite:
		s.fetch(ctx, r)
	}
}

func (s *server) open(r request) {
	if r.flags&flagWrite != 0 {
		if f := s.export.begin(r.session); f != nil {
			s.fail(r, f)
			return
		}
	}
	size, f := s.export.size()
	if f != nil {
		s.fail(r, f)
		return
	}
	block := min(max(int(r.blockSize), minBlock), s.block)
	s.answer(r, &message{kind: kindOpened, id: r.id, session: r.session,
		block: uint64(size), blockSize: uint32(block), window: uint32(s.quota.limit)})
}

func (s *server) commit(r request) {
	if r.block > 1<<62 {
		s.fail(r, failf(statusBad, "size %d", r.block))
		return
	}
	if f := s.export.commit(r.session, int64(r.block)); f != nil {
		s.fail(r, f)
		return
	}
	s.answer(r, &message{kind: kindCommitted, id: r.id, session: r.session, block: r.block})
}

// fail answers r with what went wrong.
func (s *server) fail(r request, f *failure) {
	if !f.status.transient() {
		s.ops.countFailed()
		s.log.Warn("request failed", "peer", r.from, "type", r.kind.String(), "err", f)
	}
	s.answer(r, &message{kind: kindFailed, status: f.status, id: r.id, block: r.block, text: f.text})
}

// answer sends m to where r came from. A client that cannot be reached asks
// again, so a failure is only logged.
func (s *server) answer(r request, m *message) {
	if _, err := s.send(&rds.Message{Payload: m.append(nil), Addr: r.from}); err != nil {
		s.log.Warn("answer not sent", "peer", r.from, "type", m.kind.String(), "err", err)
	}
}

// send sends m; it waits a bounded time for room, so that a client that does
// not read cannot hold a worker for ever.
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

// stats are the counts so far.
func (s *server) stats() serveStats {
	st := s.ops.stats(s.sock.HWM)
	st.Fsyncs = s.syncer.count()
	return st
}
