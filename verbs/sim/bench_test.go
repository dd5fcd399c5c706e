package sim_test

import (
	"testing"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/sim"
)

// load keeps a send queue busy: n messages of one kind.
type load struct {
	net  *sim.Network
	a, b *end
	wr   []verbs.SendWR
	rwr  []verbs.RecvWR
	wc   [64]verbs.WC
}

func newLoad(t testing.TB, op verbs.Opcode, ack verbs.AckMode) *load {
	t.Helper()
	l := &load{net: sim.NewNetwork(1)}
	l.a, l.b = pair(t, l.net, ack)
	for i := range 16 {
		wr := verbs.SendWR{Op: op, SGL: l.a.sge(0, 64), RKey: l.b.mr.RKey(), RemoteAddr: iova}
		if i%4 == 3 {
			wr.Flags = verbs.SendSignaled
		}
		l.wr = append(l.wr, wr)
		if op == verbs.OpSend {
			l.rwr = append(l.rwr, verbs.RecvWR{SGL: l.b.sge(0, 64)})
		}
	}
	return l
}

func (l *load) run(n int) {
	for n > 0 {
		k, _ := l.a.qp.PostSend(l.wr[:min(n, len(l.wr))])
		l.b.qp.PostRecv(l.rwr[:min(k, len(l.rwr))])
		n -= k
		for done := 0; done == 0 && l.net.Step(); {
			done = l.a.scq.Poll(l.wc[:])
			l.b.rcq.Poll(l.wc[:])
		}
	}
	for l.net.Step() {
		l.a.scq.Poll(l.wc[:])
		l.b.rcq.Poll(l.wc[:])
	}
}

func BenchmarkWrite(b *testing.B) { benchmark(b, verbs.OpRDMAWrite, verbs.AckLocal) }
func BenchmarkSend(b *testing.B)  { benchmark(b, verbs.OpSend, verbs.AckLocal) }
func BenchmarkSendAcked(b *testing.B) {
	benchmark(b, verbs.OpSend, verbs.AckRemote)
}
func BenchmarkRead(b *testing.B) { benchmark(b, verbs.OpRDMARead, verbs.AckLocal) }

func benchmark(b *testing.B, op verbs.Opcode, ack verbs.AckMode) {
	l := newLoad(b, op, ack)
	l.run(1000)
	b.ReportAllocs()
	b.ResetTimer()
	l.run(b.N)
}

func TestNoAllocations(t *testing.T) {
	for _, op := range []verbs.Opcode{verbs.OpRDMAWrite, verbs.OpSend, verbs.OpRDMARead} {
		l := newLoad(t, op, verbs.AckRemote)
		l.run(1000)
		if n := testing.AllocsPerRun(5, func() { l.run(400) }); n > 0 {
			t.Errorf("opcode %d: %v allocations for 400 requests", op, n)
		}
	}
}
