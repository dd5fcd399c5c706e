package engine

import (
	"testing"

	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
)

// TestSentCounters: a message is counted the same whichever way it goes: to a peer, to
// a socket of this host at once, or there by its record.
func TestSentCounters(t *testing.T) {
	for _, c := range []struct {
		name  string
		hosts int
		sub   shm.Sub
		local uint64
	}{
		{"to a peer", 2, shm.Sub{Len: 100}, 0},
		{"on this host, at once", 1, shm.Sub{Len: 100}, 3},
		{"on this host, with a record", 1, shm.Sub{Len: 100, GiveUp: 1000}, 3},
	} {
		w, a, b := opPair(t, c.hosts)
		for range 3 {
			a.submit(c.sub)
			w.run()
			w.run()
		}
		st := &a.e.st.C
		for _, x := range []struct {
			name      string
			got, want uint64
		}{
			{"send_queued", st[stats.SendQueued], 3}, {"send_bytes", st[stats.SendBytes], 300},
			{"copy_from_user", st[stats.CopyFromUser], 300}, {"send_acked", st[stats.SendAcked], 3},
			{"send_queue_empty", st[stats.SendQueueEmpty], 3}, {"local_messages", st[stats.LocalMessages], c.local},
		} {
			if x.got != x.want {
				t.Errorf("%s: %s %d, want %d", c.name, x.name, x.got, x.want)
			}
		}
		a.look()
		if b.look(); len(b.msgs) != 3 || len(a.back) != 3 {
			t.Errorf("%s: %d messages, %d ids back", c.name, len(b.msgs), len(a.back))
		}
		w.clean2(a, b)
	}
}
