package loadgen

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/internal/loadgen/proto"
	"github.com/rdsd/rdsd/rds"
)

// work is one socket's part of the measurement. It ends when nothing more is sent and
// everything sent has been answered, or when stop is closed.
func (r *run) work(i int, stop <-chan struct{}) error {
	if r.p.Mode.RDMA() {
		return r.operations(i, stop)
	}
	s := r.socks[i]
	// At stop, or at the end of the measurement, calls that wait for a message have to end.
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-stop:
		case <-r.all.Done():
		case <-over:
			return
		}
		_ = s.SetDeadline(time.Now())
	}()
	var err error
	switch {
	case r.p.Mode == proto.RTT && !r.pace(i).open():
		err = r.trips(i)
	default:
		err = r.stream(i)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || r.all.Err() != nil {
		return nil
	}
	return err
}

// prepare makes message seq.
func (r *run) prepare(m *rds.Message, i int, seq uint64) {
	m.Addr = r.to[i]
	if r.p.Verify {
		proto.Fill(m.Payload, seq)
	}
}

// verifyEcho looks at the answer to message seq.
func (r *run) verifyEcho(i int, m *rds.Message, seq uint64) error {
	if m.Addr != r.to[i] || m.Len != r.p.Size {
		return fmt.Errorf("socket %d: an answer of %d bytes from %v, want %d from %v", i, m.Len, m.Addr, r.p.Size, r.to[i])
	}
	if !r.p.Verify {
		return nil
	}
	b := m.Payload[:m.N]
	if r.env.corrupt != nil {
		r.env.corrupt(b)
	}
	if err := proto.Check(b, seq); err != nil {
		return fmt.Errorf("socket %d, answers: %w", i, err)
	}
	return nil
}

// trips measures round trips in closed loop: one goroutine keeps Depth of them in progress.
func (r *run) trips(i int) error {
	s := r.socks[i]
	out := messages(1, r.p.Size)
	in := messages(batchOf(r.p.Size, r.p.Depth), r.p.Size)
	begun := make([]time.Time, r.p.Depth)
	var sent, got uint64
	depth := uint64(r.p.Depth)
	for {
		for sent-got < depth && r.sending.Err() == nil {
			r.prepare(&out[0], i, sent)
			begun[sent%depth] = time.Now()
			if _, err := s.SendMsg(&out[0]); err != nil {
				return err
			}
			sent++
			r.sent.Add(1)
		}
		if sent == got {
			return nil
		}
		n, err := s.RecvMsgs(in)
		now := time.Now()
		for k := range n {
			if err := r.verifyEcho(i, &in[k], got); err != nil {
				return err
			}
			r.rec.latency(now.Sub(begun[got%depth]))
			got++
		}
		r.rec.done(uint64(n), uint64(n*r.p.Size))
		if err != nil {
			return err
		}
	}
}

// stream sends in one goroutine and takes answers in another: round trips in open loop, and
// messages one way.
func (r *run) stream(i int) error {
	st := &stream{r: r, i: i, s: r.socks[i], pace: r.pace(i), every: 1}
	if r.p.Mode == proto.Rate {
		st.every = uint64(r.hello.Sample)
		st.begun = make(chan time.Time, 64<<10) // far more than can be outstanding
	}
	var sender sync.WaitGroup
	var sendErr error
	sender.Go(func() {
		sendErr = st.send()
		st.ended.Store(true)
		// The receiver may wait although no answer is outstanding.
		if st.sent.Load()/st.every == st.answered.Load() {
			_ = st.s.SetReadDeadline(time.Now())
		}
	})
	err := st.receive()
	if err != nil {
		r.stopSend()
		_ = st.s.SetDeadline(time.Now())
	}
	sender.Wait()
	return errors.Join(err, sendErr)
}

// stream is one socket's messages and answers.
type stream struct {
	r              *run
	i              int
	s              *rds.Socket
	pace           pace
	every          uint64 // messages for each answer
	begun          chan time.Time
	sent, answered atomic.Uint64
	ended          atomic.Bool
}

func (st *stream) send() error {
	r := st.r
	most := batchOf(r.p.Size, r.p.Depth)
	ms := messages(most, r.p.Size)
	for seq := uint64(0); r.sending.Err() == nil; {
		n := most
		if st.pace.open() {
			if n = st.pace.wait(r.sending, seq, most); n == 0 {
				return nil
			}
			r.rec.lateness(time.Since(st.pace.due(seq)))
		}
		now := time.Now()
		for k := range n {
			r.prepare(&ms[k], st.i, seq+uint64(k))
			if st.begun != nil && (seq+uint64(k)+1)%st.every == 0 {
				if st.pace.open() {
					now = st.pace.due(seq + uint64(k))
				}
				st.begun <- now
			}
		}
		n, err := st.s.SendMsgs(ms[:n])
		seq += uint64(n)
		st.sent.Store(seq)
		r.sent.Add(uint64(n))
		if err != nil {
			return err
		}
	}
	return nil
}

func (st *stream) receive() error {
	r := st.r
	size := r.p.Size
	if r.p.Mode == proto.Rate {
		size = 8
	}
	in := messages(batchOf(size, 64), size)
	for {
		if st.ended.Load() && st.answered.Load() == st.sent.Load()/st.every {
			return nil
		}
		n, err := st.s.RecvMsgs(in)
		now := time.Now()
		for k := range n {
			if err := st.answer(&in[k], now); err != nil {
				return err
			}
		}
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) && st.ended.Load() {
				if st.answered.Load() != st.sent.Load()/st.every && r.all.Err() == nil {
					return fmt.Errorf("socket %d: %d answers of %d", st.i, st.answered.Load(), st.sent.Load()/st.every)
				}
				return nil
			}
			return err
		}
		r.rec.done(uint64(n)*st.every, uint64(n)*st.every*uint64(r.p.Size))
	}
}

// answer takes one answer.
func (st *stream) answer(m *rds.Message, now time.Time) error {
	r := st.r
	seq := st.answered.Load()
	if r.p.Mode == proto.RTT {
		if err := r.verifyEcho(st.i, m, seq); err != nil {
			return err
		}
		r.rec.latency(now.Sub(st.pace.due(seq)))
	} else {
		if m.Len != 8 || m.Addr != r.to[st.i] || binary.BigEndian.Uint64(m.Payload) != (seq+1)*st.every {
			return fmt.Errorf("socket %d: not the server's answer to message %d", st.i, (seq+1)*st.every)
		}
		r.rec.latency(now.Sub(<-st.begun))
	}
	st.answered.Add(1)
	return nil
}
