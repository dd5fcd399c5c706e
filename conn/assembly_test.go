package conn

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

func TestLargeMessages(t *testing.T) {
	for _, n := range []int{8193, 16<<10 - 48, 16<<10 - 47, 100_000, abi.MaxMessage} {
		for _, registered := range []bool{true, false} {
			t.Run(fmt.Sprint(n, registered), func(t *testing.T) {
				s := newScript(t).up()
				data := make([]byte, n)
				for i := range data {
					data[i] = byte(i * 7)
				}
				m := &msg.Msg{SPort: 3, DPort: 4, SrcInc: 5, Data: data, AckNow: true}
				if registered {
					m.LKey = s.dev.reg(data)
				}
				s.c.Send(m)
				s.run()
				var all []byte
				for round := 0; len(all) < n; round++ {
					f := s.frames()
					if len(f) == 0 {
						t.Fatalf("%d of %d bytes", len(all), n)
					}
					for _, g := range f {
						if g.Seq != 100 || int(g.Len) != n || len(g.body) != min(n-len(all), 16<<10-48) {
							t.Fatalf("fragment %+v with %d bytes at %d", g.Header, len(g.body), len(all))
						}
						all = append(all, g.body...)
					}
					// Return credits.
					s.send(frame(wire.Header{Credit: uint8(len(f))}, nil))
				}
				if string(all) != string(data) {
					t.Error("wrong bytes")
				}
				s.open(m)
				s.send(frame(wire.Header{Ack: 100}, nil))
				s.want(m, msg.Acked)
			})
		}
	}
}

func TestForgetPartial(t *testing.T) {
	s := newScript(t).up()
	s.seq++
	h := wire.Header{Seq: s.seq, Len: 20_000, SPort: 7, DPort: 9}
	s.send(frame(h, make([]byte, 16<<10-48)))
	s.c.ForgetPartial("no such token")
	s.c.ForgetPartial(&s.part[0])
	buf := s.part
	s.send(frame(h, []byte(strings.Repeat("x", 20_000-16<<10+48))))
	if len(s.delivered) != 0 || s.aborts != 0 || strings.Contains(string(buf), "x") {
		t.Errorf("delivered %d, aborts %d", len(s.delivered), s.aborts)
	}
	f := s.frames()
	if len(f) != 1 || f[0].Flags&wire.FlagInternal == 0 || f[0].DPort != uint16(wire.TypeNoSock) || u64(f[0].body) != s.seq {
		t.Errorf("NOSOCK: %+v", f)
	}
}
