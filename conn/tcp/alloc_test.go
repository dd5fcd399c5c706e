//go:build !race

package tcp

import (
	"testing"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/internal/runs"
	"github.com/rdsd/rdsd/conn/msg"
)

// Messages in both directions allocate nothing once the tables are there.
func TestTCPNoAlloc(t *testing.T) {
	p := newTCPPuppet(t, false)
	s, lane, err := p.accept(40000)
	if err != nil {
		t.Fatal(err)
	}
	p.verdict = conn.NoSocket
	s.out, p.done = make([]byte, 0, 1<<20), make([]msg.Outcome, 0, 16)
	run := &msg.Msg{SPort: 5, DPort: 6, Data: runs.Of(runs.Letters(50)...), Run: 50}
	small, large := &msg.Msg{SPort: 5, DPort: 6, Data: make([]byte, 100)}, &msg.Msg{SPort: 6, DPort: 6, Data: make([]byte, 100_000)}
	in := append(tcpFrame(1, 5, 6, 0, "x"), tcpFrame(1, 9, 0, 0, "ping")...)
	if n := testing.AllocsPerRun(100, func() {
		s.out, p.done = s.out[:0], p.done[:0]
		p.c.Send(small)
		p.c.Send(large)
		p.c.Send(run)
		p.c.Flush(p.now)
		p.c.HandleData(p.now, lane, in)
		p.run(1)
		if len(p.done) != 3 {
			t.Fatalf("%d messages are done", len(p.done))
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
