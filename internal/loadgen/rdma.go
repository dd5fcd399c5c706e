package loadgen

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/rdsd/rdsd/internal/loadgen/proto"
	"github.com/rdsd/rdsd/rds"
)

// opLoop keeps operations of one socket in progress. A verified write is followed by a
// message. Its slot is free when the server, which checks the slot, has answered that
// message.
type opLoop struct {
	r     *run
	i     int
	s     *rds.Socket
	buf   *rds.Buffer
	local [1]rds.Segment
	op    rds.RDMA
	note  [writeNotice]byte

	free  []uint32    // slots
	waits []uint8     // by slot: how many completions and answers are missing until it is free
	begun []time.Time // by slot
	order []uint32    // slots whose answer is missing, in order
	in    rds.Message
	done  []rds.Completion
	wait  rds.WaitSet // what the next send waits for
}

// operations is one socket's part of an RDMA measurement.
func (r *run) operations(i int, stop <-chan struct{}) error {
	l := &opLoop{r: r, i: i, s: r.socks[i], waits: make([]uint8, r.p.Depth), begun: make([]time.Time, r.p.Depth), done: make([]rds.Completion, min(r.p.Depth, 64))}
	var err error
	if l.buf, err = r.client.Alloc(r.p.Depth * r.p.Size); err != nil {
		return fmt.Errorf("%d bytes of RDMA memory: %w", r.p.Depth*r.p.Size, err)
	}
	for slot := range r.p.Depth {
		l.free = append(l.free, uint32(slot))
	}
	l.op = rds.RDMA{Kind: rds.Read, Cookie: r.cookie, Local: l.local[:], Notify: true, Silent: true}
	if r.p.Mode == proto.RDMAWrite {
		l.op.Kind, l.op.Silent = rds.Write, !r.p.Verify
	}
	l.in = rds.Message{Payload: make([]byte, writeNotice), DontWait: true}
	ctx, cancel := context.WithCancel(r.all)
	defer cancel()
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err = l.run(ctx); ctx.Err() != nil {
		return nil
	}
	return err
}

func (l *opLoop) run(ctx context.Context) error {
	r := l.r
	p := r.pace(l.i)
	for seq := uint64(0); ; {
		for len(l.free) > 0 && r.sending.Err() == nil {
			begin := time.Now()
			if p.open() {
				due := p.due(seq)
				if due.After(begin) {
					break
				}
				r.rec.lateness(begin.Sub(due))
				begin = due
			}
			err := l.post(seq, begin)
			if l.putOff(err) {
				break
			}
			if err != nil {
				return err
			}
			seq++
		}
		idle := len(l.free) == r.p.Depth
		if idle && r.sending.Err() != nil {
			return nil
		}
		if idle && p.open() {
			p.wait(r.sending, seq, 1)
			continue
		}
		if err := l.collect(ctx, p, seq); err != nil {
			return err
		}
	}
}

// putOff notes what to wait for if err says that a send would have blocked.
func (l *opLoop) putOff(err error) bool {
	l.wait = rds.WaitSet{Completion: true}
	switch {
	case errors.Is(err, rds.ErrCompletionsFull):
	case errors.Is(err, rds.ErrCongested):
		l.wait.Relief = l.r.to[l.i : l.i+1]
	case errors.Is(err, rds.ErrWouldBlock):
		l.wait.SendSpace = true
	default:
		return false
	}
	return true
}

// post begins operation seq. begin is when it began, or was due.
func (l *opLoop) post(seq uint64, begin time.Time) error {
	r := l.r
	slot := l.free[len(l.free)-1]
	off := int(slot) * r.p.Size
	l.local[0] = rds.Segment{Buf: l.buf, Off: off, Len: r.p.Size}
	l.op.RemoteOff = uint64(l.i*r.p.Depth)*uint64(r.p.Size) + uint64(off)
	l.op.Token = uint64(slot)
	m := rds.Message{Addr: r.to[l.i], Op: &l.op, DontWait: true}
	answered := r.p.Verify && r.p.Mode == proto.RDMAWrite
	if answered {
		proto.Fill(l.buf.Bytes()[off:off+r.p.Size], seq)
		binary.BigEndian.PutUint64(l.note[:], seq)
		binary.BigEndian.PutUint64(l.note[8:], uint64(slot))
		m.Payload = l.note[:]
	} else if r.p.Verify {
		clear(l.buf.Bytes()[off : off+r.p.Size])
	}
	if _, err := l.s.SendMsg(&m); err != nil {
		return err
	}
	l.free = l.free[:len(l.free)-1]
	l.begun[slot], l.waits[slot] = begin, 1
	if answered {
		l.waits[slot]++
		l.order = append(l.order, slot)
		r.sent.Add(1)
	}
	return nil
}

// collect waits for operations to end, or until the next one is due.
func (l *opLoop) collect(ctx context.Context, p pace, seq uint64) error {
	waiting := ctx
	if p.open() && len(l.free) > 0 && l.r.sending.Err() == nil {
		var cancel context.CancelFunc
		waiting, cancel = context.WithDeadline(ctx, p.due(seq))
		defer cancel()
	}
	l.wait.Completion, l.wait.Message = true, len(l.order) > 0
	_, err := l.s.Wait(waiting, l.wait)
	if err != nil && !(errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil) {
		return err
	}
	now := time.Now()
	n := l.s.Completions(l.done)
	for k := range l.done[:n] {
		if err := l.completed(&l.done[k], now); err != nil {
			return err
		}
	}
	l.r.rec.done(uint64(n), uint64(n*l.r.p.Size))
	for len(l.order) > 0 {
		if err := l.s.RecvMsg(&l.in); errors.Is(err, rds.ErrWouldBlock) {
			break
		} else if err != nil {
			return err
		}
		slot := l.order[0]
		if l.in.Addr != l.r.to[l.i] || l.in.Len != writeNotice || binary.BigEndian.Uint64(l.in.Payload[8:]) != uint64(slot) {
			return fmt.Errorf("socket %d: not the server's answer to the next write", l.i)
		}
		l.order = l.order[1:]
		l.ended(slot)
	}
	return nil
}

func (l *opLoop) ended(slot uint32) {
	if l.waits[slot]--; l.waits[slot] == 0 {
		l.free = append(l.free, slot)
	}
}

func (l *opLoop) completed(c *rds.Completion, now time.Time) error {
	r := l.r
	slot := uint32(c.Token)
	if err := c.Err(); err != nil {
		return fmt.Errorf("%v to %v: %w", r.p.Mode, r.to[l.i], err)
	}
	r.rec.latency(now.Sub(l.begun[slot]))
	if r.p.Verify && r.p.Mode == proto.RDMARead {
		b := l.buf.Bytes()[int(slot)*r.p.Size:][:r.p.Size]
		if r.env.corrupt != nil {
			r.env.corrupt(b)
		}
		if err := proto.Check(b, uint64(l.i*r.p.Depth)+uint64(slot)); err != nil {
			return fmt.Errorf("socket %d, RDMA read of slot %d: %w", l.i, slot, err)
		}
	}
	l.ended(slot)
	return nil
}
