package conn

import (
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

// What breaks the protocol costs the connection, nothing else.
func TestKernelHostile(t *testing.T) {
	cmap := wire.Header{Flags: wire.FlagCong, Len: cong.Len}
	long := wire.Header{Seq: 1, Len: 10_000, SPort: 7, DPort: 9}
	piece := make([]byte, kernelPiece)
	bad := frame(wire.Header{Seq: 1}, []byte("x"))
	bad[31] ^= 1
	with := func(h wire.Header, f func(*wire.Header)) wire.Header { f(&h); return h }
	for name, c := range map[string][][]byte{
		"empty":                 {{}},
		"short":                 {make([]byte, 47)},
		"checksum":              {bad},
		"too long":              {frame(wire.Header{Seq: 1, Len: 4097}, make([]byte, 4097))},
		"huge":                  {frame(wire.Header{Seq: 1, Len: 1<<20 + 1}, piece)},
		"4 GiB":                 {frame(wire.Header{Seq: 1, Len: 1<<32 - 1}, piece)},
		"less than it says":     {frame(wire.Header{Seq: 1, Len: 10}, []byte("x"))},
		"more than it says":     {frame(wire.Header{Seq: 1, Len: 1}, []byte("xy"))},
		"no sequence":           {frame(wire.Header{SPort: 7, DPort: 9}, []byte("x"))},
		"ack of the future":     {frame(wire.Header{Ack: 1 << 40}, nil)},
		"short fragment":        {frame(long, piece[:4095])},
		"short last fragment":   {frame(long, piece), frame(long, piece), frame(long, piece[:1807])},
		"other sequence":        {frame(long, piece), frame(with(long, func(h *wire.Header) { h.Seq++ }), piece)},
		"other length":          {frame(long, piece), frame(with(long, func(h *wire.Header) { h.Len++ }), piece)},
		"other source":          {frame(long, piece), frame(with(long, func(h *wire.Header) { h.SPort++ }), piece)},
		"other destination":     {frame(long, piece), frame(with(long, func(h *wire.Header) { h.DPort++ }), piece)},
		"message in a message":  {frame(long, piece), frame(wire.Header{Seq: 2, SPort: 7, DPort: 9}, []byte("x"))},
		"map in a message":      {frame(long, piece), frame(cmap, piece)},
		"message in a map":      {frame(cmap, piece), frame(wire.Header{Seq: 1, SPort: 7, DPort: 9}, []byte("x"))},
		"map of another length": {frame(with(cmap, func(h *wire.Header) { h.Len-- }), piece)},
		"map in one":            {frame(cmap, make([]byte, cong.Len))},
		"map in pieces":         {frame(cmap, piece[:100])},
	} {
		t.Run(name, func(t *testing.T) {
			s := newKernel(t)
			m, op := s.msg("plain"), s.op(abi.OpWrite, 8)
			s.c.Send(op)
			s.run()
			for _, b := range c {
				s.post(b)
			}
			s.run()
			s.wantError(ErrProtocol)
			if s.c.Stats().ProtocolErrors != 1 || s.c.NextTimeout() == 0 {
				t.Errorf("%d protocol errors, next timeout %d", s.c.Stats().ProtocolErrors, s.c.NextTimeout())
			}
			s.open(m)
			s.skip()
			s.kernelConnect()
			if f := s.kernelFrames(); len(f) != 2 || string(f[0].body) != "plain" {
				t.Errorf("after it: %+v", f)
			}
			s.c.Close(s.now)
			s.run()
			if s.out != 0 || s.c.in.asm.active {
				t.Errorf("%d buffers", s.out)
			}
		})
	}
}

// FuzzKernelRecv is FuzzRecv with a kernel peer.
func FuzzKernelRecv(f *testing.F) {
	cmap := wire.Header{Flags: wire.FlagCong, Len: cong.Len}
	long := wire.Header{Seq: 1, Len: 10_000, SPort: 7, DPort: 9, Ack: 101}
	piece := make([]byte, kernelPiece)
	ext := wire.Header{Seq: 4, SPort: 7, DPort: 9}
	ext.SetExtRDMA(3)
	for _, sends := range [][][]byte{
		{frame(wire.Header{Seq: 1, SPort: 7, DPort: 9, Ack: 100}, []byte("datagram")), frame(wire.Header{Ack: 102}, nil)},
		{frame(long, piece), frame(long, piece), frame(long, piece[:1808])},
		{frame(cmap, piece), frame(cmap, piece)},
		{frame(wire.Header{Seq: 3, SPort: 7}, nil), frame(wire.Header{Seq: 3, SPort: 7, Flags: wire.FlagRetransmitted}, nil), frame(ext, nil)},
	} {
		f.Add(fuzzSends(sends...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := newKernel(t)
		ms := []*msg.Msg{s.msg("a"), s.op(abi.OpWrite, 16), {SPort: 1, DPort: 4, Data: make([]byte, 40_000)}}
		s.c.Send(ms[1])
		s.c.Send(ms[2])
		s.run()
		n := 0
		s.verdict = func(h *wire.Header) Verdict { n++; return Verdict(n % 2) }
		s.fuzz(b)
		s.c.Close(s.now)
		s.run()
		for _, m := range ms {
			if _, ok := s.done[m]; !ok {
				t.Errorf("message %.3q never ended", m.Data)
			}
		}
		if s.out != 0 || s.c.State() != Down {
			t.Errorf("%d buffers, %v", s.out, s.c.State())
		}
	})
}
