package main

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rdsd/rdsd/internal/ctl"
)

// trendWidth is the width of the sparklines in tables.
const trendWidth = 12

// p99 is the 99th percentile of what was counted between the last two looks.
func (f *flow) p99() string { return took(f.msgs.Quantile(0.99)) }

// trend is the column of sparklines; a plain table has none.
func (t *topState) trend(head, cells []string, f *flow) ([]string, []string) {
	if !t.colour {
		return head, cells
	}
	return append(head, "TREND"), append(cells, sparkline(f.trail, trendWidth))
}

func (t *topState) peerGrid(sort int) grid {
	peers := slices.Clone(t.now.peers)
	slices.SortStableFunc(peers, func(a, b ctl.PeerInfo) int {
		return cmp.Or(a.Remote.Compare(b.Remote), cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Path, b.Path))
	})
	var head []string
	var rows []topRow
	for i := range peers {
		p := &peers[i]
		f := t.of(peerName(p))
		cells := []string{p.Remote.String(), p.LanePath(), cell(p.State, "unknown"), ago(p.Since, t.now.at), transport(*p), byteRate(f.sent), byteRate(f.received)}
		head, cells = t.trend([]string{"PEER", "LANE", "STATE", "FOR", "VIA", "SENT", "RECEIVED"}, cells, f)
		cells = append(cells, took(p.RTT), f.p99(), count(p.QueuedMessages+p.UnackedMessages), age(p.OldestUnacked), count(p.Resets), cell(ctl.ErrorText(p.LastError, p.LastErrorAt, t.now.at), "none"))
		rows = append(rows, topRow{cells: cells, tone: map[int]text.Color{2: stateTone(p.State, p.Missed()), 7: text.FgCyan},
			keys: []float64{f.sent + f.received, float64(p.QueuedMessages + p.UnackedMessages), float64(p.RTT), float64(p.Resets)}})
	}
	head = append(head, "RTT", "P99", "WAITING", "OLDEST", "RESETS", "LAST-ERROR")
	return gridOf(rows, sort, rightOf(head, "LANE", "FOR", "SENT", "RECEIVED", "RTT", "P99", "WAITING", "OLDEST", "RESETS"), head...)
}

func (t *topState) processGrid(sort int) grid {
	var head []string
	var rows []topRow
	for i := range t.processes {
		p := &t.processes[i]
		f := t.of(processName(p))
		cells := []string{strconv.Itoa(p.Owner.PID), count(uint64(p.Owner.UID)), count(p.Sockets), byteRate(f.sent), byteRate(f.received)}
		head, cells = t.trend([]string{"PID", "UID", "SOCKETS", "SENT", "RECEIVED"}, cells, f)
		cells = append(cells, f.p99(), took(f.ops.Quantile(0.99)), count(p.SendMessages), age(p.OldestUnacked), bytesText(p.RecvBytes), count(p.Ops), cell(p.Owner.Name, "unnamed"))
		rows = append(rows, topRow{cells: cells, tone: map[int]text.Color{5: text.FgCyan}, keys: []float64{f.sent + f.received, float64(p.SendMessages) + float64(p.RecvBytes)}})
	}
	head = append(head, "P99", "OP-P99", "QUEUED", "OLDEST", "UNREAD", "OPS", "NAME")
	return gridOf(rows, sort, rightOf(head, "PID", "UID", "SOCKETS", "SENT", "RECEIVED", "P99", "OP-P99", "QUEUED", "OLDEST", "UNREAD", "OPS"), head...)
}

func (t *topState) socketGrid(sort int) grid {
	var head []string
	var rows []topRow
	for i := range t.now.sockets {
		s := &t.now.sockets[i]
		f := t.of(socketName(s))
		cells := []string{place(s.Addr, s.Port), strconv.Itoa(s.Owner.PID), byteRate(f.sent), byteRate(f.received)}
		head, cells = t.trend([]string{"SOCKET", "PID", "SENT", "RECEIVED"}, cells, f)
		full := "0%"
		if s.RecvLimit > 0 {
			full = strconv.Itoa(int(100*s.RecvBytes/s.RecvLimit)) + "%"
		}
		tone := map[int]text.Color{4: text.FgCyan}
		if s.Congested {
			tone[len(cells)+3], full = busy, full+" congested"
		}
		cells = append(cells, f.p99(), count(s.SendMessages), age(s.OldestUnacked), full, count(s.Ops), cell(s.Owner.Name, "unnamed"))
		rows = append(rows, topRow{cells: cells, tone: tone, keys: []float64{f.sent + f.received, float64(s.SendMessages) + float64(s.RecvBytes)}})
	}
	head = append(head, "P99", "QUEUED", "OLDEST", "UNREAD", "OPS", "NAME")
	return gridOf(rows, sort, rightOf(head, "PID", "SENT", "RECEIVED", "P99", "QUEUED", "OLDEST", "UNREAD", "OPS"), head...)
}

// rightOf aligns the columns called names to the right.
func rightOf(head []string, names ...string) []bool {
	right := make([]bool, len(head))
	for i, h := range head {
		right[i] = slices.Contains(names, h)
	}
	return right
}

func (t *topState) backlogGrid(int) grid {
	list := slices.Clone(t.now.backlog)
	slices.SortStableFunc(list, func(x, y ctl.BacklogInfo) int { return cmp.Compare(y.Oldest, x.Oldest) })
	return gridFrom(backlogList(), list)
}

func (t *topState) eventGrid(int) grid {
	list := slices.Clone(t.now.events)
	slices.Reverse(list)
	return gridFrom(eventList(), list)
}

// gridFrom is the usual table of a list.
func gridFrom[T any](l *listing[T], list []T) (g grid) {
	var columns []column[T]
	for _, c := range l.columns {
		if !c.wide {
			columns = append(columns, c)
			g.head, g.right = append(g.head, c.head), append(g.right, l.number(&c))
		}
	}
	for i := range list {
		var line []string
		for _, c := range columns {
			line = append(line, c.text(&list[i]))
		}
		g.rows = append(g.rows, line)
	}
	g.tone = func(row, column int) text.Color {
		if f := columns[column].tone; f != nil {
			return f(&list[row])
		}
		return 0
	}
	return g
}

func (t *topState) counterGrid(int) grid {
	var rows []topRow
	for _, c := range t.now.status.Counters {
		if c.Value == 0 {
			continue
		}
		rate, value := t.counter(c.Name), count(c.Value)
		if strings.Contains(c.Name, "bytes") {
			value = bytesText(c.Value)
		}
		text := "-"
		switch {
		case gauges[c.Name] || rate == 0:
		case strings.Contains(c.Name, "bytes"):
			text = byteRate(rate)
		default:
			text = rateText(rate) + "/s"
		}
		rows = append(rows, topRow{cells: []string{cell(c.Name, "unnamed"), value, text}, keys: []float64{rate}})
	}
	return gridOf(rows, 0, rightFrom(1, 3), "COUNTER", "VALUE", "RATE")
}
