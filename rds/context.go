package rds

import (
	"context"
	"iter"
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/internal/shm"
)

// DontWait is the context of a call that must not wait. A send or receive that would have
// to wait fails with ErrWouldBlock or ErrCongested, and [Socket.Wait] and the like with
// ErrWouldBlock if what they wait for is not there.
var DontWait context.Context = dontWait{}

type dontWait struct{}

var ended = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (dontWait) Deadline() (at time.Time, ok bool) { return time.Time{}, false }
func (dontWait) Done() <-chan struct{}             { return ended }
func (dontWait) Err() error                        { return ErrWouldBlock }
func (dontWait) Value(any) any                     { return nil }

// impatient reports whether ctx is DontWait, or made of it. The error is that of another
// context that has ended.
func impatient(ctx context.Context) (bool, error) {
	switch err := ctx.Err(); err {
	case nil:
		return false, nil
	case ErrWouldBlock:
		return true, nil
	default:
		return false, err
	}
}

// wakeReceivers wakes all receivers of s when ctx ends. They find out by themselves
// whether it was their context. stop ends that.
func (s *Socket) wakeReceivers(ctx context.Context) (stop func() bool) {
	if ctx.Done() == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() { s.notifyAll(wantMessage) })
}

// recvError wraps err in an opError, unless it is one.
func recvError(err error) error {
	if _, is := err.(*opError); is || err == nil {
		return err
	}
	return opErr("recv", netip.AddrPort{}, err)
}

// firstBuffer is the size of the buffer with which Messages starts, bytes.
const firstBuffer = 8 << 10

// Messages returns the messages that the socket receives, one after the other, until
// ctx ends, the socket fails or the loop is left:
//
//	for m, err := range s.Messages(ctx) {
//		if err != nil {
//			return err
//		}
//		handle(m.Addr, m.Payload)
//	}
//
// Payload is the whole message, N and Len its length; the other fields are those that
// Recv sets. The Received and its Payload belong to the loop: they are valid until
// the next iteration, and the body of the loop may change them. A loop allocates
// nothing for a message, except when one is longer than all before it.
//
// The last iteration has a nil Received and the error that ended the receiving: the
// context's, or one of RecvFrom's. Several loops may run at a socket at once; each message
// goes to one of them. A message is taken when its iteration begins, so leaving the loop
// loses none.
func (s *Socket) Messages(ctx context.Context) iter.Seq2[*Received, error] {
	return func(yield func(*Received, error) bool) {
		stop := s.wakeReceivers(ctx)
		defer stop()
		var m Received
		var e shm.Event
		buf := make([]byte, firstBuffer)
		for {
			n, err := 0, ctx.Err()
			if err == nil {
				s.c.rx.mu.Lock()
				n, err = s.recv(ctx, receive{p: buf, e: &e, trace: &m.Traceparent, whole: true, woken: true}, false)
			}
			switch {
			case err == errLonger:
				buf = make([]byte, max(n, 2*len(buf)))
				continue
			case err != nil:
				yield(nil, recvError(err))
				return
			}
			m = Received{Payload: buf[:n], Traceparent: m.Traceparent}
			if describe(&m, &e, n); !yield(&m, nil) {
				return
			}
		}
	}
}
