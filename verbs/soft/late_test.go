package soft

import (
	"bytes"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// lateRecorder is a LateTap that keeps the streams.
type lateRecorder struct {
	on      atomic.Uint32
	refuse  bool
	begins  int
	passive bool
	recorder
}

func (l *lateRecorder) On() *atomic.Uint32 { return &l.on }

func (l *lateRecorder) Begin(_, _ netip.AddrPort, passive, _ bool) bool {
	l.begins++
	l.passive = passive
	l.recorder = recorder{}
	return !l.refuse
}

func (l *lateRecorder) Stream(local, remote netip.AddrPort, out bool, b []byte) {
	l.recorder.Stream(local, remote, out, b)
}

// frames cuts a stream into its start-up frame and FPDUs, and wants nothing to be left.
func frames(t *testing.T, b []byte, reply bool) (out [][]byte) {
	t.Helper()
	n, err := iwarp.MPALen(b[:min(len(b), iwarp.MPAHeaderLen)], reply)
	if err != nil {
		t.Fatalf("no start-up frame: %v", err)
	}
	for b = b[n:]; len(b) > 0; b = b[n:] {
		n = iwarp.FPDUSize(iwarp.ULPDULen(b))
		if n > len(b) {
			t.Fatalf("%d bytes are left, the frame has %d", len(b), n)
		}
		var h iwarp.Header
		if err := iwarp.ParseHeader(b[:n], &h); err != nil {
			t.Fatalf("no FPDU: %v", err)
		}
		out = append(out, b[:n])
	}
	return out
}

// TestLateTap: a tap that comes while a connection is up, whichever end made it, with TLS and
// without, sees the start-up frames and then whole frames: the last ones of those that a tap
// sees which was there from the beginning.
func TestLateTap(t *testing.T) {
	for _, c := range []struct {
		name    string
		tls     bool
		crc     verbs.CRCMode
		passive bool
	}{{"active", false, verbs.CRCOff, false}, {"passive", false, verbs.CRCOff, true}, {"with CRC", false, verbs.CRCOn, true}, {"with TLS", true, verbs.CRCOff, false}} {
		t.Run(c.name, func(t *testing.T) {
			late, all := &lateRecorder{}, &recorder{}
			at := attrs()
			at.CRC = c.crc
			opts := [2]Options{}
			if c.tls {
				ca := tlstest.NewCA(t)
				opts[0], opts[1] = secured(t, ca), secured(t, ca)
			}
			opts[b2i(c.passive)].Late, opts[1-b2i(c.passive)].Tap = late, all
			a, b := newHost(t, opts[0]), newHost(t, opts[1])
			link(t, a, b, at, at)
			fill(a.mem, 1)
			fill(b.mem, 2)
			send := func(rounds int) {
				for range rounds {
					b.recv(verbs.RecvWR{SGL: b.sge(0, 300000)})
					a.send(verbs.SendWR{Op: verbs.OpSend, SGL: a.sge(0, 300000)}, verbs.SendWR{Op: verbs.OpRDMAWrite, SGL: a.sge(0, 200001), RKey: b.mr.RKey(), RemoteAddr: testIOVA},
						verbs.SendWR{Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: a.sge(1<<20, 300000), RKey: b.mr.RKey(), RemoteAddr: testIOVA})
					b.take(1, a)
					a.take(1, b)
				}
			}
			send(1)
			if late.begins != 0 || len(late.out) != 0 {
				t.Fatal("it sees something before it is switched on")
			}
			late.on.Store(1)
			send(1)
			// It comes in the middle of frames, too.
			for i := range uint32(20) {
				b.recv(verbs.RecvWR{SGL: b.sge(0, 300000)})
				a.send(verbs.SendWR{Op: verbs.OpSend, SGL: a.sge(0, 300000)},
					verbs.SendWR{Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: a.sge(1<<20, 300000), RKey: b.mr.RKey(), RemoteAddr: testIOVA})
				for range i % 7 {
					a.dev.Progress()
					b.dev.Progress()
				}
				late.on.Store(2 + i)
				b.take(1, a)
				a.take(1, b)
			}
			send(2)
			if late.begins < 15 || late.passive != c.passive {
				t.Errorf("%d begins, passive %v", late.begins, late.passive)
			}
			run(t, "both have all", func() bool {
				return bytes.HasSuffix(all.in, late.out[max(0, len(late.out)-1000):]) && bytes.HasSuffix(all.out, late.in[max(0, len(late.in)-1000):])
			}, a, b)
			for dir, x := range map[string][2][]byte{"out": {late.out, all.in}, "in": {late.in, all.out}} {
				reply := (dir == "out") == c.passive
				got, want := frames(t, x[0], reply), frames(t, x[1], reply)
				if len(got) < 5 || len(got) >= len(want) {
					t.Fatalf("%s: %d frames of %d", dir, len(got), len(want))
				}
				if !slices.EqualFunc(got, want[len(want)-len(got):], bytes.Equal) {
					t.Errorf("%s: the frames differ", dir)
				}
			}
			before := len(late.out)
			late.on.Store(0)
			send(1)
			if len(late.out) != before {
				t.Error("it sees something after it was switched off")
			}
			late.refuse = true
			late.on.Store(99)
			send(1)
			if len(late.out) != 0 {
				t.Error("it sees what it does not want")
			}
		})
	}
}

// TestLateTapInput: a tap that comes with input sees it once, with TLS as without.
func TestLateTapInput(t *testing.T) {
	for _, how := range []guarded{bare, sealed} {
		late := &lateRecorder{}
		a, b := guardedPair(t, how, attrs(), Options{Late: late})
		for range 2 {
			b.recv(verbs.RecvWR{SGL: b.sge(0, 8)})
		}
		for n := range 2 {
			a.send(verbs.SendWR{Op: verbs.OpSend, SGL: a.sge(0, 8)})
			a.dev.Progress()
			late.on.Store(uint32(n)) // with guardedPair both ends have it
			b.take(1)
		}
		if got := frames(t, late.in, false); len(got) != 1 {
			t.Errorf("%v: %d frames", how, len(got))
		}
	}
}
