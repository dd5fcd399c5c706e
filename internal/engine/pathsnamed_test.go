package engine

import (
	"errors"
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
)

// What happens to messages and connections is told with the path.
func TestPathsNamed(t *testing.T) {
	w, c, sock := pathPair(t, 4, 4)
	ups := map[Place]int{}
	w.es[0].cfg.Trace = func(at Place, event string, _ error) { ups[at] += int(b2u(event == "up")) }
	w.meet(c, sock)
	for path := range uint8(4) {
		at := Place{Local: hostAddr(0), Remote: hostAddr(1), Lane: ctl.LanePath{Path: path}, OfLane: true}
		if ups[at] != 1 {
			t.Errorf("path %d came up %d times: %v", path, ups[at], ups)
		}
	}
	const n = 3 // port 103
	ta, tb := begin(t, w.es[0], ctl.TraceSpec{}, root), begin(t, w.es[1], ctl.TraceSpec{}, root)
	for id, size := range []int{8, 60_000} {
		c[0].sendMsg(sock[0][n], n, uint32(40+id), size)
	}
	w.run()
	if got := c[1].read(); got != 2 {
		t.Fatalf("%d messages arrived, want 2", got)
	}
	w.run()
	for _, all := range [][]ctl.TraceEvent{ta.Read(100), tb.Read(100)} {
		if len(all) != 6 {
			t.Errorf("%d steps of two messages, want 6", len(all))
		}
		for _, e := range all {
			if e.LanePath() != "0.3" {
				t.Errorf("%s of a message of port 103 in lane %s, want 0.3", e.Step, e.LanePath())
			}
		}
	}
}

// A ping goes by the path that is asked for, if there is one.
func TestPingPath(t *testing.T) {
	w, c, sock := pathPair(t, 4, 3)
	e := w.es[0]
	ping := func(path uint8, pong chan struct{}) (*Ping, error) {
		return e.Ping(hostAddr(1), path, 8, pong, func(err error) { t.Error(err) })
	}
	if _, err := ping(1, nil); !errors.Is(err, ctl.ErrNotFound) {
		t.Errorf("a ping by path 1 of a host that nobody has met: %v", err)
	}
	w.meet(c, sock)
	for path := range uint8(3) {
		pong := make(chan struct{}, 1)
		x, err := ping(path, pong)
		if err != nil {
			t.Fatal(err)
		}
		before := w.pathConn(path).c.Stats().SendMsgs
		w.run()
		if i, ok := x.Peer(); len(pong) != 1 || !ok || i.Path != path || x.Paths() != 3 || before == w.pathConn(path).c.Stats().SendMsgs {
			t.Errorf("a ping by path %d: %d answers, by path %d of %d", path, len(pong), i.Path, x.Paths())
		}
		x.End()
	}
	if _, err := ping(3, nil); !errors.Is(err, ctl.ErrNotFound) {
		t.Errorf("a ping by path 3 of 3: %v", err)
	}
}
