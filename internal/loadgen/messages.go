package loadgen

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/rds"
)

// batchBytes is how much memory a loop uses for messages.
const batchBytes = 256 << 10

// batchOf is how many messages of size are handled at a time.
func batchOf(size, most int) int { return max(1, min(most, 64, batchBytes/max(size, 1))) }

// Room makes room for as many messages of up to size bytes as a loop receives at a time.
func Room(size int) []rds.Received {
	ms := make([]rds.Received, batchOf(size, 64))
	for i := range ms {
		ms[i].Payload = make([]byte, size)
	}
	return ms
}

// messages makes n messages, each with its own buffer.
func messages(n, size int) []rds.Message {
	ms := make([]rds.Message, n)
	for i := range ms {
		ms[i].Payload = make([]byte, size)
	}
	return ms
}

// batch is messages that are sent together.
type batch struct {
	sock  *rds.Socket
	all   []rds.Message
	ready []rds.Message // those of all that are prepared and not sent
}

// next prepares n messages to a destination.
func (b *batch) next(n int, to netip.AddrPort) []rds.Message {
	b.ready = b.all[:n]
	for k := range b.ready {
		b.ready[k].Addr = to
	}
	return b.ready
}

// send sends what is prepared. It returns how many messages it sent.
func (b *batch) send() (uint64, error) {
	n, err := b.sock.SendBatch(rds.DontWait, b.ready)
	b.ready = b.ready[n:]
	return uint64(n), err
}

// A count is a message that only has a number: that of a verified write, or of the last
// message that an answer is for.
const countSize = 8

func putCount(b []byte, n uint64) { binary.BigEndian.PutUint64(b, n) }

// isCount reports whether m is the count n.
func isCount(m *rds.Received, n uint64) bool {
	return m.Len == countSize && binary.BigEndian.Uint64(m.Payload) == n
}

// maxAnswers is how many answers to one socket may be outstanding where the depth does not
// limit them.
const maxAnswers = 16 << 10

// stream is one socket's messages and their answers: of round trips, and of messages one way.
type stream struct {
	r              *run
	i              int
	to             netip.AddrPort
	out            batch
	pace           pace
	every          uint64      // messages for each answer
	begun          []time.Time // ring, by answer: when its message was sent, or was due
	sent, answered uint64
}

func (r *run) stream(i int) *Loop {
	st := &stream{r: r, i: i, to: r.to[i], pace: r.pace(i), every: 1, begun: make([]time.Time, maxAnswers)}
	st.out = batch{sock: r.socks[i], all: messages(batchOf(r.p.Size, r.p.Depth), r.p.Size)}
	size := r.p.Size
	switch {
	case r.p.Mode == Rate:
		st.every, size = uint64(r.hello.Sample), countSize
	case !st.pace.open():
		st.begun = st.begun[:r.p.Depth]
	}
	return &Loop{Sock: r.socks[i], Flows: []Flow{{To: st.to, Send: st.send}}, In: Room(size),
		Take: st.take, Due: st.due, Idle: func() bool { return st.answered == st.sent/st.every }}
}

// may is how many messages may be sent at a time.
func (st *stream) may(now time.Time) int {
	room := (uint64(len(st.begun))+st.answered)*st.every - st.sent
	n := min(len(st.out.all), int(room))
	if st.pace.open() {
		n = min(n, st.pace.behind(now, st.sent))
	}
	return n
}

// due is when the next message is due.
func (st *stream) due() time.Time {
	if !st.pace.open() || st.sent-st.answered*st.every >= uint64(len(st.begun))*st.every {
		return time.Time{}
	}
	return st.pace.due(st.sent)
}

func (st *stream) send() error {
	if len(st.out.ready) == 0 {
		now := time.Now()
		n := st.may(now)
		if n == 0 {
			return nil
		}
		st.prepare(n, now)
	}
	n, err := st.out.send()
	st.sent += n
	st.r.sent.Add(n)
	if err == nil && st.may(time.Now()) > 0 {
		return ErrMore
	}
	return err
}

func (st *stream) prepare(n int, now time.Time) {
	if st.pace.open() {
		st.r.rec.lateness(now.Sub(st.pace.due(st.sent)))
	}
	ms := st.out.next(n, st.to)
	for k := range ms {
		seq := st.sent + uint64(k)
		if st.r.p.Verify {
			fill(ms[k].Payload, seq)
		}
		if (seq+1)%st.every == 0 {
			if st.pace.open() {
				now = st.pace.due(seq)
			}
			st.begun[seq/st.every%uint64(len(st.begun))] = now
		}
	}
}

// take takes one answer.
func (st *stream) take(m *rds.Received, now time.Time) error {
	r, seq := st.r, st.answered
	if m.Addr != st.to || seq == st.sent/st.every {
		return fmt.Errorf("socket %d: an answer of %d bytes from %v, and none is due", st.i, m.Len, m.Addr)
	}
	if r.p.Mode == Rate {
		if n := (seq + 1) * st.every; !isCount(m, n) {
			return fmt.Errorf("socket %d: not the server's answer to message %d", st.i, n)
		}
	} else if err := r.env.checked(m, r.p.Size, seq, r.p.Verify); err != nil {
		return fmt.Errorf("socket %d, answers: %w", st.i, err)
	}
	st.answered++
	r.rec.done(now.Sub(st.begun[seq%uint64(len(st.begun))]), st.every, st.every*uint64(r.p.Size))
	return nil
}

// checked returns an error if m is not message seq of size bytes.
func (e *Env) checked(m *rds.Received, size int, seq uint64, verify bool) error {
	switch {
	case m.Len != size:
		return fmt.Errorf("message %d has %d bytes, want %d", seq, m.Len, size)
	case verify:
		return e.compared(m.Payload[:m.N], seq)
	}
	return nil
}

// compared returns an error if b has not the pattern of seq.
func (e *Env) compared(b []byte, seq uint64) error {
	if e.corrupt != nil {
		e.corrupt(b)
	}
	return compare(b, seq)
}
