package ctl

import (
	"cmp"
	"fmt"
	"strconv"
)

// bySocket and byPeer are the orders of the lists of sockets and peers.
func bySocket(a, b SocketInfo) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port))
}

// LanePath says which of the connections to a peer is meant.
type LanePath struct{ Lane, Path uint8 }

// String is the lane, and behind a point the path, unless that is 0.
func (l LanePath) String() string {
	if l.Path == 0 {
		return strconv.Itoa(int(l.Lane))
	}
	return fmt.Sprintf("%d.%d", l.Lane, l.Path)
}

// LanePath is the connection's lane and path.
func (i *PeerInfo) LanePath() string { return LanePath{i.Lane, i.Path}.String() }

// LanePath is the connection's lane and path.
func (s *StallInfo) LanePath() string { return LanePath{s.Lane, s.Path}.String() }

// LanePath is the message's lane and path.
func (e *TraceEvent) LanePath() string { return LanePath{e.Lane, e.Path}.String() }

// LanePath is the message's lane and path.
func (m *MergedMessage) LanePath() string { return LanePath{m.Lane, m.Path}.String() }

// LanePath is the lane and path of the connection that the event is about, "none" if it is about none.
func (ev *EventInfo) LanePath() string {
	if ev.Lane == nil {
		return "none"
	}
	return LanePath{*ev.Lane, ev.Path}.String()
}

func byPeer(a, b PeerInfo) int {
	return cmp.Or(a.Remote.Compare(b.Remote), a.Local.Compare(b.Local), cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Path, b.Path))
}
