package ctl

import (
	"time"

	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/stats"
)

// OfflineSockets answers KindSockets from the lists of a daemon that may be stuck or gone.
// It accepts any bytes in the lists.
func OfflineSockets(r *stats.ListReader) *Response {
	rows, torn := r.Sockets()
	resp := &Response{Sockets: make([]SocketInfo, len(rows))}
	for i := range rows {
		resp.Sockets[i] = socketOf(&rows[i])
	}
	info := r.Info()
	resp.offline(KindSockets, info.At, info.Sockets, len(rows), torn)
	lists.Sort(resp.Sockets, bySocket)
	return resp
}

// OfflinePeers is OfflineSockets for KindPeers.
func OfflinePeers(r *stats.ListReader) *Response {
	rows, torn := r.Peers()
	resp := &Response{Peers: make([]PeerInfo, len(rows))}
	for i := range rows {
		resp.Peers[i] = peerOf(&rows[i])
	}
	info := r.Info()
	resp.offline(KindPeers, info.At, info.Peers, len(rows), torn)
	lists.Sort(resp.Peers, byPeer)
	return resp
}

// offline fills in the fields that lists of n items, out of all, share.
func (r *Response) offline(kind Kind, at int64, all uint64, n, torn int) {
	r.Schema, r.Kind, r.Offline = Schema, kind, true
	r.AsOf = time.Unix(0, at)
	r.Unlisted = uint64(torn)
	if all > uint64(n+torn) {
		r.Unlisted = all - uint64(n)
	}
}
