package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
)

// refusing is a pair of which the receiver has an unread message of 900 bytes and takes
// nothing more.
func refusing(t *testing.T, hosts int) (w *world, a, b *opSide) {
	t.Helper()
	w = newWorld(t, hosts, Config{HardCap: 1})
	a, b = w.opSide(0, 10), w.opSide(hosts-1, 20)
	b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 1000})
	a.open(a.sock, 0, 0, b.e.addrs.all[0].addr, b.port)
	a.submit(shm.Sub{Len: 900})
	w.run()
	if b.look(); len(b.msgs) != 1 {
		t.Fatalf("%d messages came", len(b.msgs))
	}
	return w, a, b
}

// TestRunRefused: of a run that is refused nothing is delivered, though a part of it would
// fit. All of it is, once, when there is room, ahead of what was sent behind it.
func TestRunRefused(t *testing.T) {
	for _, hosts := range []int{1, 2} {
		for name, run := range map[string][]int{"short": {50, 40, 0, 500}, "long": slices.Repeat([]int{1000}, 60)} {
			t.Run(fmt.Sprintf("%d hosts/%s", hosts, name), func(t *testing.T) {
				w, a, b := refusing(t, hosts)
				s := b.cl.socks[b.sock]
				a.submitRun(run...)
				a.submit(shm.Sub{Len: 5})
				a.submitRun(1, 2)
				for range 3 {
					w.settle()
					if b.look(); len(b.msgs) != 1 || s.rcvBytes != 900 || s.over.N+b.e.rx.unfinished.N > 0 {
						t.Fatalf("%d messages came, %d bytes are unread", len(b.msgs), s.rcvBytes)
					}
				}
				if a.look(); len(a.back) != 1 {
					t.Errorf("%d ids came back", len(a.back))
				}
				b.e.PublishStats(b.e.wall)
				if n := b.e.st.C[stats.RefusedSent]; n != uint64(len(run)) && (hosts == 1 || n < uint64(len(run))) {
					t.Errorf("%d datagrams counted as refused, %d are", n, len(run))
				}
				got := b.datagrams()
				w.settle()
				if got, want := append(got, b.all()...), slices.Concat([]int{900}, run, []int{5, 1, 2}); !slices.Equal(got, want) {
					t.Errorf("datagrams of %d bytes came, want %d", got, want)
				}
				w.idle(a, b)
				if n := a.e.st.C[stats.SendAcked]; n != uint64(len(run)+4) {
					t.Errorf("send_acked is %d", n)
				}
				w.clean2(a, b)
			})
		}
	}
}
