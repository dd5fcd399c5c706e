package main

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/rdsd/rdsd/examples/blockstore/store"
	"github.com/rdsd/rdsd/rds"
)

// pushBlock carries out a large READ. It reads the block into a buffer and submits an RDMA
// write whose immediate data is DONE.
func (s *server) pushBlock(ctx context.Context, r request) {
	buf := s.lender.take(ctx)
	if buf == nil {
		s.quota.uncharge(r.from)
		return
	}
	if f := s.export.read(buf.Bytes()[:r.Length], &r.Message); f != nil {
		s.lender.put(buf)
		s.quota.uncharge(r.from)
		s.fail(r, f)
		return
	}
	s.start(&operation{r, buf})
}

// pushBlockNow does what pushBlock does if a buffer is free, the bytes are in the page cache,
// and the client is not congested. Otherwise it returns false.
func (s *server) pushBlockNow(r request) bool {
	buf := s.lender.tryTake()
	if buf == nil {
		return false
	}
	if s.export.readNow(buf.Bytes()[:r.Length], r.Offset()) && s.quota.charge(r.from) {
		if s.submit(&operation{r, buf}, s.sendNow) == nil {
			return true
		}
		s.quota.uncharge(r.from)
	}
	s.lender.put(buf)
	return false
}

// start submits op, or answers that this is not possible. The client stays charged for op
// until op's status is known.
func (s *server) start(op *operation) {
	if err := s.submit(op, s.send); err != nil {
		s.lender.put(op.buf)
		s.quota.uncharge(op.from)
		s.fail(op.request, store.Failf(store.StatusRetry, "block %d: %v", op.Block, err))
	}
}

// submit sends op and lends its buffer, which has the block.
func (s *server) submit(op *operation, send func(*rds.Message) (uint64, error)) error {
	token := s.ops.add(op)
	id, err := send(&rds.Message{
		Payload: done(&op.request, op.buf.Bytes()[:op.Length]).Append(make([]byte, 0, store.HeaderSize)),
		Addr:    op.from,
		Op: &rds.RDMA{
			Write: true, Cookie: op.cookie, Local: []rds.Segment{{Buf: op.buf, Len: int(op.Length)}},
			Token: token, Notify: true,
		},
	})
	if err != nil {
		s.ops.take(token)
		return err
	}
	s.ops.started(op, id)
	s.lender.lend(op.from.Addr(), id, op.buf)
	return nil
}

// statuses takes the statuses of operations that have settled.
func (s *server) statuses() {
	var all [64]rds.Completion
	for n := s.sock.Completions(all[:]); n > 0; n = s.sock.Completions(all[:]) {
		for _, c := range all[:n] {
			if op := s.ops.take(c.Token); op != nil {
				s.ops.count(c.Status)
				s.settled(op, c)
			}
		}
	}
}

// settled ends a request whose operation's status is known.
func (s *server) settled(op *operation, c rds.Completion) {
	s.quota.uncharge(op.from)
	switch c.Status {
	case rds.Success:
	case rds.Dropped, rds.Unknown, rds.Canceled:
		s.fail(op.request, store.Failf(store.StatusRetry, "block %d: %v", op.Block, c.Err()))
	default:
		s.fail(op.request, store.Failf(store.StatusRefused, "block %d: %v", op.Block, c.Err()))
	}
}

// drain waits until all operations have settled, at most for stopPatience.
func (s *server) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	for s.statuses(); s.ops.flies(); s.statuses() {
		if _, err := s.sock.Wait(ctx, rds.WaitSet{Completion: true}); err != nil {
			return
		}
	}
}

// flush lets the next fsync answer a FLUSH. If f is not nil, the FLUSH has failed.
func (s *server) flush(r request, f *store.Failure) {
	if f != nil {
		s.fail(r, f)
		return
	}
	s.sync(r)
}

// sync lets the next fsync answer r.
func (s *server) sync(r request) {
	if !s.syncer.add(written{r.from, r.ID, r.Block, r.Session}) {
		s.fail(r, store.Failf(store.StatusRetry, "block %d: %d requests wait for an fsync already", r.Block, maxPending))
	}
}

// stored answers a WRITE or ZERO that is in the file, at once or after an fsync. If f is not
// nil, the request has failed.
func (s *server) stored(r request, f *store.Failure) {
	if f == nil && r.Kind == store.KindWrite {
		s.ops.countWrite()
	}
	switch {
	case f != nil:
		s.fail(r, f)
	case r.Flags&store.FlagUnsynced != 0:
		s.answer(r, &store.Message{Kind: store.KindWritten, ID: r.ID, Block: r.Block})
	default:
		s.sync(r)
	}
}

// confirm answers the requests of a group after its fsync. Requests of one client
// share an answer. A request whose session has ended fails, because the fsync before may
// have failed while the request waited: then this fsync does not cover what was lost.
func (s *server) confirm(group []written, err error) {
	if err != nil {
		s.export.lost()
		for _, w := range group {
			r := request{Message: store.Message{Kind: store.KindWrite, ID: w.id, Block: w.block}, from: w.to}
			s.fail(r, writeFailure(fmt.Sprintf("block %d: fsync", w.block), err))
		}
		return
	}
	session := s.export.session.Load()
	for _, w := range group {
		if w.session != session {
			r := request{Message: store.Message{Kind: store.KindWrite, ID: w.id, Block: w.block}, from: w.to}
			s.fail(r, store.Failf(store.StatusStale, "block %d: its session is over", w.block))
		}
	}
	for to, requests := range byClient(group, session) {
		for len(requests) > 0 {
			n := min(len(requests), 1+store.MaxMore)
			s.answer(request{from: to}, &store.Message{Kind: store.KindDurable, ID: requests[0], More: requests[1:n]})
			requests = requests[n:]
		}
	}
}

// byClient returns the request numbers of a session in a group, for each client.
func byClient(group []written, session uint64) map[netip.AddrPort][]uint64 {
	m := map[netip.AddrPort][]uint64{}
	for _, w := range group {
		if w.session == session {
			m[w.to] = append(m[w.to], w.id)
		}
	}
	return m
}
