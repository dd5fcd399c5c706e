package soft

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/verbs"
)

// TestTap: the tap's stream is the stream.
func TestTap(t *testing.T) {
	rec := [2]*recorder{{}, {}}
	a, b := newHost(t, Options{Tap: rec[0]}), newHost(t, Options{Tap: rec[1]})
	at := attrs()
	link(t, a, b, at, at)
	fill(a.mem[:300000], 1)
	b.recv(verbs.RecvWR{SGL: b.sge(0, 300000)})
	a.send(verbs.SendWR{Op: verbs.OpSend, SGL: a.sge(0, 300000)})
	a.send(verbs.SendWR{Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: a.sge(1<<20, 300000), RKey: b.mr.RKey(), RemoteAddr: testIOVA})
	b.take(1, a)
	a.take(1, b)
	run(t, "same streams", func() bool {
		return bytes.Equal(rec[0].out, rec[1].in) && bytes.Equal(rec[0].in, rec[1].out)
	}, a, b)
	if len(rec[0].out) < 300000 || !strings.HasPrefix(string(rec[0].out), "MPA ID Req") || !strings.HasPrefix(string(rec[0].in), "MPA ID Rep") {
		t.Errorf("%d bytes out, %d in", len(rec[0].out), len(rec[0].in))
	}
}

type recorder struct{ out, in []byte }

func (r *recorder) Stream(local, remote netip.AddrPort, out bool, b []byte) {
	if out {
		r.out = append(r.out, b...)
	} else {
		r.in = append(r.in, b...)
	}
}
