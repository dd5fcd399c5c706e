package main

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/rdsd/rdsd/examples/blockstore/store"
	"github.com/rdsd/rdsd/rds"
)

// read serves a READ: a pread, then an RDMA write whose message is DONE.
func (s *server) read(ctx context.Context, r request) {
	buf := s.lender.take(ctx)
	if buf == nil {
		s.quota.uncharge(r.from)
		return
	}
	p := buf.Bytes()[:r.Length]
	if f := s.export.read(p, &r.Message); f != nil {
		s.lender.put(buf)
		s.quota.uncharge(r.from)
		s.fail(r, f)
		return
	}
	s.start(&operation{r, rds.Write, buf}, &store.Message{Kind: store.KindDone, ID: r.ID,
		Block: r.Block, BlockSize: r.BlockSize, Length: r.Length, CRC: store.Checksum(p)})
}

// fetch serves the first half of a WRITE: an RDMA read. If the client has set
// FlagTellFetched, the read's message FETCHED says that the client's buffer is free.
func (s *server) fetch(ctx context.Context, r request) {
	f := s.export.check(r.Session)
	var buf *rds.Buffer
	if f == nil {
		buf = s.lender.take(ctx)
	}
	if buf == nil {
		s.quota.uncharge(r.from)
		if f != nil {
			s.fail(r, f)
		}
		return
	}
	s.start(&operation{r, rds.Read, buf}, &store.Message{Kind: store.KindFetched, ID: r.ID, Block: r.Block})
}

// start submits op with its message.
func (s *server) start(op *operation, imm *store.Message) {
	token := s.ops.add(op)
	silent := op.kind == rds.Read && op.Flags&store.FlagTellFetched == 0
	var payload []byte
	if !silent {
		payload = imm.Append(nil)
	}
	id, err := s.send(&rds.Message{
		Payload: payload,
		Addr:    op.from,
		Op: &rds.RDMA{
			Kind:   op.kind,
			Cookie: op.cookie,
			Local:  []rds.Segment{{Buf: op.buf, Len: int(op.Length)}},
			Token:  token,
			Notify: true,
			Silent: silent,
		},
	})
	if err != nil {
		s.ops.take(token)
		s.lender.put(op.buf)
		s.quota.uncharge(op.from)
		s.fail(op.request, store.Failf(store.StatusRetry, "block %d: %v", op.Block, err))
		return
	}
	s.ops.started(op, id)
	if op.kind == rds.Write {
		s.lender.lend(op.from.Addr(), id, op.buf)
	}
}

// complete takes the statuses of operations until ctx ends or the socket fails.
func (s *server) complete(ctx context.Context) {
	var done [64]rds.Completion
	for {
		for n := s.sock.Completions(done[:]); n > 0; n = s.sock.Completions(done[:]) {
			for _, c := range done[:n] {
				if op := s.ops.take(c.Token); op != nil {
					s.ops.count(c.Status)
					s.settled(op, c)
				}
			}
		}
		if _, err := s.sock.Wait(ctx, rds.WaitSet{Completion: true}); err != nil {
			return
		}
	}
}

// settled goes on with an operation whose status is known. After a successful RDMA read
// the buffer holds the block. The buffer of any other operation stays lent until the
// high-water mark has reached the operation's id.
func (s *server) settled(op *operation, c rds.Completion) {
	if c.Status == rds.Success && op.kind == rds.Read {
		s.stores <- op
		return
	}
	if op.kind == rds.Read {
		s.lender.lend(c.To, c.ID, op.buf)
	}
	s.quota.uncharge(op.from)
	switch c.Status {
	case rds.Success:
	case rds.Dropped, rds.Unknown, rds.Canceled:
		s.fail(op.request, store.Failf(store.StatusRetry, "block %d: %v", op.Block, c.Err()))
	default:
		s.fail(op.request, store.Failf(store.StatusRefused, "block %d: %v", op.Block, c.Err()))
	}
}

// store serves the second half of a WRITE: it checks the checksum, pwrites the block and
// answers or leaves the answer to the syncer.
func (s *server) store(op *operation) {
	p := op.buf.Bytes()[:op.Length]
	var f *store.Failure
	if crc := store.Checksum(p); crc != op.CRC {
		f = store.Failf(store.StatusChecksum, "block %d: checksum %08x arrived, %08x announced", op.Block, crc, op.CRC)
	} else {
		f = s.export.write(p, &op.Message)
	}
	s.lender.put(op.buf)
	s.quota.uncharge(op.from)
	if f != nil {
		s.fail(op.request, f)
		return
	}
	s.stored(op.request)
}

// zero serves a ZERO.
func (s *server) zero(r request) {
	f := s.export.zero(&r.Message)
	s.quota.uncharge(r.from)
	if f != nil {
		s.fail(r, f)
		return
	}
	s.stored(r)
}

// flush serves a FLUSH. The next fsync covers everything that was written before.
func (s *server) flush(r request) {
	f := s.export.check(r.Session)
	s.quota.uncharge(r.from)
	if f != nil {
		s.fail(r, f)
		return
	}
	s.syncer.add(written{r.from, r.ID, r.Block})
}

// stored answers a WRITE or ZERO that is in the file: at once if the request has
// FlagUnsynced, else after an fsync.
func (s *server) stored(r request) {
	if r.Flags&store.FlagUnsynced != 0 {
		s.answer(r, &store.Message{Kind: store.KindWritten, ID: r.ID, Block: r.Block})
		return
	}
	s.syncer.add(written{r.from, r.ID, r.Block})
}

// confirm answers the requests of a group with DURABLE, or with FAILED if the fsync failed.
func (s *server) confirm(group []written, err error) {
	if err != nil {
		for _, w := range group {
			r := request{Message: store.Message{Kind: store.KindWrite, ID: w.id, Block: w.block}, from: w.to}
			s.fail(r, writeFailure(fmt.Sprintf("block %d: fsync", w.block), err))
		}
		return
	}
	for to, requests := range byClient(group) {
		for len(requests) > 0 {
			n := min(len(requests), 1+store.MaxMore)
			s.answer(request{from: to}, &store.Message{Kind: store.KindDurable, ID: requests[0], More: requests[1:n]})
			requests = requests[n:]
		}
	}
}

// byClient returns the request numbers of a group for each client.
func byClient(group []written) map[netip.AddrPort][]uint64 {
	m := map[netip.AddrPort][]uint64{}
	for _, w := range group {
		m[w.to] = append(m[w.to], w.id)
	}
	return m
}
