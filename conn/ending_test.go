package conn

import (
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

func TestCancelMatching(t *testing.T) {
	s := newScript(t).up()
	s.hold = true
	data := make([]byte, 9000)
	large := &msg.Msg{SPort: 1, DPort: 4, Data: data, LKey: s.dev.reg(data)}
	s.c.Send(large)
	op := s.op(abi.OpWrite, 16)
	op.SPort = 1
	s.c.Send(op)
	small := &msg.Msg{SPort: 1, DPort: 4}
	s.c.Send(small)
	other := &msg.Msg{SPort: 2, DPort: 4}
	s.c.Send(other)
	s.run()
	queued := &msg.Msg{SPort: 1, DPort: 4}
	s.c.Send(queued)
	s.c.CancelMatching(func(m *msg.Msg) bool { return m.SPort == 1 }, msg.Cancelled)
	s.want(queued, msg.Cancelled)
	s.want(small, msg.Cancelled) // its bytes were copied
	s.open(large, op, other)
	if s.local[op] {
		t.Error("operation local while posted")
	}
	s.hold = false
	s.run()
	s.want(large, msg.Cancelled)
	s.want(op, msg.Cancelled)
	if !s.local[op] {
		t.Error("operation never local")
	}
	s.open(other)
	s.send(frame(wire.Header{Ack: 103}, nil))
	s.want(other, msg.Acked)
}

// A cancelled message that is half sent is sent to its end: the peer waits for
// its fragments.
func TestCancelHalfSent(t *testing.T) {
	s := newScript(t).up(func(h *wire.Hello) { h.Credits = 4 })
	data := make([]byte, 100_000)
	m := &msg.Msg{SPort: 1, DPort: 4, Data: data, LKey: s.dev.reg(data)}
	s.c.Send(m)
	s.run()
	s.c.CancelMatching(func(*msg.Msg) bool { return true }, msg.Cancelled)
	s.open(m)
	got := 0
	for i := 0; got < len(data) && i < 20; i++ {
		f := s.frames()
		for _, g := range f {
			got += len(g.body)
		}
		s.send(frame(wire.Header{Credit: uint8(len(f))}, nil))
	}
	if got != len(data) {
		t.Errorf("%d bytes sent", got)
	}
	s.want(m, msg.Cancelled)
}
