package vmlab

import (
	"bytes"
	"testing"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft"
)

// many has a thousand WRITEs and SENDs in progress. One fence acknowledges many of them. At the
// same time siw is silent, or it makes requests of its own and answers fences with stale data.
func many(t *testing.T, m *machine, siwInitiates bool) {
	const (
		count, size       = 1000, 900 // of the host; every other one is a SEND
		theirs, theirSize = 300, 5000 // siw's
		written           = 1 << 20   // in siw's memory
		source, sink      = 3 << 20, 2 << 20
	)
	for _, op := range []string{"", "send", "write", "read"} {
		t.Run("siw is "+map[string]string{"": "silent", "send": "sending", "write": "writing", "read": "reading"}[op], func(t *testing.T) {
			l := newLab(t, m, soft.Options{})
			l.useQP(verbs.AckRemote, 2*count)
			l.connect(siwInitiates, "", "")
			fill(l.mem[:count*size], 3)
			fill(l.mem[source:source+theirSize], 4)
			l.guest("times %d recv 2 0 %d", count/2, size)
			l.guest("fill %d %d 4", source, theirSize)
			got, want := 0, count
			switch op {
			case "send":
				want += theirs
				for range theirs {
					l.recv(1, sink, theirSize)
				}
				l.guest("times %d send 1 %d %d 0", theirs, source, theirSize)
			case "write":
				l.guest("times %d write 1 %d %d %d %d", theirs, source, theirSize, iova+sink, l.mr.RKey())
			case "read":
				l.guest("times %d read 1 %d %d %d %d", theirs, sink, theirSize, iova+source, l.mr.RKey())
			}
			fences := l.dev.Stats().FencesSent
			for i := range count {
				wr := verbs.SendWR{WRID: uint64(100 + i), Op: verbs.OpSend, SGL: l.sge(i*size, size)}
				if i%2 == 0 {
					wr.Op, wr.RemoteAddr, wr.RKey = verbs.OpRDMAWrite, l.raddr+uint64(written+i*size), l.rkey
				}
				l.post(wr)
			}
			for next := uint64(100); got < want; got++ {
				wc := l.completion()
				if wc.Status != verbs.WCSuccess || wc.WRID != 1 && wc.WRID != next {
					l.Fatalf("completion %+v of %d, want %d", wc, got, next)
				}
				if wc.WRID != 1 {
					next++
				}
			}
			if fences = l.dev.Stats().FencesSent - fences; fences == 0 || fences > count/8 {
				t.Errorf("%d fences for %d requests", fences, count)
			}
			want = count / 2
			if op != "" {
				want += theirs
			}
			l.drain(want)
			for i := 0; i < count; i += 2 {
				if i%50 == 0 {
					l.checkGuest("WRITE", written+i*size, l.mem[i*size:(i+1)*size])
				}
			}
			if op == "read" {
				l.checkGuest("READ", sink, l.mem[source:source+theirSize])
			} else if op != "" && !bytes.Equal(l.mem[sink:sink+theirSize], l.mem[source:source+theirSize]) {
				t.Error("what siw sent differs")
			}
		})
	}
}
