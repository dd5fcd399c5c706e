package soft

import (
	"bytes"
	"testing"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
	"github.com/rdsd/rdsd/verbs/soft/tls13"
)

// TestSecurePlace: records that are opened into their place leave what is around it alone: their
// type and tag land within the payload, which then covers them.
func TestSecurePlace(t *testing.T) {
	const around, record, segment = 4096, 16384, 64512
	at := attrs()
	a, b := securePair(t, at, nil)
	fill(a.mem, 1)
	for _, n := range []int{2 * record, 3*record - 1, 3 * record, 3*record + 1, segment - 1, segment, segment + 1, 2*segment + 3*record, 1 << 20} {
		for _, op := range []verbs.Opcode{verbs.OpRDMAWrite, verbs.OpRDMARead, verbs.OpSend} {
			sink, to := b.mem, b
			wr := verbs.SendWR{Op: op, Flags: verbs.SendSignaled, SGL: a.sge(0, n), RKey: b.mr.RKey(), RemoteAddr: testIOVA + around}
			switch op {
			case verbs.OpRDMARead:
				sink, to = a.mem[2<<20:], a
				copy(b.mem[2<<20:], a.mem[:n])
				wr.SGL, wr.RemoteAddr = a.sge(2<<20+around, n), testIOVA+2<<20
			case verbs.OpSend:
				b.recv(verbs.RecvWR{SGL: b.sge(around, n)})
				wr.RKey, wr.RemoteAddr = 0, 0
			}
			for i := range sink[:n+2*around] {
				sink[i] = 0xa5
			}
			a.send(wr)
			if wc := a.take(1, b); wc[0].Status != verbs.WCSuccess {
				t.Fatal(wc[0].Status)
			}
			run(t, "the data", func() bool { return bytes.Equal(sink[around:][:n], a.mem[:n]) }, a, b)
			if op == verbs.OpSend {
				b.take(1, a)
			}
			for _, edge := range [][]byte{sink[:around], sink[around+n:][:around]} {
				if !bytes.Equal(edge, bytes.Repeat([]byte{0xa5}, around)) {
					t.Errorf("%v of %d bytes to host %v changes memory around it", op, n, to == a)
				}
			}
		}
	}
}

// TestSecureRecords: the payload of a segment begins a record and is in as few records as possible, also where one
// system call ends and the next begins.
func TestSecureRecords(t *testing.T) {
	const size, segments = 1 << 20, 17
	a, b := securePair(t, attrs(), nil)
	before := a.dev.Stats().BytesOut
	a.send(verbs.SendWR{Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: a.sge(0, size), RKey: b.mr.RKey(), RemoteAddr: testIOVA})
	a.take(1, b)
	plain := size + segments*(iwarp.TaggedLen+iwarp.CRCLen)
	records := (int(a.dev.Stats().BytesOut-before) - plain) / tls13.Overhead
	if want := 1 + segments*4; records != want { // the first header has one of its own
		t.Errorf("%d records, want %d", records, want)
	}
}
