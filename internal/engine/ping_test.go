package engine

import "testing"

// TestPingPeer: a ping describes the connection that it goes by, lane 0, and none when
// there is none.
func TestPingPeer(t *testing.T) {
	w := newWorld(t, 2, Config{})
	e := w.es[0]
	ping := func(host int) *Ping {
		t.Helper()
		x, err := e.Ping(hostAddr(host), make(chan struct{}, 1), func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	x := ping(1)
	w.run()
	if _, err := e.peer(e.addrs.all[0], hostAddr(1), 1, nil); err != nil { // comes later in the list, and is down
		t.Fatal(err)
	}
	if i, ok := x.Peer(); !ok || i.Remote != hostAddr(1) || i.Lane != 0 || i.State != "up" {
		t.Errorf("known %v, %v lane %d is %s", ok, i.Remote, i.Lane, i.State)
	}
	x.End()
	if i, ok := ping(0).Peer(); ok {
		t.Errorf("a ping of this host goes by %+v", i)
	}
}
