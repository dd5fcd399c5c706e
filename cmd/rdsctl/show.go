package main

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/ctl"
)

func socketList() *listing[ctl.SocketInfo] {
	type S = ctl.SocketInfo
	return &listing[S]{
		kind:    ctl.KindSockets,
		items:   func(r *ctl.Response) []S { return r.Sockets },
		none:    "no socket is bound",
		offline: ctl.OfflineSockets,
		after: func(r *ctl.Response, notes *[]string) {
			if r.OtherSockets > 0 {
				*notes = append(*notes, fmt.Sprintf("%d sockets of other users are not shown", r.OtherSockets))
			}
		},
		columns: []column[S]{
			{head: "ADDR", field: "addr", text: func(s *S) string { return s.Addr.String() }},
			{head: "PORT", field: "port", text: func(s *S) string { return strconv.Itoa(int(s.Port)) }},
			{head: "INCARNATION", field: "incarnation", wide: true, text: func(s *S) string { return count(uint64(s.Incarnation)) }},
			{head: "PID", field: "owner.pid", text: func(s *S) string { return strconv.Itoa(s.Owner.PID) }},
			{head: "UID", field: "owner.uid", id: true, text: func(s *S) string { return count(uint64(s.Owner.UID)) }},
			{head: "NAME", field: "owner.name", text: func(s *S) string { return cell(s.Owner.Name, "unnamed") }},
			{head: "SEND-MSGS", field: "send_queued_messages", text: func(s *S) string { return count(s.SendMessages) }, total: sum(func(s *S) uint64 { return s.SendMessages })},
			{head: "SEND-BYTES", field: "send_queued_bytes", text: func(s *S) string { return count(s.SendBytes) }, total: sum(func(s *S) uint64 { return s.SendBytes })},
			{head: "RECV-BYTES", field: "recv_bytes", text: func(s *S) string { return count(s.RecvBytes) }, total: sum(func(s *S) uint64 { return s.RecvBytes })},
			{head: "RECV-LIMIT", field: "recv_limit_bytes", text: func(s *S) string { return count(s.RecvLimit) }},
			{head: "OLDEST", field: "oldest_unacked_ns", text: func(s *S) string { return age(s.OldestUnacked) }},
			{head: "P50", field: "message_time.p50_ns", wide: true, text: func(s *S) string { return took(s.MessageTime.P50) }},
			{head: "P99", field: "message_time.p99_ns", text: func(s *S) string { return took(s.MessageTime.P99) }},
			{head: "OP-P99", field: "operation_time.p99_ns", wide: true, text: func(s *S) string { return took(s.OperationTime.P99) }},
			{head: "SENT-MSGS", field: "sent_messages", wide: true, text: func(s *S) string { return count(s.Sent) }, total: sum(func(s *S) uint64 { return s.Sent })},
			{head: "SENT", field: "sent_bytes", text: func(s *S) string { return bytesText(s.SentBytes) }, total: sumBytes(func(s *S) uint64 { return s.SentBytes })},
			{head: "RECEIVED-MSGS", field: "received_messages", wide: true, text: func(s *S) string { return count(s.Received) }, total: sum(func(s *S) uint64 { return s.Received })},
			{head: "RECEIVED", field: "received_bytes", text: func(s *S) string { return bytesText(s.ReceivedBytes) }, total: sumBytes(func(s *S) uint64 { return s.ReceivedBytes })},
			{head: "PLACED", field: "rdma_placed_bytes", wide: true, text: func(s *S) string { return bytesText(s.PlacedBytes) }, total: sumBytes(func(s *S) uint64 { return s.PlacedBytes })},
			{head: "SERVED", field: "rdma_served_bytes", wide: true, text: func(s *S) string { return bytesText(s.ServedBytes) }, total: sumBytes(func(s *S) uint64 { return s.ServedBytes })},
			{head: "CONGESTED", field: "congested", text: func(s *S) string { return yesNo(s.Congested) }, tone: func(s *S) text.Color {
				if s.Congested {
					return busy
				}
				return 0
			}},
			{head: "OPS", field: "ops_outstanding", text: func(s *S) string { return count(s.Ops) }, total: sum(func(s *S) uint64 { return s.Ops })},
			{head: "UNRELIEVED", field: "unrelieved_destinations", text: func(s *S) string { return count(s.Unrelieved) }, total: sum(func(s *S) uint64 { return s.Unrelieved }),
				tone: func(s *S) text.Color {
					if s.Unrelieved > 0 {
						return busy
					}
					return 0
				}},
		},
	}
}

func processList() *listing[ctl.ProcessInfo] {
	type P = ctl.ProcessInfo
	return &listing[P]{
		kind:  ctl.KindProcesses,
		items: func(r *ctl.Response) []P { return r.Processes },
		none:  "no socket is bound, and every process has received what it was sent",
		after: func(r *ctl.Response, notes *[]string) {
			if r.OtherSockets > 0 {
				*notes = append(*notes, fmt.Sprintf("%d sockets of other users are not in the sums", r.OtherSockets))
			}
		},
		columns: []column[P]{
			{head: "PID", field: "owner.pid", text: func(p *P) string { return strconv.Itoa(p.Owner.PID) }},
			{head: "UID", field: "owner.uid", id: true, text: func(p *P) string { return count(uint64(p.Owner.UID)) }},
			{head: "NAME", field: "owner.name", text: func(p *P) string { return cell(p.Owner.Name, "unnamed") }},
			{head: "ACCOUNT", field: "owner.account", wide: true, text: func(p *P) string { return cell(p.Owner.Account, "") }},
			{head: "SOCKETS", field: "sockets", text: func(p *P) string { return count(p.Sockets) }, total: sum(func(p *P) uint64 { return p.Sockets })},
			{head: "CONGESTED", field: "congested_sockets", text: func(p *P) string { return count(p.Congested) }, total: sum(func(p *P) uint64 { return p.Congested })},
			{head: "QUEUED", field: "send_queued_messages", text: func(p *P) string { return count(p.SendMessages) }, total: sum(func(p *P) uint64 { return p.SendMessages })},
			{head: "UNREAD", field: "recv_bytes", text: func(p *P) string { return bytesText(p.RecvBytes) }, total: sumBytes(func(p *P) uint64 { return p.RecvBytes })},
			{head: "OPS", field: "ops_outstanding", text: func(p *P) string { return count(p.Ops) }, total: sum(func(p *P) uint64 { return p.Ops })},
			{head: "OLDEST", field: "oldest_unacked_ns", text: func(p *P) string { return age(p.OldestUnacked) }},
			{head: "P50", field: "message_time.p50_ns", text: func(p *P) string { return took(p.MessageTime.P50) }},
			{head: "P99", field: "message_time.p99_ns", text: func(p *P) string { return took(p.MessageTime.P99) }},
			{head: "OP-P99", field: "operation_time.p99_ns", text: func(p *P) string { return took(p.OperationTime.P99) }},
			{head: "SENT-MSGS", field: "sent_messages", wide: true, text: func(p *P) string { return count(p.Sent) }, total: sum(func(p *P) uint64 { return p.Sent })},
			{head: "SENT", field: "sent_bytes", text: func(p *P) string { return bytesText(p.SentBytes) }, total: sumBytes(func(p *P) uint64 { return p.SentBytes })},
			{head: "RECEIVED-MSGS", field: "received_messages", wide: true, text: func(p *P) string { return count(p.Received) }, total: sum(func(p *P) uint64 { return p.Received })},
			{head: "RECEIVED", field: "received_bytes", text: func(p *P) string { return bytesText(p.ReceivedBytes) }, total: sumBytes(func(p *P) uint64 { return p.ReceivedBytes })},
			{head: "PLACED", field: "rdma_placed_bytes", text: func(p *P) string { return bytesText(p.PlacedBytes) }, total: sumBytes(func(p *P) uint64 { return p.PlacedBytes })},
			{head: "SERVED", field: "rdma_served_bytes", text: func(p *P) string { return bytesText(p.ServedBytes) }, total: sumBytes(func(p *P) uint64 { return p.ServedBytes })},
			{head: "FDS", field: "unreceived_descriptors", text: unreceived, total: sum(func(p *P) uint64 { return p.Unreceived }),
				tone: func(p *P) text.Color {
					if p.Ended > 0 {
						return busy
					}
					return 0
				}},
		},
	}
}

// unreceived is how many descriptors a process has not received, and of how many sessions that
// have ended.
func unreceived(p *ctl.ProcessInfo) string {
	if p.Ended == 0 {
		return count(p.Unreceived)
	}
	return fmt.Sprintf("%s (%d ended)", count(p.Unreceived), p.Ended)
}

// took is a measured duration; "-" if none was measured.
func took(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return ctl.Rounded(d).String()
}

// age is the age of something that waits; "none" if nothing does.
func age(d time.Duration) string {
	if d == 0 {
		return "none"
	}
	return ctl.Rounded(d).String()
}

func peerList(now func() time.Time) *listing[ctl.PeerInfo] {
	type P = ctl.PeerInfo
	return &listing[P]{
		kind:    ctl.KindPeers,
		items:   func(r *ctl.Response) []P { return r.Peers },
		none:    "no connection was ever made",
		offline: ctl.OfflinePeers,
		columns: []column[P]{
			{head: "LOCAL", field: "local", text: func(p *P) string { return p.Local.String() }},
			{head: "REMOTE", field: "remote", text: func(p *P) string { return p.Remote.String() }},
			{head: "PEER", field: "remote", wide: true, text: peerKind},
			{head: "LANE", field: "lane", text: (*P).LanePath},
			{head: "STATE", field: "state", text: func(p *P) string { return cell(p.State, "unknown") },
				tone: func(p *P) text.Color { return stateTone(p.State, p.Missed()) }},
			{head: "FOR", field: "since", text: func(p *P) string { return ago(p.Since, now()) }},
			{head: "TRANSPORT", field: "transport", text: func(p *P) string { return transport(*p) }},
			{head: "WHY", field: "why", wide: true, text: func(p *P) string { return cell(p.Why, "unknown") }},
			{head: "TLS", field: "tls", text: tlsOf},
			{head: "CIPHER", field: "tls", wide: true, text: cipherOf},
			{head: "CRC", field: "crc", wide: true, text: func(p *P) string { return yesNo(p.CRC) }},
			{head: "QUEUED", field: "queued_messages", text: func(p *P) string { return count(p.QueuedMessages) }, total: sum(func(p *P) uint64 { return p.QueuedMessages })},
			{head: "QUEUED-BYTES", field: "queued_bytes", wide: true, text: func(p *P) string { return count(p.QueuedBytes) }, total: sum(func(p *P) uint64 { return p.QueuedBytes })},
			{head: "UNACKED", field: "unacked_messages", text: func(p *P) string { return count(p.UnackedMessages) }, total: sum(func(p *P) uint64 { return p.UnackedMessages })},
			{head: "UNACKED-BYTES", field: "unacked_bytes", wide: true, text: func(p *P) string { return count(p.UnackedBytes) }, total: sum(func(p *P) uint64 { return p.UnackedBytes })},
			{head: "OLDEST", field: "oldest_unacked_ns", text: func(p *P) string { return age(p.OldestUnacked) }},
			{head: "RTT", field: "rtt_ns", text: func(p *P) string { return took(p.RTT) }},
			{head: "RTT-MIN", field: "rtt_min_ns", wide: true, text: func(p *P) string { return took(p.RTTMin) }},
			{head: "P50", field: "message_time.p50_ns", wide: true, text: func(p *P) string { return took(p.MessageTime.P50) }},
			{head: "P99", field: "message_time.p99_ns", text: func(p *P) string { return took(p.MessageTime.P99) }},
			{head: "OP-P99", field: "operation_time.p99_ns", wide: true, text: func(p *P) string { return took(p.OperationTime.P99) }},
			{head: "SENT", field: "sent_bytes", wide: true, text: func(p *P) string { return bytesText(p.SentBytes) }, total: sumBytes(func(p *P) uint64 { return p.SentBytes })},
			{head: "RECEIVED", field: "received_bytes", wide: true, text: func(p *P) string { return bytesText(p.ReceivedBytes) }, total: sumBytes(func(p *P) uint64 { return p.ReceivedBytes })},
			{head: "WRITTEN", field: "rdma_written_bytes", wide: true, text: func(p *P) string { return bytesText(p.WrittenBytes) }, total: sumBytes(func(p *P) uint64 { return p.WrittenBytes })},
			{head: "READ", field: "rdma_read_bytes", wide: true, text: func(p *P) string { return bytesText(p.ReadBytes) }, total: sumBytes(func(p *P) uint64 { return p.ReadBytes })},
			{head: "PLACED", field: "rdma_placed_bytes", wide: true, text: func(p *P) string { return bytesText(p.PlacedBytes) }, total: sumBytes(func(p *P) uint64 { return p.PlacedBytes })},
			{head: "SERVED", field: "rdma_served_bytes", wide: true, text: func(p *P) string { return bytesText(p.ServedBytes) }, total: sumBytes(func(p *P) uint64 { return p.ServedBytes })},
			{head: "NEXT-TX", field: "next_tx_seq", wide: true, text: func(p *P) string { return count(p.NextTxSeq) }},
			{head: "ACKED", field: "acked_seq", wide: true, text: func(p *P) string { return count(p.AckedSeq) }},
			{head: "RX", field: "rx_seq", wide: true, text: func(p *P) string { return count(p.RxSeq) }},
			{head: "CREDITS", field: "send_credits", wide: true, text: func(p *P) string { return fmt.Sprintf("%d/%d", p.SendCredits, p.RecvCredits) }},
			{head: "RESETS", field: "resets", text: func(p *P) string { return count(p.Resets) }, total: sum(func(p *P) uint64 { return p.Resets })},
			{head: "RETRANS", field: "retransmitted_messages", wide: true, text: func(p *P) string { return count(p.Retransmitted) }, total: sum(func(p *P) uint64 { return p.Retransmitted })},
			{head: "DROPPED", field: "dropped_ops", wide: true, text: func(p *P) string { return count(p.DroppedOps) }, total: sum(func(p *P) uint64 { return p.DroppedOps })},
			{head: "UNKNOWN", field: "unknown_ops", wide: true, text: func(p *P) string { return count(p.UnknownOps) }, total: sum(func(p *P) uint64 { return p.UnknownOps })},
			{head: "LOST", field: "lost_messages", text: func(p *P) string { return count(p.Lost) }, total: sum(func(p *P) uint64 { return p.Lost })},
			{head: "INSTANCE", field: "instance", wide: true, text: func(p *P) string { return p.Instance.String() }},
			{head: "LIMITED", field: "holds", wide: true, left: true, text: limited},
			{head: "LAST-ERROR", field: "last_error", free: true, text: func(p *P) string { return cell(ctl.ErrorText(p.LastError, p.LastErrorAt, now()), "none") }},
		},
	}
}

func peerKind(p *ctl.PeerInfo) string {
	if p.Kernel {
		return "kernel"
	}
	return "rdsd"
}

// transport is what carries a connection. RDS/TCP has lanes of its own, and there may be
// several.
func transport(p ctl.PeerInfo) string {
	if p.TCPLanes > 0 {
		return fmt.Sprintf("%s/%d", p.Transport, p.TCPLanes)
	}
	return cell(p.Transport, "none")
}

// limited is how often the peer was over a limit of peers.*_per_s, and over which.
func limited(p *ctl.PeerInfo) string {
	by := strings.TrimPrefix(p.HeldBy, "peers.")
	switch {
	case p.Limitable == "none":
		return "cannot"
	case p.Held:
		return "now, " + by
	case p.Holds > 0:
		return count(p.Holds) + ", " + by
	case p.Limitable == "sends":
		return "no, RDMA cannot"
	case p.Limitable == "": // not connected yet, or offline
		return "unknown"
	}
	return "no"
}

// tlsOf says whether a connection is secured by TLS.
func tlsOf(p *ctl.PeerInfo) string {
	switch {
	case p.TLS != "":
		return "yes"
	case p.State == "up":
		return "plain"
	}
	return "-"
}

// cipherOf is the cipher suite of a connection, without the beginning that all suites share.
func cipherOf(p *ctl.PeerInfo) string { return cell(strings.TrimPrefix(p.TLS, "TLS_"), "-") }

func peerResetVerb(fs *flag.FlagSet) action {
	lane := fs.Int("lane", -1, "`lane` to reset, 0 to 255; -1: all lanes")
	path := fs.Int("path", -1, "`path` to reset in each of them, 0 to 7; -1: all paths")
	return func(ctx context.Context, a *app, o *options, arg string) int {
		addr, code := a.address(ctx, o, "peer reset", arg)
		if code != exitOK {
			return code
		}
		req := ctl.Request{Kind: ctl.KindPeerReset, Addr: addr}
		switch l := uint8(*lane); {
		case int(l) == *lane:
			req.Lane = &l
		case *lane != -1:
			return a.wrong("peer reset", "lane %d is not between 0 and 255", *lane)
		}
		switch n := uint8(*path); {
		case int(n) == *path && n < wire.MaxPaths:
			req.Path = &n
		case *path != -1:
			return a.wrong("peer reset", "path %d is not between 0 and %d", *path, wire.MaxPaths-1)
		}
		return a.ask(ctx, o, req, a.showReset(addr))
	}
}

func (a *app) showReset(addr netip.Addr) func(*ctl.Response) {
	return func(r *ctl.Response) {
		if r.PeerReset.Reset == 0 { // nothing was sent since the last reset
			fmt.Fprintf(a.stdout, "%v: no connection is up, there is nothing to reset; the next message makes one\n", addr)
			return
		}
		fmt.Fprintf(a.stdout, "%v: %d connection(s) reset\n", addr, r.PeerReset.Reset)
	}
}
