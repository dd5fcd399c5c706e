package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/rdsd/rdsd/internal/ctl"
)

// oldInfo is the program under the name rds-info, with the flags and columns of rds-tools.
// Those columns have no room for IPv6, so IPv6 rows follow in a section of their own.
type oldInfo struct {
	w, errs io.Writer
	verbose bool
}

// oldUsage is rds-info's exit status for a wrong command line.
const oldUsage = 1

// failed prints what rds-info prints for a table that it does not get.
func (i *oldInfo) failed(why string) {
	fmt.Fprintf(i.errs, "rds-info: Unable get statistics: %s\n", why)
}

// oldTable is one table of rds-info.
type oldTable struct {
	flag string
	ask  ctl.Request
	show func(i *oldInfo, r *ctl.Response)
}

func oldTables() []oldTable {
	message := func(flag, queue, title string) oldTable {
		return oldTable{flag, ctl.Request{Kind: ctl.KindQueues, Queue: queue, Limit: ctl.MaxLimit}, func(i *oldInfo, r *ctl.Response) { i.messages(title, r) }}
	}
	return []oldTable{ // in rds-info's order of letters
		{"I", ctl.Request{Kind: ctl.KindPeers}, (*oldInfo).ib},
		{"T", ctl.Request{Kind: ctl.KindPeers}, (*oldInfo).tcp},
		{"c", ctl.Request{Kind: ctl.KindStatus}, (*oldInfo).counters},
		{"k", ctl.Request{Kind: ctl.KindSockets}, (*oldInfo).sockets},
		{"n", ctl.Request{Kind: ctl.KindPeers}, (*oldInfo).connections},
		message("r", ctl.QueueRecv, "Receive"),
		message("s", ctl.QueueSend, "Send"),
		message("t", ctl.QueueRetrans, "Retransmit"),
	}
}

func (a *app) oldInfo(ctx context.Context, args []string) int {
	fs := flag.NewFlagSet("rds-info", flag.ContinueOnError)
	fs.SetOutput(a.stderr)
	fs.Usage = func() { fmt.Fprint(a.stderr, "usage: rds-info [-cIknrstTv] [-socket path]\n") }
	o := newOptions()
	fs.StringVar(&o.socket, "socket", "", "")
	tables := oldTables()
	wanted := make([]bool, len(tables))
	for i, t := range tables {
		fs.BoolVar(&wanted[i], t.flag, false, "")
	}
	info := &oldInfo{w: a.stdout, errs: a.stderr}
	fs.BoolVar(&info.verbose, "v", false, "")
	words, err := parseMixed(fs, together(args, tables))
	if err != nil {
		return oldUsage // fs has printed why
	}
	if len(words) > 0 {
		fmt.Fprintf(a.stderr, "rds-info: %q is not a flag\n", words[0])
		fs.Usage()
		return oldUsage
	}
	all := true
	for _, w := range wanted {
		all = all && !w
	}
	// As in rds-info, a table that fails does not stop the others.
	code := exitOK
	for i, t := range tables {
		if !all && !wanted[i] {
			continue
		}
		_, r, err := a.once(ctx, o, t.ask)
		if err != nil {
			info.failed(printable(err.Error()) + cure(err))
			if code, _ = exitOf(err); code == exitNoDaemon {
				return code
			}
			continue
		}
		t.show(info, r)
	}
	return code
}

// together splits flags of one letter that were written as one, such as -kn.
func together(args []string, tables []oldTable) (out []string) {
	letters := "v"
	for _, t := range tables {
		letters += t.flag
	}
	for _, arg := range args {
		if len(arg) > 2 && arg[0] == '-' && strings.Trim(arg[1:], letters) == "" {
			for _, l := range arg[1:] {
				out = append(out, "-"+string(l))
			}
			continue
		}
		out = append(out, arg)
	}
	return out
}

func (i *oldInfo) line(format string, args ...any) { fmt.Fprintf(i.w, format+"\n", args...) }

// both shows the rows of IPv4 in the usual columns, and those of IPv6, if there are any,
// under a title of their own.
func both[T any](i *oldInfo, title string, items []T, addr func(*T) netip.Addr, head func(width int), row func(width int, x *T)) {
	i.line("\n%s:", title)
	head(15)
	six := false
	for k := range items {
		if addr(&items[k]).Is4() {
			row(15, &items[k])
		} else {
			six = true
		}
	}
	if !six {
		return
	}
	i.line("\n%s (IPv6):", title)
	head(39)
	for k := range items {
		if !addr(&items[k]).Is4() {
			row(39, &items[k])
		}
	}
}

func (i *oldInfo) counters(r *ctl.Response) {
	i.line("\nCounters:\n%25s %16s", "CounterName", "Value")
	for _, c := range r.Status.Counters {
		i.line("%25s %16d", printable(c.Name), c.Value)
	}
}

func (i *oldInfo) sockets(r *ctl.Response) {
	both(i, "RDS Sockets", r.Sockets, func(s *ctl.SocketInfo) netip.Addr { return s.Addr },
		func(w int) {
			i.line("%*s %5s %*s %5s %10s %10s %8s", w, "BoundAddr", "BPort", w, "ConnAddr", "CPort", "SndBuf", "RcvBuf", "Inode")
		},
		func(w int, s *ctl.SocketInfo) {
			none := "0.0.0.0" // the daemon does not know what a socket is connected to, nor its send buffer
			if !s.Addr.Is4() {
				none = "::"
			}
			i.line("%*s %5d %*s %5d %10d %10d %8d", w, s.Addr, s.Port, w, none, 0, 0, s.RecvLimit, s.Incarnation)
		})
}

func (i *oldInfo) connections(r *ctl.Response) {
	both(i, "RDS Connections", r.Peers, func(p *ctl.PeerInfo) netip.Addr { return p.Local },
		func(w int) {
			i.line("%*s %*s %4s %16s %16s %4s", w, "LocalAddr", w, "RemoteAddr", "Tos", "NextTX", "NextRX", "Flgs")
		},
		func(w int, p *ctl.PeerInfo) {
			flags := map[string]string{"up": "--C-", "connecting": "-c--", "error": "---E"}[p.State]
			if flags == "" {
				flags = "----"
			}
			i.line("%*s %*s %4d %16d %16d %4s", w, p.Local, w, p.Remote, p.Lane, p.NextTxSeq, p.RxSeq+1, flags)
		})
}

// messages lists the messages of a receive queue as they came, and others in the order of
// connections and sequences.
func (i *oldInfo) messages(title string, r *ctl.Response) {
	if title != "Receive" {
		slices.SortStableFunc(r.Queues, func(a, b ctl.MessageInfo) int {
			return cmp.Or(a.Local.Compare(b.Local), a.Remote.Compare(b.Remote), cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Seq, b.Seq))
		})
	}
	both(i, title+" Message Queue", r.Queues, func(m *ctl.MessageInfo) netip.Addr { return m.Local },
		func(w int) {
			i.line("%*s %5s %*s %5s %4s %16s %10s", w, "LocalAddr", "LPort", w, "RemoteAddr", "RPort", "Tos", "Seq", "Bytes")
		},
		func(w int, m *ctl.MessageInfo) {
			i.line("%*s %5d %*s %5d %4d %16d %10d", w, m.Local, m.LocalPort, w, m.Remote, m.RemotePort, m.Lane, m.Seq, m.Bytes)
		})
}

// oldTCP is one TCP connection.
type oldTCP struct {
	*ctl.PeerInfo
	ctl.TCPConn
}

// tcp lists the TCP connections of RDS/TCP. If there is no such transport, it says so on
// standard error, as rds-info does.
func (i *oldInfo) tcp(r *ctl.Response) {
	var conns []oldTCP
	none := true
	for k := range r.Peers {
		p := &r.Peers[k]
		none = none && p.Transport != "tcp"
		for _, c := range p.TCPConns {
			conns = append(conns, oldTCP{p, c})
		}
	}
	if none {
		i.failed("Protocol not available")
		return
	}
	both(i, "TCP Connections", conns, func(c *oldTCP) netip.Addr { return c.Local },
		func(w int) {
			i.line("%*s %5s %*s %5s %10s %10s %10s %10s %10s", w, "LocalAddr", "LPort", w, "RemoteAddr", "RPort", "HdrRemain", "DataRemain", "SentNxt", "ExpectUna", "SeenUna")
		},
		func(w int, c *oldTCP) {
			i.line("%*s %5d %*s %5d %10d %10d %10d %10d %10d", w, c.Local, c.LocalPort, w, c.Remote, c.RemotePort, c.HdrRemain, c.DataRemain, uint32(c.TCPConn.Sent), uint32(c.Awaited), uint32(c.Acked))
		})
}

// ib lists the connections by queue pairs, over adapters or in software.
func (i *oldInfo) ib(r *ctl.Response) {
	i.peersOf(r, "RDS IB Connections", func(p *ctl.PeerInfo) bool { return p.Transport != "tcp" },
		func(w int) {
			i.line("%*s %*s %4s %3s %32s %32s", w, "LocalAddr", w, "RemoteAddr", "Tos", "SL", "LocalDev", "RemoteDev")
		},
		func(w int, p *ctl.PeerInfo) {
			local, remote := "::", "::"
			if p.State == "up" { // the device has no GID, so this is the address as one
				local, remote = gid(p.Local), gid(p.Remote)
			}
			more := ""
			if i.verbose { // rdsd has no such limits for a connection
				more = "  send_wr=0, recv_wr=0, send_sge=0, rdma_mr_max=0, rdma_mr_size=0, cache_allocs=0"
			}
			i.line("%*s %*s %4d %3d %32s %32s%s", w, p.Local, w, p.Remote, p.Lane, p.Lane&0xf, local, remote, more)
		})
}

func gid(a netip.Addr) string { return netip.AddrFrom16(a.As16()).String() }

func (i *oldInfo) peersOf(r *ctl.Response, title string, is func(*ctl.PeerInfo) bool, head func(int), row func(int, *ctl.PeerInfo)) {
	var peers []ctl.PeerInfo
	for k := range r.Peers {
		if is(&r.Peers[k]) {
			peers = append(peers, r.Peers[k])
		}
	}
	both(i, title, peers, func(p *ctl.PeerInfo) netip.Addr { return p.Local }, head, row)
}
