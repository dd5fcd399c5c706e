package ctl

import (
	"cmp"
	"net/netip"
	"strings"
	"time"

	"github.com/rdsd/rdsd/internal/stats"
)

// OfflineSockets answers KindSockets from the lists of a daemon that may be stuck or gone.
// It accepts any bytes in the lists.
func OfflineSockets(r *stats.ListReader) *Response {
	rows, torn := r.Sockets()
	resp := &Response{Sockets: make([]SocketInfo, len(rows))}
	for i := range rows {
		s := &rows[i]
		resp.Sockets[i] = SocketInfo{Addr: addrOf(s.Addr), Port: s.Port, Incarnation: s.Incarnation,
			Owner:        Owner{PID: int(int32(s.PID)), UID: s.UID, Name: textOf(s.Name[:])},
			SendMessages: s.SendMessages, SendBytes: s.SendBytes, RecvBytes: s.RecvBytes, RecvLimit: s.RecvLimit,
			Congested: s.Congested != 0, Ops: s.Ops}
	}
	info := r.Info()
	resp.offline(KindSockets, info.At, info.Sockets, len(rows), torn)
	Sort(resp.Sockets, func(a, b SocketInfo) int { return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port)) })
	return resp
}

// OfflinePeers is OfflineSockets for KindPeers.
func OfflinePeers(r *stats.ListReader) *Response {
	rows, torn := r.Peers()
	resp := &Response{Peers: make([]PeerInfo, len(rows))}
	for i := range rows {
		p := &rows[i]
		resp.Peers[i] = PeerInfo{Local: addrOf(p.Local), Remote: addrOf(p.Remote), Lane: p.Lane, State: textOf(p.State[:]),
			Instance: ID(p.Instance), Kernel: p.Kernel != 0, Transport: textOf(p.Transport[:]), TCPLanes: int(p.TCPLanes), CRC: p.CRC != 0, TLS: textOf(p.TLS[:]),
			NextTxSeq: p.NextTx, AckedSeq: p.Acked, RxSeq: p.Rx,
			QueuedMessages: p.QueuedMessages, QueuedBytes: p.QueuedBytes, UnackedMessages: p.UnackedMessages, UnackedBytes: p.UnackedBytes,
			SendCredits: int(p.SendCredits), RecvCredits: int(p.RecvCredits),
			Resets: p.Resets, Retransmitted: p.Retransmitted, DroppedOps: p.DroppedOps, UnknownOps: p.UnknownOps, Lost: p.Lost,
			LastError: textOf(p.LastError[:])}
		if p.Since != 0 {
			resp.Peers[i].Since = time.Unix(0, p.Since)
		}
	}
	info := r.Info()
	resp.offline(KindPeers, info.At, info.Peers, len(rows), torn)
	Sort(resp.Peers, func(a, b PeerInfo) int {
		return cmp.Or(a.Remote.Compare(b.Remote), a.Local.Compare(b.Local), cmp.Compare(a.Lane, b.Lane))
	})
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

func addrOf(b [16]byte) netip.Addr { return netip.AddrFrom16(b).Unmap() }

func textOf(field []byte) string { return strings.ToValidUTF8(stats.Text(field), "") }
