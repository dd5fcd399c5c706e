package vmlab

import (
	"bytes"
	"testing"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft"
)

// stale has soft READ zero bytes while siw READs two regions in turn into one place. siw answers
// the empty READ with the bytes of that place. They change while they are sent, so some CRCs are
// wrong. The connection must survive that.
func stale(t *testing.T, m *machine, siwInitiates bool) {
	const (
		turns, times, size = 40, 4, 30001
		sink, source       = 1 << 20, 2 << 20
		rounds             = 10
	)
	for round := range rounds {
		l := newLab(t, m, soft.Options{CRC: verbs.CRCOn})
		l.connect(siwInitiates, "", "")
		fill(l.mem[source:source+size], 1)
		fill(l.mem[source+1<<16:source+1<<16+size], 2)
		before := bytes.Clone(l.mem)
		asked, answered := 0, 0
		take := func() {
			if wc := l.completion(); wc.WRID != 3 || wc.Status != verbs.WCSuccess {
				l.Fatalf("completion %+v after %d", wc, answered)
			}
			answered++
		}
		for i := range turns {
			l.guest("times %d read 2 %d %d %d %d", times, sink, size, iova+source+i%2<<16, l.mr.RKey())
			for len(l.wc) > 0 {
				take()
			}
			for ; asked < answered+3; asked++ {
				l.post(verbs.SendWR{WRID: 3, Op: verbs.OpRDMARead, RemoteAddr: l.raddr, RKey: l.rkey})
			}
		}
		for answered < asked {
			take()
		}
		l.drain(turns * times)
		l.checkGuest("READ", sink, l.mem[source+1<<16:source+1<<16+size])
		if !bytes.Equal(l.mem, before) {
			t.Error("stale data went into memory")
		}
		s := l.dev.Stats()
		l.disconnect(siwInitiates)
		t.Logf("%d READs of no bytes: %d segments of stale data, the CRC of %d of them wrong", asked, s.StaleAnswers, s.StaleCRC)
		if s.StaleAnswers > 0 {
			return
		}
		t.Logf("none stale in round %d", round)
	}
	t.Error("siw answered no READ of no bytes with stale data: it does not do so any more, or the test does not see it")
}
