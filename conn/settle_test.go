package conn

import (
	"slices"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

// What the handshake acks is SUCCESS, the rest DROPPED; plain messages go again.
func TestSettleByHandshake(t *testing.T) {
	s := newScript(t).up()
	var m [6]*msg.Msg
	for i := range m {
		if i%2 == 0 {
			m[i] = s.op(abi.OpWrite, 16)
			s.c.Send(m[i])
		} else {
			m[i] = s.msg("plain")
		}
		s.run()
	}
	s.q.toErr(true)
	s.run()
	s.open(m[:]...)
	for i := 0; i < 6; i += 2 {
		if !s.local[m[i]] {
			t.Errorf("operation %d is not local although the queue pair is gone", i)
		}
	}
	if s.c.NextTimeout() == 0 {
		t.Error("no settlement timer")
	}
	unposted := s.op(abi.OpWrite, 16)
	s.c.Send(unposted)
	s.dropRequests()
	s.raw = nil
	s.up(func(h *wire.Hello) { h.Ack = 102 })
	for i, want := range []msg.Outcome{msg.Acked, msg.Acked, msg.Acked} {
		s.want(m[i], want)
	}
	s.want(m[4], msg.Dropped)
	s.open(m[3], m[5], unposted)
	f := s.frames()
	if len(f) != 3 || f[0].Seq != 103 || f[1].Seq != 105 || f[0].Flags&wire.FlagRetransmitted == 0 ||
		f[1].Flags&wire.FlagRetransmitted == 0 || f[2].Seq != 106 || f[2].Flags&wire.FlagRetransmitted != 0 {
		t.Errorf("frames %+v", f)
	}
	if s.c.NextTimeout() != 0 {
		t.Errorf("the settlement timer goes on: %d", s.c.NextTimeout())
	}
}

func TestSettleTimeout(t *testing.T) {
	s := newScript(t, func(c *Config) { c.Rand = func() uint64 { return 1<<63 - 1 } }).up()
	m, plain := s.op(abi.OpWrite, 16), s.msg("plain")
	s.c.Send(m)
	s.run()
	s.q.toErr(true)
	s.run()
	start := s.now
	for s.now < start+30e9 {
		s.open(m)
		s.dropRequests()
		if s.now = s.c.NextTimeout(); s.now == 0 {
			t.Fatal("no timer")
		}
		s.c.Tick(s.now)
	}
	s.want(m, msg.Unknown)
	s.open(plain)
	s.dropRequests()
	s.raw = nil
	s.up(func(h *wire.Hello) { h.Ack = 101 })
	s.want(plain, msg.Acked)
}

func TestRestartWithOperations(t *testing.T) {
	s := newScript(t).up()
	posted := s.op(abi.OpWrite, 16)
	s.c.Send(posted)
	s.run()
	s.q.toErr(true)
	s.run()
	queued := s.op(abi.OpWrite, 16)
	s.refuse[queued] = true // the host clears its grants in PeerUp
	s.c.Send(queued)
	s.dropRequests()
	s.up(func(h *wire.Hello) { h.Instance, h.AckInst = 78, 0 })
	s.want(posted, msg.Unknown)
	s.want(queued, msg.OpRefused)
}

// HELLO's ack settles nothing, and no operation is posted, before the notices
// it speaks of have arrived.
func TestGate(t *testing.T) {
	s := newScript(t).up()
	a, b := s.msg("a"), s.msg("b")
	o := s.op(abi.OpWrite, 16)
	s.c.Send(o)
	s.run()
	queued := s.op(abi.OpWrite, 16)
	s.again(func(h *wire.Hello) { h.Ack, h.Notice = 102, s.seq+2 })
	s.c.Send(queued)
	plain := s.msg("plain behind it")
	s.run()
	s.send(frame(wire.Header{Ack: 102}, nil))
	s.open(a, b, o, queued)
	if f := s.frames(); len(f) != 0 {
		t.Errorf("an operation was posted: %+v", f)
	}
	s.send(s.notice(wire.TypeNoSock, 101, 4))
	s.want(b, msg.NoSock)
	s.want(a, msg.Acked) // notices are in order: there is none for it
	s.open(o)
	s.send(s.notice(wire.TypeNoSock, 102, 4))
	s.want(o, msg.NoSock)
	if f := s.frames(); len(f) != 2 || string(f[1].body) != "plain behind it" {
		t.Errorf("after the gate: %+v", f)
	}
	s.open(plain)
}

func TestInternalMessages(t *testing.T) {
	s := newScript(t).up()
	in := func(ty wire.InternalType, body []byte) []byte {
		s.seq++
		return frame(wire.Header{Seq: s.seq, DPort: uint16(ty), Flags: wire.FlagInternal}, body)
	}
	revoke := (&wire.Revoke{RKey: 5, Lanes: 1}).Append(nil)
	s.send(in(wire.TypeGrant, make([]byte, 40)), in(wire.TypeRevoke, revoke), in(99, make([]byte, 3)), in(wire.TypeRevoked, revoke),
		in(wire.TypeGrantNak, make([]byte, 8)))
	want := []wire.InternalType{wire.TypeGrant, wire.TypeRevoke, wire.TypeRevoked, wire.TypeGrantNak}
	if !slices.Equal(s.internals, want) || s.c.in.last != s.seq {
		t.Errorf("%v", s.internals)
	}
}
