package engine

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/stats"
)

func TestListed(t *testing.T) {
	l := listed[int]{most: 3}
	xs := []int{10, 11, 12, 13}
	for i, want := range []uint16{1, 2, 3, 0} {
		if row := l.add(&xs[i]); row != want {
			t.Errorf("row %d, want %d", row, want)
		}
	}
	l.drop(2)
	seen := func(n int) (got []int) {
		l.each(n, func(i int, x *int) {
			if xs[i] != *x && i != 1 {
				t.Errorf("row %d has %d", i, *x)
			}
			got = append(got, *x)
		})
		return got
	}
	for _, tc := range []struct {
		n    int
		want []int
	}{{1, []int{10}}, {1, nil}, {2, []int{12, 10}}, {100, []int{12, 10}}, {0, nil}} {
		if got := seen(tc.n); !slices.Equal(got, tc.want) {
			t.Errorf("%d rows: %v, want %v", tc.n, got, tc.want)
		}
	}
	if row := l.add(&xs[3]); row != 2 {
		t.Errorf("row %d is free, got %d", 2, row)
	}
	if got := seen(3); !slices.Equal(got, []int{13, 12, 10}) {
		t.Error(got)
	}
}

// The lists say what the daemon answers, cost no allocation, and forget what was
// closed.
func TestPublishLists(t *testing.T) {
	r := newRig(t, 2)
	a, b := r.hosts[0], r.hosts[1]
	mem := make([]uint64, stats.ListSize/8)
	out, err := stats.NewLists(mem, stats.Info{})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := stats.NewListReader(mem)
	if err != nil {
		t.Fatal(err)
	}
	e := b.e
	e.watch.lists = newStatLists(out)
	s := e.addrs.all[0].ports.Get(b.port)
	e.watch.listSocket(s) // it was bound before there were lists
	a.open(b)
	a.put(0, 0)
	a.publish()
	r.until("delivery", func() bool { return b.got == 1 && a.back == 1 })
	e.peers.all[0].c.Reset(e.now, errors.New("an error for this test"))
	wall := Wall(time.Now().UnixNano())
	if n := testing.AllocsPerRun(100, func() { wall += Wall(time.Second); s.ops++; e.PublishLists(wall) }); n != 0 && !raceEnabled {
		t.Errorf("%v allocations, want 0", n)
	}
	e.PublishLists(wall + 1) // too soon
	socks, peers := ctl.OfflineSockets(reader), ctl.OfflinePeers(reader)
	if len(socks.Sockets) != 1 || !reflect.DeepEqual(socks.Sockets[0], withTimes(e.watch.socketInfo(s), s)) || !socks.AsOf.Equal(wall.Time()) || socks.Unlisted != 0 {
		t.Errorf("sockets %+v, want %+v", socks, e.watch.socketInfo(s))
	}
	want := e.watch.peerInfo(e.peers.all[0]).PeerInfo
	e.peers.all[0].took.in(&want.MessageTime, &want.OperationTime)
	if len(peers.Peers) != 1 || !reflect.DeepEqual(peers.Peers[0], want) || want.LastError != "an error for this test" || want.Resets != 1 {
		t.Errorf("peers\n%+v, want\n%+v", peers.Peers, want)
	}
	e.rx.leavePort(s)
	e.rx.leavePort(s)
	if socks := ctl.OfflineSockets(reader); len(socks.Sockets) != 0 {
		t.Errorf("left: %+v", socks.Sockets)
	}
}

func withTimes(i ctl.SocketInfo, s *socket) ctl.SocketInfo {
	took := s.took.copy()
	took.in(&i.MessageTime, &i.OperationTime)
	return i
}

// TestLastError: an error has the moment when it came. On a connection that is up it is gone after ten minutes.
func TestLastError(t *testing.T) {
	r := newRig(t, 2)
	e := r.hosts[0].e
	r.hosts[0].open(r.hosts[1])
	r.hosts[0].put(0, 0)
	r.hosts[0].publish()
	r.until("a peer", func() bool { return len(e.peers.all) == 1 })
	p := e.peers.all[0]
	look := func(state conn.State, since int64) (out ctl.PeerInfo) {
		e.watch.lastError(p, &conn.Info{State: state, Since: since, LastError: errors.New("refused")}, &out)
		return out
	}
	failed := e.now - int64(time.Minute)
	for _, tc := range []struct {
		state conn.State
		since int64
		later time.Duration
		text  string
	}{{conn.Down, failed, 0, "refused"}, {conn.Connecting, e.now, 0, "refused"}, {conn.Up, e.now, 8 * time.Minute, "refused"}, {conn.Up, e.now, 2 * time.Minute, ""}, {conn.Down, failed, 0, "refused"}} {
		e.now += int64(tc.later)
		i := look(tc.state, tc.since)
		if i.LastError != tc.text || tc.text != "" && !i.LastErrorAt.Equal(e.at(failed)) {
			t.Errorf("%v: %q at %v, want %q at %v", tc.state, i.LastError, i.LastErrorAt, tc.text, e.at(failed))
		}
	}
}
