package stress

import (
	"fmt"
	"time"

	"github.com/rdsd/rdsd/internal/stress/proto"
	"github.com/rdsd/rdsd/rds"
)

// again is an ack that was lost with the connection, because its operation was. It is sent
// again with its old sequence number.
type again struct {
	index uint32
	bare  bool // without the operation
}

// early is a message that overtook one that is sent again. That happens because datagrams
// survive the loss of a connection, and messages with operations do not.
type early struct {
	h      proto.Header
	cookie rds.Cookie
	at     time.Time
}

// sendAgain queues the ack of slot index. After a remote error only the message is sent,
// because the first ack may have been delivered and the key taken back.
func (f *flow) sendAgain(index uint32, status rds.Status) {
	f.again = append(f.again, again{index, status == rds.RemoteError})
	f.w.n.retries.Add(1)
}

// resend sends the acks that were lost.
func (f *flow) resend() error {
	w := f.w
	for len(f.again) > 0 {
		a := f.again[0]
		s := &f.slots[a.index]
		h := s.done
		h.Retry = 1
		m := w.message(f, &h, int(w.opts.AckSize))
		if !a.bare {
			w.mem.transfer(f, a.index, &h, m)
		}
		if _, err := w.sock.Send(rds.DontWait, m); err != nil {
			return err
		}
		w.trace("sent %v %d of slot %d to %v again", h.Op, h.Seq, h.Index, f.to)
		if a.bare {
			s.inFlight = false
		}
		f.again = f.again[1:]
	}
	f.again = nil
	return nil
}

// reorder passes messages to the flow in the order of their sequence numbers.
func (f *flow) reorder(h *proto.Header, cookie rds.Cookie, now time.Time) error {
	ahead := h.Seq - f.recvSeq
	switch {
	case ahead == 0:
	case int32(ahead) < 0 && h.Retry != 0:
		return nil // the first one had arrived
	case int32(ahead) < 0:
		return f.accept(h, cookie, now) // accept returns what is wrong
	default:
		// At most the requests and acks of the whole pipeline can be in progress.
		if ahead > 2*f.w.opts.Depth {
			return f.accept(h, cookie, now)
		}
		if _, twice := f.early[h.Seq]; twice {
			if h.Retry != 0 {
				return nil
			}
			return fmt.Errorf("%v %d came twice", h.Op, h.Seq)
		}
		if f.early == nil {
			f.early = make(map[uint32]early)
		}
		f.early[h.Seq] = early{*h, cookie, now}
		return nil
	}
	if err := f.accept(h, cookie, now); err != nil {
		return err
	}
	for len(f.early) > 0 {
		e, ok := f.early[f.recvSeq]
		if !ok {
			return nil
		}
		delete(f.early, e.h.Seq)
		if err := f.accept(&e.h, e.cookie, e.at); err != nil {
			return err
		}
	}
	return nil
}
