package ctl

import (
	"net/netip"
	"strings"
	"time"

	"github.com/rdsd/rdsd/internal/stats"
)

// A row of the statistics mapping is the form of a SocketInfo or PeerInfo that has a fixed
// size. The engine writes rows, and OfflineSockets and OfflinePeers read them.

// Row is the row of i without its distributions, which the engine sets. It has room for the
// beginning of the name only.
func (i *SocketInfo) Row() (r stats.Socket) {
	r = stats.Socket{Used: 1, Addr: i.Addr.As16(), Port: i.Port, Incarnation: i.Incarnation,
		PID: uint32(i.Owner.PID), UID: i.Owner.UID,
		SendMessages: i.SendMessages, SendBytes: i.SendBytes, RecvBytes: i.RecvBytes, RecvLimit: i.RecvLimit,
		Congested: bit(i.Congested), Ops: i.Ops, Oldest: uint64(i.OldestUnacked),
		SentMessages: i.Sent, SentBytes: i.SentBytes, GotMessages: i.Received, GotBytes: i.ReceivedBytes, PlacedBytes: i.PlacedBytes, ServedBytes: i.ServedBytes}
	stats.SetText(r.Name[:], i.Owner.Name)
	return r
}

func socketOf(r *stats.Socket) SocketInfo {
	return SocketInfo{Addr: addrOf(r.Addr), Port: r.Port, Incarnation: r.Incarnation,
		Owner:        Owner{PID: int(int32(r.PID)), UID: r.UID, Name: textOf(r.Name[:])},
		SendMessages: r.SendMessages, SendBytes: r.SendBytes, RecvBytes: r.RecvBytes, RecvLimit: r.RecvLimit,
		Congested: r.Congested != 0, Ops: r.Ops, OldestUnacked: time.Duration(r.Oldest),
		Sent: r.SentMessages, SentBytes: r.SentBytes, Received: r.GotMessages, ReceivedBytes: r.GotBytes,
		Served:      Served{r.PlacedBytes, r.ServedBytes},
		MessageTime: TimesOf(&r.Messages), OperationTime: TimesOf(&r.Operations)}
}

// Row is the row of i without its distributions, which the engine sets. It leaves out Why,
// TCPConns and the limits, and has room for the beginning of the last error only.
func (i *PeerInfo) Row() (r stats.Peer) {
	r = stats.Peer{Used: 1, Local: i.Local.As16(), Remote: i.Remote.As16(), Lane: i.Lane, Path: i.Path,
		Instance: uint64(i.Instance), Wanted: bit(i.Wanted), Kernel: bit(i.Kernel), TCPLanes: uint16(i.TCPLanes), CRC: bit(i.CRC),
		NextTx: i.NextTxSeq, Acked: i.AckedSeq, Rx: i.RxSeq,
		QueuedMessages: i.QueuedMessages, QueuedBytes: i.QueuedBytes, UnackedMessages: i.UnackedMessages, UnackedBytes: i.UnackedBytes,
		SendCredits: uint32(i.SendCredits), RecvCredits: uint32(i.RecvCredits),
		Resets: i.Resets, Retransmitted: i.Retransmitted, DroppedOps: i.DroppedOps, UnknownOps: i.UnknownOps, Lost: i.Lost,
		RTT: uint64(i.RTT), RTTLast: uint64(i.RTTLast), RTTLeast: uint64(i.RTTMin), Oldest: uint64(i.OldestUnacked),
		SentMessages: i.Sent, SentBytes: i.SentBytes, GotMessages: i.Received, GotBytes: i.ReceivedBytes, WrittenBytes: i.WrittenBytes, ReadBytes: i.ReadBytes,
		PlacedBytes: i.PlacedBytes, ServedBytes: i.ServedBytes}
	stats.SetText(r.State[:], i.State)
	stats.SetText(r.Transport[:], i.Transport)
	stats.SetText(r.TLS[:], i.TLS)
	stats.SetText(r.LastError[:], i.LastError)
	if !i.Since.IsZero() {
		r.Since = i.Since.UnixNano()
	}
	if !i.RTTAt.IsZero() {
		r.RTTAt = i.RTTAt.UnixNano()
	}
	if !i.LastErrorAt.IsZero() {
		r.LastErrorAt = i.LastErrorAt.UnixNano()
	}
	return r
}

func peerOf(r *stats.Peer) (i PeerInfo) {
	i = PeerInfo{Local: addrOf(r.Local), Remote: addrOf(r.Remote), Lane: r.Lane, Path: r.Path, State: textOf(r.State[:]),
		Instance: ID(r.Instance), Wanted: r.Wanted != 0, Kernel: r.Kernel != 0, Transport: textOf(r.Transport[:]), TCPLanes: int(r.TCPLanes), CRC: r.CRC != 0, TLS: textOf(r.TLS[:]),
		NextTxSeq: r.NextTx, AckedSeq: r.Acked, RxSeq: r.Rx,
		QueuedMessages: r.QueuedMessages, QueuedBytes: r.QueuedBytes, UnackedMessages: r.UnackedMessages, UnackedBytes: r.UnackedBytes,
		SendCredits: int(r.SendCredits), RecvCredits: int(r.RecvCredits),
		Resets: r.Resets, Retransmitted: r.Retransmitted, DroppedOps: r.DroppedOps, UnknownOps: r.UnknownOps, Lost: r.Lost,
		LastError: textOf(r.LastError[:]),
		RTT:       time.Duration(r.RTT), RTTLast: time.Duration(r.RTTLast), RTTMin: time.Duration(r.RTTLeast), OldestUnacked: time.Duration(r.Oldest),
		Sent: r.SentMessages, SentBytes: r.SentBytes, Received: r.GotMessages, ReceivedBytes: r.GotBytes, WrittenBytes: r.WrittenBytes, ReadBytes: r.ReadBytes,
		Served:      Served{r.PlacedBytes, r.ServedBytes},
		MessageTime: TimesOf(&r.Messages), OperationTime: TimesOf(&r.Operations)}
	if r.Since != 0 {
		i.Since = time.Unix(0, r.Since)
	}
	if r.RTTAt != 0 {
		i.RTTAt = time.Unix(0, r.RTTAt)
	}
	if r.LastErrorAt != 0 {
		i.LastErrorAt = time.Unix(0, r.LastErrorAt)
	}
	return i
}

func addrOf(b [16]byte) netip.Addr { return netip.AddrFrom16(b).Unmap() }

func textOf(field []byte) string { return strings.ToValidUTF8(stats.Text(field), "") }

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
