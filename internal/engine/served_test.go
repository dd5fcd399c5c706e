package engine

import (
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
)

// TestServed: what RDMA of others writes and reads here is seen here, although this host does nothing: of
// the region, its socket and the peer, in the counters, and of peers after the connection has gone, too.
func TestServed(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		w, a, b := opPair(t, hosts)
		r := b.expose(64, 64, abi.RightRead|abi.RightWrite, a)
		w.run()
		for _, kind := range []abi.OpKind{abi.OpWrite, abi.OpRead, abi.OpWrite} {
			a.submit(shm.Sub{}, a.op(kind, r.Cookie, 8))
			w.run()
		}
		for i, st := range a.statuses() {
			if st != int(abi.StatusSuccess) {
				t.Fatalf("%d hosts: operation %d: status %d", hosts, i, st)
			}
		}
		s := b.e.watch.socketInfo(b.cl.sock(b.sock))
		k := keyInfo(b.e.keys.by[r.Region])
		if s.PlacedBytes != 16 || s.ServedBytes != 8 || k.PlacedBytes != 16 || k.ServedBytes != 8 {
			t.Errorf("%d hosts: %d and %d bytes of the socket, %d and %d of the region, want 16 and 8", hosts, s.PlacedBytes, s.ServedBytes, k.PlacedBytes, k.ServedBytes)
		}
		for range 2 {
			b.e.PublishStats(1)
			if c := &b.e.st.C; c[stats.PlacedBytes] != 16 || c[stats.ServedBytes] != 8 {
				t.Errorf("%d hosts: the counters say %d and %d, want 16 and 8", hosts, c[stats.PlacedBytes], c[stats.ServedBytes])
			}
		}
		if s := a.e.watch.socketInfo(a.cl.sock(a.sock)); s.PlacedBytes != 0 || s.ServedBytes != 0 {
			t.Errorf("%d hosts: who asks has %d and %d", hosts, s.PlacedBytes, s.ServedBytes)
		}
		for _, p := range b.e.peers.all {
			for range 2 {
				var i ctl.PeerInfo
				now := p.c.Info()
				if b.e.watch.figures(p, &now, &i); i.PlacedBytes != 16 || i.ServedBytes != 8 {
					t.Errorf("%d and %d bytes of the peer, want 16 and 8", i.PlacedBytes, i.ServedBytes)
				}
				p.c.Reset(w.net.Now(), errAdmin)
				b.e.dirty.touch(p)
				w.run()
			}
		}
		w.clean2(a, b)
	}
}
