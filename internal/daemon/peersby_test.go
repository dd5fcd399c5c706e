package daemon

import "testing"

// TestPeersInParts: who lists many peers takes no turn of the engine for more
// than peersEach of them, and a peer that is forgotten meanwhile is left out.
func TestPeersInParts(t *testing.T) {
	d := startDaemon(t, nil)
	b := backend{d}
	const many = 500
	if err := b.ask(func() {
		for i := range many {
			if _, err := d.e.peer(d.e.localsV[0], nobody(i), 0, nil); err != nil {
				t.Error(err)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	asks := 0
	out, err := d.peersBy(func(f func()) error {
		asks++
		return b.ask(func() {
			f()
			if asks == 3 {
				d.e.dropIfNew(d.e.peersV[len(d.e.peersV)-1])
			}
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := 1 + (many+peersEach-1)/peersEach; asks != want || len(out) != many-1 {
		t.Errorf("%d peers in %d turns, want %d in %d", len(out), asks, many-1, want)
	}
	if err := b.ask(func() {
		for i := len(d.e.peersV) - 1; i >= 0; i-- {
			d.e.dropIfNew(d.e.peersV[i])
		}
	}); err != nil {
		t.Fatal(err)
	}
}
