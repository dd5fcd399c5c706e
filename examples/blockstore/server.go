package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
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
	// batch is how many requests a server receives, and answers, at a time.
	batch = 32
	// sendBuffer is the size of the socket's send buffer, which the answers to all clients
	// share.
	sendBuffer = 8 << 20
)

// request is a client's message with the client's address and cookie.
type request struct {
	store.Message
	from   netip.AddrPort
	cookie rds.Cookie
	pushed []byte // the bytes of a pushed WRITE, in the inbox
}

// server serves one export at one socket. The receiving goroutine takes requests and
// statuses, and answers the requests that need no wait for storage. Workers carry out the
// others. The syncer calls fsync.
type server struct {
	sock   *rds.Socket
	export *export
	log    *slog.Logger
	serveOptions

	lender   *lender
	inbox    *inbox
	syncer   *syncer
	quota    *quota
	ops      *operations
	parked   *parked
	out      outbox       // only the receiving goroutine uses it
	requests chan request // from the receiving goroutine to the workers
}

// serveOptions are the sizes of a server.
type serveOptions struct {
	block   int // largest block, bytes
	small   int // largest block whose bytes are in a message
	buffers int
	workers int
	keep    time.Duration // how long a writer keeps granted buffers without a push
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
	if err := sock.SetSndBuf(sendBuffer); err != nil {
		return serveStats{}, err
	}
	window := max(1, o.buffers/2)
	s := &server{
		sock: sock, export: e, log: log, serveOptions: o,
		lender: newLender(buffers, sock.HWM, sock.Barrier), inbox: newInbox(c, sock, o.block, window, o.keep, log),
		quota: newQuota(window), ops: newOperations(), requests: make(chan request, o.buffers),
	}
	s.parked = newParked(s.send)
	s.out = newOutbox(s)
	s.syncer = newSyncer(e.file.Sync, s.confirm)

	work, stopWork := context.WithCancel(context.Background())
	defer stopWork()
	var workers sync.WaitGroup
	for range o.workers {
		workers.Go(func() {
			for r := range s.requests {
				s.do(work, r)
			}
		})
	}
	err := s.receive(ctx)
	// Finish the received requests stage by stage. A worker may wait for a buffer that
	// an operation to an unreachable client has: stopPatience limits that.
	limit := time.AfterFunc(stopPatience, stopWork)
	close(s.requests)
	workers.Wait()
	limit.Stop()
	if err == nil {
		s.drain()
	}
	s.syncer.close()
	s.parked.close()
	s.inbox.close()
	s.lender.stop()
	return s.stats(), err
}

// receive takes requests and statuses until ctx ends (nil) or the socket fails.
func (s *server) receive(ctx context.Context) error {
	ms := make([]rds.Received, batch)
	for i := range ms {
		ms[i] = rds.Received{Payload: make([]byte, store.HeaderSize+s.small)}
	}
	for {
		ready, err := s.sock.Wait(ctx, rds.WaitSet{Message: true, Completion: true})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if ready.Completion {
			s.statuses()
		}
		n := 0
		if ready.Message {
			if n, err = s.sock.RecvBatch(rds.DontWait, ms); err != nil && !errors.Is(err, rds.ErrWouldBlock) {
				return err
			}
		}
		for i := range ms[:n] {
			s.take(&ms[i])
		}
		s.out.flush()
	}
}

// take checks the form of a message and accepts the request in it.
func (s *server) take(m *rds.Received) {
	msg, err := store.Parse(m.Payload[:m.N])
	if m.N < m.Len {
		err = fmt.Errorf("%w: %d bytes", store.ErrMessage, m.Len)
	}
	if err != nil {
		s.log.Warn("message refused", "peer", m.Addr, "err", err)
		return
	}
	s.accept(request{Message: msg, from: m.Addr, cookie: m.Cookie})
}

// accept checks a request, and answers it or queues it.
func (s *server) accept(r request) {
	switch r.Kind {
	case store.KindRead, store.KindWrite, store.KindZero, store.KindMap:
		if err := r.CheckBlock(s.block); err != nil {
			s.fail(r, store.Failf(store.StatusBad, "%v: %v", r.Kind, err))
			return
		}
	case store.KindOpen, store.KindCommit, store.KindFlush, store.KindGrant:
	default:
		s.log.Warn("answer without a request", "peer", r.from, "type", r.Kind.String())
		return
	}
	if (r.Kind == store.KindRead || r.Kind == store.KindMap) && r.Session != 0 && r.Session != s.export.session.Load() {
		// Writes of the session may be lost, and its reads must not return older bytes.
		s.fail(r, store.Failf(store.StatusStale, "%v of a session that is over", r.Kind))
		return
	}
	small := r.Kind == store.KindRead && r.cookie == 0 || r.Kind == store.KindWrite && r.Flags&store.FlagPushed == 0
	if small && int(r.Length) > s.small {
		s.fail(r, store.Failf(store.StatusBad, "%v of %d bytes in a message, at most %d", r.Kind, r.Length, s.small))
		return
	}
	if r.Kind == store.KindWrite && !small {
		if f := s.inbox.begin(&r); f != nil {
			s.fail(r, f)
			return
		}
	}
	if s.atOnce(r) {
		return
	}
	if !s.quota.charge(r.from) {
		s.inbox.end(&r)
		s.fail(r, store.Failf(store.StatusBusy, "block %d: more than %d requests in hand", r.Block, s.quota.limit))
		return
	}
	r.Data = slices.Clone(r.Data) // the receiving goroutine reuses its memory
	s.requests <- r
}

// do carries out a queued request, up to the start of its operation.
func (s *server) do(ctx context.Context, r request) {
	switch r.Kind {
	case store.KindRead:
		if r.cookie != 0 {
			s.pushBlock(ctx, r)
			return
		}
		s.readSmall(r)
	case store.KindWrite:
		s.write(r)
	case store.KindOpen:
		s.open(r)
	case store.KindCommit:
		s.commit(r)
	case store.KindGrant:
		s.grant(ctx, r)
	case store.KindZero:
		s.stored(r, s.export.zero(&r.Message))
	case store.KindFlush:
		s.flush(r, s.export.check(r.Session))
	case store.KindMap:
		s.mapped(r)
	}
	s.quota.uncharge(r.from)
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
	s.answer(r, &store.Message{Kind: store.KindOpened, ID: r.ID, Session: r.Session, Block: uint64(size),
		BlockSize: uint32(block), Length: uint32(s.small), Window: uint32(s.quota.limit)})
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

// grant gives the writer buffers to push into.
func (s *server) grant(ctx context.Context, r request) {
	f := s.export.check(r.Session)
	var m store.Message
	var cookie rds.Cookie
	if f == nil {
		m, cookie, f = s.inbox.grant(ctx, r.Session)
	}
	if f != nil {
		s.fail(r, f)
		return
	}
	m.ID = r.ID
	if _, err := s.send(&rds.Message{Payload: m.Append(nil), Addr: r.from, Cookie: cookie}); err != nil {
		s.log.Warn("answer not sent", "peer", r.from, "type", m.Kind.String(), "err", err)
	}
}

// stats returns the counts so far.
func (s *server) stats() serveStats {
	st := s.ops.stats(s.sock.HWM)
	st.Fsyncs = s.syncer.count()
	return st
}
