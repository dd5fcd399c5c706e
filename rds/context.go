package rds

import (
	"context"
	"iter"
	"net/netip"

	"github.com/rdsd/rdsd/internal/shm"
)

// RecvContext receives one message as RecvMsg does, and waits for it until ctx ends,
// whatever SetNonblock and m.DontWait say. If ctx has ended already, it takes no
// message. The read deadline ends the wait, too. It allocates only if it has to wait
// and ctx can end.
//
// Errors: the context's (context.Canceled, context.DeadlineExceeded); those of
// RecvFrom, except ErrWouldBlock.
func (s *Socket) RecvContext(ctx context.Context, m *Message) error {
	if err := ctx.Err(); err != nil {
		return opErr("recv", netip.AddrPort{}, err)
	}
	var e shm.Event
	a := receive{p: m.Payload, e: &e, peek: m.Peek}
	n, err := s.recvUntil(context.Background(), a, true)
	if err == errRecvWouldBlock {
		stop := s.wakeReceivers(ctx)
		n, err = s.recvUntil(ctx, a, false)
		stop()
	}
	if err != nil {
		return recvError(err)
	}
	s.describe(m, &e, n)
	return nil
}

// wakeReceivers wakes all receivers of s when ctx ends. They find out by themselves
// whether it was their context. stop ends that.
func (s *Socket) wakeReceivers(ctx context.Context) (stop func() bool) {
	if ctx.Done() == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() { s.notifyAll(wantMessage) })
}

// recvError wraps err in an OpError, unless it is one.
func recvError(err error) error {
	if _, is := err.(*OpError); is {
		return err
	}
	return opErr("recv", netip.AddrPort{}, err)
}

// SendContext queues m as SendMsg does, and waits for room until ctx ends, whatever
// SetNonblock and m.DontWait say. ctx limits the wait for room in the send buffer and
// at a congested destination. It does not limit how long the message may wait to be
// acknowledged: see Message.GiveUpAfter. If ctx has ended already, nothing is queued.
// The write deadline ends the wait, too. It allocates only if it has to wait.
//
// Errors: the context's (context.Canceled, context.DeadlineExceeded); those of
// SendMsg, except ErrWouldBlock and ErrCongested.
func (s *Socket) SendContext(ctx context.Context, m *Message) (opID uint64, err error) {
	if err = ctx.Err(); err == nil {
		opID, err = s.sendContext(ctx, m)
	}
	return opID, opErr("send", m.Addr, err)
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
// RecvMsg sets. The Message and its Payload belong to the loop: they are valid until
// the next iteration, and the body of the loop may change them. A loop allocates
// nothing for a message, except when one is longer than all before it.
//
// The last iteration has a nil Message and the error that ended the receiving: the
// context's, or one of RecvFrom's. Several loops may run at a socket at once; each
// message goes to one of them. SetNonblock has no effect. A message is taken when its
// iteration begins, so leaving the loop loses none.
func (s *Socket) Messages(ctx context.Context) iter.Seq2[*Message, error] {
	return func(yield func(*Message, error) bool) {
		stop := s.wakeReceivers(ctx)
		defer stop()
		var m Message
		var e shm.Event
		buf := make([]byte, firstBuffer)
		for {
			n, err := 0, ctx.Err()
			if err == nil {
				n, err = s.recvUntil(ctx, receive{p: buf, e: &e, whole: true}, false)
			}
			switch {
			case err == errLonger:
				buf = make([]byte, max(n, 2*len(buf)))
				continue
			case err != nil:
				yield(nil, recvError(err))
				return
			}
			m = Message{Payload: buf[:n]}
			if s.describe(&m, &e, n); !yield(&m, nil) {
				return
			}
		}
	}
}
