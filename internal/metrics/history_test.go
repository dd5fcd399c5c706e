package metrics

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/stats"
)

// value is the value of a series in a row of History.after.
func value(t *testing.T, row []float64, name string) float64 {
	t.Helper()
	i := slices.Index(seriesNames[:], name)
	if i < 0 || len(row) != len(seriesNames)+1 {
		t.Fatalf("%s is the series %d of %d", name, i, len(row)-1)
	}
	return row[i+1]
}

// TestHistory: rates are those between two samples, ten minutes are kept, and of peers no
// more than MaxPeers.
func TestHistory(t *testing.T) {
	src, b := source(t, noPeers)
	mem := make([]uint64, stats.ListSize/8)
	lists, err := stats.NewLists(mem, stats.Info{})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := stats.NewListReader(mem)
	if err != nil {
		t.Fatal(err)
	}
	h := NewHistory(src.Stats, reader)
	now := time.Unix(1e9, 0)
	row := stats.Peer{Used: 1, Local: netip.MustParseAddr("10.0.0.1").As16(), Remote: netip.MustParseAddr("10.0.0.2").As16()}
	next := func() {
		b.C[stats.SendQueued] += 200
		b.C[stats.Sockets] = 3
		b.C[stats.HeldBytes] = 77
		b.Messages.Add(stats.TimeBucket(1e6), 1e6, 10)
		row.SentBytes += 2000
		row.ReadBytes += 200
		lists.PutPeer(0, &row)
		b.Publish(now.UnixNano())
		h.sample(now)
		now = now.Add(historyEvery)
	}
	next()
	if got := h.after(0); len(got) != 0 {
		t.Errorf("one sample has no rate: %v", got)
	}
	for range 400 {
		next()
	}
	all := h.after(0)
	if len(all) != historyKeep || all[0][0] != float64(now.Add(-historyKeep*historyEvery).UnixMilli()) {
		t.Fatalf("%d samples from %v", len(all), all[0][0])
	}
	newest := all[len(all)-1]
	for name, want := range map[string]float64{"sent_messages": 100, "received_messages": 0, "held_bytes": 77, "operation_p99": 0} {
		if got := value(t, newest, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := value(t, newest, "message_p99"); got < 0.0005 || got > 0.002 {
		t.Errorf("p99 is %v, want about 1 ms", got)
	}
	if got := h.after(int64(all[len(all)-3][0])); len(got) != 2 {
		t.Errorf("%d samples, want 2", len(got))
	}
	peer := ctl.PeerInfo{Local: netip.MustParseAddr("10.0.0.1"), Remote: netip.MustParseAddr("10.0.0.2")}
	p := h.of(peer)
	if p.SentRate != 1000 || p.ReceivedRate != 100 || len(p.Trail) != trailKeep || p.Trail[trailKeep-1] != 1100 {
		t.Errorf("%+v", p)
	}
	row.SentBytes = 5 // forgotten, and met again
	next()
	if p := h.of(peer); p.SentRate != 0 || len(p.Trail) != 0 {
		t.Errorf("of another life: %+v", p)
	}
	for i := range stats.MaxPeers {
		row.Remote = netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).As16()
		lists.PutPeer(i, &row)
	}
	h.sample(now)
	if len(h.peers) > MaxPeers {
		t.Errorf("%d trails", len(h.peers))
	}
	for i := range stats.MaxPeers {
		lists.PutPeer(i, &stats.Peer{})
	}
	h.sample(now.Add(historyEvery))
	if len(h.peers) != 0 {
		t.Errorf("%d trails of peers that are gone", len(h.peers))
	}
	now = now.Add(-time.Hour) // the clock was set back
	next()
	next()
	if got := h.after(0); len(got) != 2 || got[0][0] >= got[1][0] {
		t.Errorf("after the clock was set back: %v", got)
	}
	if p := h.of(peer); p.Trail == nil {
		t.Error("null instead of an empty trail")
	}
	b2, err := json.Marshal(h.of(peer))
	if err != nil || !json.Valid(b2) {
		t.Error(err)
	}
}
