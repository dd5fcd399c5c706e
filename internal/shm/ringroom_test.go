package shm

import "testing"

// TestFreeAtLeast: a producer that asks for more than a quarter of the ring learns what the consumer has taken.
func TestFreeAtLeast(t *testing.T) {
	p := smallParams
	p.SubEntries = 8
	daemon, client := bothViews(t, p)
	pr, c := client.SubProducer(), daemon.SubConsumer()
	for range 4 {
		pr.Reserve()
	}
	pr.Publish()
	for e := (Entry{}); c.Next(&e); {
	}
	if !pr.FreeAtLeast(4) || pr.FreeAtLeast(5) {
		t.Error("5 of 8 are free before Release")
	}
	if c.Release(); !pr.FreeAtLeast(8) || pr.FreeAtLeast(9) {
		t.Error("not all are free after Release")
	}
}
