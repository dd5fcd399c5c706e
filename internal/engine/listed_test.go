package engine

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

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
