package main

import (
	"context"
	"errors"
	"net/netip"
	"sync"

	"github.com/rdsd/rdsd/examples/blockstore/store"
	"github.com/rdsd/rdsd/rds"
)

// maxParked bounds the bytes of answers that wait for clients that do not read.
const maxParked = 64 << 20

// add makes the next flush send b to the client at to. b must not change before that.
func (o *outbox) add(to netip.AddrPort, b []byte) {
	o.ms = append(o.ms, rds.Message{Payload: b, Addr: to})
}

// flush sends the added answers. It parks those for congested clients.
func (o *outbox) flush() {
	for ms := o.ms; len(ms) > 0; {
		n, err := o.s.sock.SendBatch(rds.DontWait, ms)
		if ms = ms[n:]; err != nil && len(ms) > 0 {
			o.s.unsent(&ms[0], err)
			ms = ms[1:]
		}
	}
	o.ms = o.ms[:0]
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
	out := rds.Message{Payload: m.Append(make([]byte, 0, store.HeaderSize+len(m.Data))), Addr: r.from}
	if _, err := s.sock.Send(rds.DontWait, &out); err != nil {
		s.unsent(&out, err)
	}
}

// unsent parks an answer to a congested client.
func (s *server) unsent(m *rds.Message, err error) {
	if (errors.Is(err, rds.ErrCongested) || errors.Is(err, rds.ErrWouldBlock)) && s.parked.add(m) {
		return
	}
	s.log.Warn("answer not sent", "peer", m.Addr, "err", err)
}

// sendNow sends m if there is room.
func (s *server) sendNow(m *rds.Message) (id uint64, err error) { return s.sock.Send(rds.DontWait, m) }

// send sends m. It waits at most sendPatience for room, so that a client that does not
// read cannot keep a worker for ever.
func (s *server) send(m *rds.Message) (id uint64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), sendPatience)
	defer cancel()
	return s.sock.Send(ctx, m)
}

// parked holds the answers that wait for room, by client. Each client with parked answers
// has a goroutine that sends them. It is safe for concurrent use.
type parked struct {
	send func(*rds.Message) (uint64, error) // waits for a bounded time

	mu    sync.Mutex // guards the fields below
	queue map[netip.AddrPort][]rds.Message
	bytes int
	wg    sync.WaitGroup
}

func newParked(send func(*rds.Message) (uint64, error)) *parked {
	return &parked{send: send, queue: map[netip.AddrPort][]rds.Message{}}
}

// add parks a copy of m. It returns false if too many bytes are parked already.
func (p *parked) add(m *rds.Message) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bytes+len(m.Payload) > maxParked {
		return false
	}
	p.bytes += len(m.Payload)
	q, busy := p.queue[m.Addr]
	p.queue[m.Addr] = append(q, rds.Message{Payload: append([]byte(nil), m.Payload...), Addr: m.Addr})
	if !busy {
		p.wg.Go(func() { p.run(m.Addr) })
	}
	return true
}

// run sends the parked answers of one client. If an answer cannot be sent in time, run
// drops it and the client's other answers.
func (p *parked) run(to netip.AddrPort) {
	var err error
	for {
		p.mu.Lock()
		q := p.queue[to]
		if len(q) == 0 {
			delete(p.queue, to)
			p.mu.Unlock()
			return
		}
		p.queue[to] = []rds.Message{}
		p.mu.Unlock()
		for i := range q {
			if err == nil {
				_, err = p.send(&q[i])
			}
			p.mu.Lock()
			p.bytes -= len(q[i].Payload)
			p.mu.Unlock()
		}
	}
}

// close returns when no answer is parked any more.
func (p *parked) close() { p.wg.Wait() }
