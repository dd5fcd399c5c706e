package main

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rdsd/rdsd/internal/ctl"
)

func place(a netip.Addr, port uint16) string {
	if !a.IsValid() {
		return "none"
	}
	return netip.AddrPortFrom(a, port).String()
}

func process(o *ctl.Owner) string { return fmt.Sprintf("%s[%d]", cell(o.Name, "unnamed"), o.PID) }

func queueList() *listing[ctl.MessageInfo] {
	type M = ctl.MessageInfo
	return &listing[M]{
		kind:  ctl.KindQueues,
		items: func(r *ctl.Response) []M { return r.Queues },
		none:  "no message waits",
		columns: []column[M]{
			{head: "QUEUE", field: "queue", text: func(m *M) string { return m.Queue }},
			{head: "LOCAL", field: "local", text: func(m *M) string { return place(m.Local, m.LocalPort) }},
			{head: "REMOTE", field: "remote", text: func(m *M) string { return place(m.Remote, m.RemotePort) }},
			{head: "LANE", field: "lane", text: func(m *M) string { return strconv.Itoa(int(m.Lane)) }},
			{head: "SEQ", field: "seq", text: func(m *M) string { return count(m.Seq) }},
			{head: "BYTES", field: "length_bytes", text: func(m *M) string { return count(m.Bytes) }, total: sum(func(m *M) uint64 { return m.Bytes })},
			{head: "OPS", field: "operations", text: func(m *M) string { return strconv.Itoa(m.Ops) }, total: sum(func(m *M) uint64 { return uint64(m.Ops) })},
			{head: "AGE", field: "age_ns", text: func(m *M) string { return short(m.Age) }},
			{head: "OWNER", field: "owner.name", text: func(m *M) string { return process(&m.Owner) }},
			{head: "UID", field: "owner.uid", id: true, wide: true, text: func(m *M) string { return count(uint64(m.Owner.UID)) }},
		},
	}
}

// queuesVerb takes the queue as its argument.
func queuesVerb(*flag.FlagSet) action {
	return func(ctx context.Context, a *app, o *options, queue string) int {
		switch queue {
		case "", ctl.QueueSend, ctl.QueueRetrans, ctl.QueueRecv:
		default:
			return a.wrong("queues", "%q is none of send, retrans, recv", queue)
		}
		return queueList().run(ctx, a, o, ctl.Request{Queue: queue})
	}
}

func backlogList() *listing[ctl.BacklogInfo] {
	type B = ctl.BacklogInfo
	return &listing[B]{
		kind:  ctl.KindBacklog,
		items: func(r *ctl.Response) []B { return r.Backlog },
		none:  "nothing is in progress",
		columns: []column[B]{
			{head: "SOCKET", field: "addr", text: func(b *B) string { return place(b.Addr, b.Port) }},
			{head: "DIR", field: "direction", text: func(b *B) string { return b.Direction }},
			{head: "DEST", field: "dest", text: func(b *B) string { return place(b.Dest, b.DestPort) }},
			{head: "LANE", field: "lane", text: func(b *B) string { return strconv.Itoa(int(b.Lane)) }},
			{head: "QUEUED", field: "queued_bytes", text: func(b *B) string { return pair(b.QueuedMessages, b.QueuedBytes) },
				total: sumPair(func(b *B) uint64 { return b.QueuedMessages }, func(b *B) uint64 { return b.QueuedBytes })},
			{head: "UNACKED", field: "unacked_bytes", text: func(b *B) string { return pair(b.UnackedMessages, b.UnackedBytes) },
				total: sumPair(func(b *B) uint64 { return b.UnackedMessages }, func(b *B) uint64 { return b.UnackedBytes })},
			{head: "UNREAD", field: "unread_bytes", text: func(b *B) string { return pair(b.UnreadMessages, b.UnreadBytes) },
				total: sumPair(func(b *B) uint64 { return b.UnreadMessages }, func(b *B) uint64 { return b.UnreadBytes })},
			{head: "OPS", field: "operations", text: func(b *B) string { return count(b.Ops) }, total: sum(func(b *B) uint64 { return b.Ops })},
			{head: "OLDEST", field: "oldest_ns", text: func(b *B) string { return short(b.Oldest) }},
			{head: "WAITS-FOR", field: "waits_for", text: waitsFor, tone: func(b *B) text.Color {
				if b.WaitsFor != ctl.WaitsForNobody {
					return busy
				}
				return 0
			}},
			{head: "OWNER", field: "owner.name", text: func(b *B) string { return process(&b.Owner) }},
			{head: "UID", field: "owner.uid", id: true, wide: true, text: func(b *B) string { return count(uint64(b.Owner.UID)) }},
			{head: "CONGESTED", field: "congested", wide: true, text: func(b *B) string { return yesNo(b.Congested) }},
		},
	}
}

// waitsFor names who has to act for b, and the destination if only a sender in the process waits for it.
func waitsFor(b *ctl.BacklogInfo) string {
	if b.WaitsFor == ctl.WaitsForRelief {
		return "relief of " + place(b.Dest, b.DestPort)
	}
	return cell(b.WaitsFor, "unknown")
}

func keyList() *listing[ctl.KeyInfo] {
	type K = ctl.KeyInfo
	return &listing[K]{
		kind:  ctl.KindKeys,
		items: func(r *ctl.Response) []K { return r.Keys },
		none:  "no region is registered",
		columns: []column[K]{
			{head: "SOCKET", field: "addr", text: func(k *K) string { return place(k.Addr, k.Port) }},
			{head: "BUFFER", field: "buffer", text: func(k *K) string { return count(uint64(k.Buffer)) }},
			{head: "OFFSET", field: "offset_bytes", text: func(k *K) string { return count(k.Offset) }},
			{head: "LENGTH", field: "length_bytes", text: func(k *K) string { return count(k.Length) }, total: sum(func(k *K) uint64 { return k.Length })},
			{head: "RIGHTS", field: "rights", text: func(k *K) string { return cell(k.Rights, "none") }},
			{head: "ONCE", field: "use_once", text: func(k *K) string { return yesNo(k.UseOnce) }},
			{head: "OPEN", field: "open", text: func(k *K) string { return yesNo(k.Open) }},
			{head: "STATE", field: "state", text: func(k *K) string { return cell(k.State, "unknown") }},
			{head: "GRANTS", field: "grants", text: func(k *K) string { return strconv.Itoa(k.Grants) }},
			{head: "PLACED", field: "rdma_placed_bytes", text: func(k *K) string { return bytesText(k.PlacedBytes) }, total: sumBytes(func(k *K) uint64 { return k.PlacedBytes })},
			{head: "SERVED", field: "rdma_served_bytes", text: func(k *K) string { return bytesText(k.ServedBytes) }, total: sumBytes(func(k *K) uint64 { return k.ServedBytes })},
			{head: "OWNER", field: "owner.name", text: func(k *K) string { return process(&k.Owner) }},
			{head: "UID", field: "owner.uid", id: true, wide: true, text: func(k *K) string { return count(uint64(k.Owner.UID)) }},
		},
	}
}

func barrierList() *listing[ctl.BarrierInfo] {
	type B = ctl.BarrierInfo
	return &listing[B]{
		kind:  ctl.KindBarriers,
		items: func(r *ctl.Response) []B { return r.Barriers },
		none:  "no socket has had operations",
		columns: []column[B]{
			{head: "SOCKET", field: "addr", text: func(b *B) string { return place(b.Addr, b.Port) }},
			{head: "DEST", field: "dest", text: func(b *B) string { return cell(b.Dest.String(), "none") }},
			{head: "LANE", field: "lane", text: func(b *B) string { return strconv.Itoa(int(b.Lane)) }},
			{head: "ISSUED", field: "last_issued", text: func(b *B) string { return count(b.Issued) }},
			{head: "MARK", field: "high_water_mark", text: func(b *B) string { return count(b.HWM) }},
			{head: "PENDING", field: "pending_operations", text: func(b *B) string { return count(b.Pending) }, total: sum(func(b *B) uint64 { return b.Pending })},
			{head: "OWNER", field: "owner.name", text: func(b *B) string { return process(&b.Owner) }},
			{head: "UID", field: "owner.uid", id: true, wide: true, text: func(b *B) string { return count(uint64(b.Owner.UID)) }},
		},
	}
}

func congestedList(now func() time.Time) *listing[ctl.CongestedInfo] {
	type C = ctl.CongestedInfo
	return &listing[C]{
		kind:  ctl.KindCongested,
		items: func(r *ctl.Response) []C { return r.Congested },
		none:  "no port is congested",
		columns: []column[C]{
			{head: "WHERE", field: "where", text: func(c *C) string { return c.Where }},
			{head: "SOCKET", field: "addr", text: func(c *C) string { return place(c.Addr, c.Port) }},
			{head: "FOR", field: "since", text: func(c *C) string {
				if c.Since.IsZero() {
					return "unknown"
				}
				return ago(c.Since, now())
			}},
			{head: "UNREAD", field: "unread_bytes", text: func(c *C) string { return bytesText(c.Unread) + of(c.Limit) }, total: sumBytes(func(c *C) uint64 { return c.Unread })},
			{head: "SENDERS", field: "waiting_destinations", text: func(c *C) string { return count(c.Senders) }, total: sum(func(c *C) uint64 { return c.Senders })},
			{head: "OWNER", field: "owner.name", text: func(c *C) string {
				if c.Owner == nil {
					return "there"
				}
				return process(c.Owner)
			}},
		},
	}
}

func stallList(now func() time.Time) *listing[ctl.StallInfo] {
	type S = ctl.StallInfo
	return &listing[S]{
		kind:  ctl.KindStalls,
		items: func(r *ctl.Response) []S { return r.Stalls },
		none:  "no message to a peer is in progress",
		columns: []column[S]{
			{head: "REMOTE", field: "remote", text: func(s *S) string { return s.Remote.String() }},
			{head: "LANE", field: "lane", text: (*S).LanePath},
			{head: "STATE", field: "state", text: func(s *S) string { return cell(s.State, "unknown") }, tone: func(s *S) text.Color { return stateTone(s.State, true) }},
			{head: "OLDEST", field: "oldest_ns", text: func(s *S) string { return short(s.Oldest) }},
			{head: "UNACKED", field: "unacked_messages", text: func(s *S) string { return count(s.UnackedMessages) }, total: sum(func(s *S) uint64 { return s.UnackedMessages })},
			{head: "QUEUED", field: "queued_messages", text: func(s *S) string { return count(s.QueuedMessages) }, total: sum(func(s *S) uint64 { return s.QueuedMessages })},
			{head: "CREDITS", field: "send_credits", text: func(s *S) string { return strconv.Itoa(s.SendCredits) }},
			{head: "WAITS-FOR", field: "waits_for", text: func(s *S) string { return cell(s.WaitsFor, "unknown") }},
			{head: "LOCAL", field: "local", wide: true, text: func(s *S) string { return s.Local.String() }},
			{head: "TRANSPORT", field: "transport", wide: true, text: func(s *S) string { return cell(s.Transport, "none") }},
			{head: "LAST-ERROR", field: "last_error", free: true, text: func(s *S) string { return cell(ctl.ErrorText(s.LastError, s.LastErrorAt, now()), "none") }},
		},
	}
}

// stallsVerb shows the list with a threshold, which is a filter.
func stallsVerb(fs *flag.FlagSet) action {
	over := fs.Duration("over", 0, "only connections whose oldest message is older than this `time`")
	return func(ctx context.Context, a *app, o *options, _ string) int {
		if *over < 0 {
			return a.wrong("stalls", "-over %v is negative", *over)
		}
		if *over > 0 {
			if o.filter != "" {
				o.filter += ","
			}
			o.filter += "oldest_ns>=" + over.String()
		}
		return stallList(time.Now).run(ctx, a, o, ctl.Request{})
	}
}

func errorList(now func() time.Time) *listing[ctl.ErrorInfo] {
	type E = ctl.ErrorInfo
	return &listing[E]{
		kind:  ctl.KindErrors,
		items: func(r *ctl.Response) []E { return r.Errors },
		none:  "no error since the daemon started",
		columns: []column[E]{
			{head: "COUNT", field: "count", text: func(e *E) string { return count(e.Count) }},
			{head: "LAST", field: "last", text: func(e *E) string { return ago(e.Last, now()) + " ago" }},
			{head: "FIRST", field: "first", text: func(e *E) string { return ago(e.First, now()) + " ago" }},
			{head: "LEVEL", field: "level", wide: true, text: func(e *E) string { return e.Level }},
			{head: "ABOUT", field: "peer", text: func(e *E) string { return about(e.Peer, e.UID) }},
			{head: "EVENT", field: "event", text: func(e *E) string { return cell(e.Event, "unknown") }},
			{head: "ERROR", field: "error", free: true, text: func(e *E) string { return cell(e.Error, "none") }},
		},
	}
}

func about(peer netip.Addr, uid *uint32) string {
	switch {
	case peer.IsValid():
		return peer.String()
	case uid != nil:
		return fmt.Sprintf("uid %d", *uid)
	}
	return "daemon"
}
