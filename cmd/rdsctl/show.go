package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
)

func socketsVerb(*flag.FlagSet) action {
	return func(ctx context.Context, a *app, o *options, _ string) int {
		return a.ask(ctx, o, ctl.Request{Kind: ctl.KindSockets}, func(r *ctl.Response) {
			showSockets(a.stdout, r.Sockets)
			if r.OtherSockets > 0 {
				fmt.Fprintf(a.stdout, "%d sockets of other users are not shown\n", r.OtherSockets)
			}
		})
	}
}

func showSockets(w io.Writer, sockets []ctl.SocketInfo) {
	header := []string{"ADDR", "PORT", "INCARNATION", "PID", "UID", "NAME", "SEND-MSGS", "SEND-BYTES", "RECV-BYTES", "RECV-LIMIT", "CONGESTED", "OPS"}
	var rows [][]string
	for _, s := range sockets {
		rows = append(rows, []string{
			s.Addr.String(), strconv.Itoa(int(s.Port)), count(uint64(s.Incarnation)),
			strconv.Itoa(s.Owner.PID), count(uint64(s.Owner.UID)), cell(s.Owner.Name, "unnamed"),
			count(s.SendMessages), count(s.SendBytes), count(s.RecvBytes), count(s.RecvLimit),
			yesNo(s.Congested), count(s.Ops),
		})
	}
	table(w, header, rows)
}

func peersVerb(*flag.FlagSet) action {
	return func(ctx context.Context, a *app, o *options, _ string) int {
		return a.ask(ctx, o, ctl.Request{Kind: ctl.KindPeers}, func(r *ctl.Response) { showPeers(a.stdout, r.Peers, time.Now()) })
	}
}

func showPeers(w io.Writer, peers []ctl.PeerInfo, now time.Time) {
	header := []string{"LOCAL", "REMOTE", "LANE", "STATE", "FOR", "TRANSPORT", "TLS", "CRC", "QUEUED", "UNACKED",
		"NEXT-TX", "ACKED", "RX", "CREDITS", "RESETS", "RETRANS", "DROPPED", "UNKNOWN", "LOST", "LAST-ERROR"}
	var rows [][]string
	for _, p := range peers {
		rows = append(rows, []string{
			p.Local.String(), p.Remote.String(), strconv.Itoa(int(p.Lane)), cell(p.State, "unknown"), ago(p.Since, now),
			transport(p), tlsOf(&p), yesNo(p.CRC), count(p.QueuedMessages), count(p.UnackedMessages),
			count(p.NextTxSeq), count(p.AckedSeq), count(p.RxSeq),
			fmt.Sprintf("%d/%d", p.SendCredits, p.RecvCredits),
			count(p.Resets), count(p.Retransmitted), count(p.DroppedOps), count(p.UnknownOps), count(p.Lost),
			cell(p.LastError, "none"),
		})
	}
	table(w, header, rows)
}

// transport is its name, and how many connections it has if that may be several.
func transport(p ctl.PeerInfo) string {
	if p.TCPLanes > 0 {
		return fmt.Sprintf("%s/%d", p.Transport, p.TCPLanes)
	}
	return cell(p.Transport, "none")
}

// tlsOf is the suite of a connection, without what all of them begin with.
func tlsOf(p *ctl.PeerInfo) string {
	if p.TLS == "" && p.State != "up" {
		return "-"
	}
	return cell(strings.TrimPrefix(p.TLS, "TLS_"), "plain")
}

func peerResetVerb(fs *flag.FlagSet) action {
	lane := fs.Int("lane", -1, "`lane` to reset, 0 to 255; -1: all lanes")
	return func(ctx context.Context, a *app, o *options, arg string) int {
		addr, code := a.address("peer reset", arg)
		if code != exitOK {
			return code
		}
		req := ctl.Request{Kind: ctl.KindPeerReset, Addr: addr}
		switch l := uint8(*lane); {
		case int(l) == *lane:
			req.Lane = &l
		case *lane != -1:
			fmt.Fprintf(a.stderr, "rdsctl: peer reset: lane %d is not between 0 and 255\n", *lane)
			return exitUsage
		}
		return a.ask(ctx, o, req, a.showReset(addr))
	}
}

func (a *app) showReset(addr netip.Addr) func(*ctl.Response) {
	return func(r *ctl.Response) {
		fmt.Fprintf(a.stdout, "%v: %d connection(s) reset\n", addr, r.PeerReset.Reset)
	}
}

// address parses a verb's ADDR; other than exitOK is the usage error's status.
func (a *app) address(verb, s string) (netip.Addr, int) {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		fmt.Fprintf(a.stderr, "rdsctl: %s: %q is not an IP address\n", verb, s)
		return addr, exitUsage
	}
	return addr.Unmap(), exitOK
}
