package rpc

import (
	"context"
	"net/netip"
	"testing"
)

// TestNewCallBehindWaiting: while a worker is on its way to take a call that waits, a new call
// of the same caller does not pass it. Otherwise both would run, which is one more than
// PerCaller.
func TestNewCallBehindWaiting(t *testing.T) {
	v := &Server{o: ServerOptions{Handlers: 4, PerCaller: 3, Queue: 8}, active: map[callKey]*call{}, callers: map[netip.AddrPort]*caller{}}
	v.wake.L = &v.mu
	v.idle, v.workers = 4, 4 // the test is all four
	from := netip.MustParseAddrPort("127.0.0.1:1")
	admit := func(id uint64) {
		t.Helper()
		_, cancel := context.WithCancel(t.Context())
		if no := v.admit(&call{key: callKey{from, id}, cancel: cancel}); no.status != statusOK {
			t.Fatalf("call %d: %v", id, no.status)
		}
	}
	for id := range uint64(4) {
		admit(id)
	}
	first := v.take()
	v.take()
	v.take()
	v.done(first)
	admit(4) // before the worker that ran the first one takes the one that waits
	if c := v.take(); c.key.id != 3 || v.callers[from].busy != 3 {
		t.Errorf("call %d is next, and %d run, want call 3 and 3", c.key.id, v.callers[from].busy)
	}
}
