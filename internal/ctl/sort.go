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

// LanePath is the connection's lane, and behind a point its path, unless that is 0.
func (i *PeerInfo) LanePath() string { return lanePath(i.Lane, i.Path) }

func lanePath(lane, path uint8) string {
	if path == 0 {
		return strconv.Itoa(int(lane))
	}
	return fmt.Sprintf("%d.%d", lane, path)
}

func byPeer(a, b PeerInfo) int {
	return cmp.Or(a.Remote.Compare(b.Remote), a.Local.Compare(b.Local), cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Path, b.Path))
}
