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
func (i *PeerInfo) LanePath() string {
	if i.Path == 0 {
		return strconv.Itoa(int(i.Lane))
	}
	return fmt.Sprintf("%d.%d", i.Lane, i.Path)
}

func byPeer(a, b PeerInfo) int {
	return cmp.Or(a.Remote.Compare(b.Remote), a.Local.Compare(b.Local), cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Path, b.Path))
}
