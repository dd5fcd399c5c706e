package worker

import (
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rdstest"
	"github.com/rdsd/rdsd/test/ledger/book"
)

// TestRefusedBindEndsNothing: while a Bind is refused, the sockets that were bound before it
// stay. A steady campaign relies on that, because a socket that ends takes unread messages
// with it.
func TestRefusedBindEndsNothing(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	owner := d.Bind(t, d.Open(t), 4001)
	path := filepath.Join(t.TempDir(), "log")
	log, err := book.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Process: 1, Seed: 1, Socket: d.Socket(), Mix: Mix{Pace: time.Millisecond}}
	for port := range uint16(2) {
		at := netip.AddrPortFrom(d.Addr(), 4000+port)
		cfg.Private, cfg.Known = append(cfg.Private, Port{At: at}), append(cfg.Known, at)
	}
	w := &Worker{cfg: cfg, log: log, block: newBlock(cfg.Seed), offered: map[uint32][]offer{}, settling: make(chan struct{})}
	count := func(kind book.Kind) int {
		lines, err := book.Grep(path, 10, func(r book.Record) bool { return r.Kind == kind })
		if err != nil {
			t.Fatal(err)
		}
		return len(lines)
	}

	attached := make(chan *session, 1)
	go func() {
		s, err := w.attach()
		if err != nil {
			t.Error(err)
		}
		attached <- s
	}()
	for deadline := time.Now().Add(time.Minute); count(book.Unbound) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the second Bind is not refused")
		}
		time.Sleep(time.Millisecond) // between two looks
	}
	if err := owner.Close(); err != nil {
		t.Fatal(err)
	}
	s := <-attached
	if s == nil {
		t.Fatal("the session ended though its daemon did not")
	}
	if bound, closed := count(book.Bind), count(book.Close); bound != 2 || closed != 0 {
		t.Errorf("%d sockets were bound and %d closed, want 2 and 0", bound, closed)
	}
	close(w.settling)
	s.end()
}
