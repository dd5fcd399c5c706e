package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rdsd/rdsd/internal/ctl"
)

// topView is one of top's tables.
type topView struct {
	key   rune
	name  string
	sorts []string
	grid  func(t *topState, sort int) grid
}

// topViews are top's tables, in the order of their names on the screen.
func topViews() []topView {
	return []topView{
		{topPeers, "peers", []string{"traffic", "waiting", "round trip", "resets", "address"}, (*topState).peerGrid},
		{topProcesses, "processes", []string{"traffic", "waiting", "pid"}, (*topState).processGrid},
		{topSockets, "sockets", []string{"traffic", "waiting", "address"}, (*topState).socketGrid},
		{topBacklog, "backlog", []string{"oldest"}, (*topState).backlogGrid},
		{topEvents, "events", []string{"latest"}, (*topState).eventGrid},
		{topCounters, "counters", []string{"rate"}, (*topState).counterGrid},
	}
}

func viewNames() string {
	return "peers, processes, sockets, backlog, events, counters"
}

// headLines is how many lines are above the table, concerns aside.
const headLines = 7

// draw returns a screen of w columns and h lines.
func (t *topState) draw(w, h int) string {
	var lines []string
	switch {
	case t.err != nil && t.now.status == nil:
		lines = []string{t.paint(printable(t.err.Error()), text.FgRed), "", "looking again; q: quit"}
	case t.now.status == nil:
		lines = []string{"asking the daemon ..."}
	default:
		lines = append(t.head(w), t.table(w, h)...)
	}
	if len(lines) > h {
		lines = lines[:h]
	}
	for i, l := range lines {
		lines[i] = text.Trim(l, w)
	}
	return strings.Join(lines, "\n")
}

// plain is everything, without the keys.
func (t *topState) plain() string {
	lines := slices.DeleteFunc(append(t.head(0), t.table(0, 0)...), func(l string) bool { return l == "" })
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n")
}

// paint colours s, on a terminal.
func (t *topState) paint(s string, colours ...text.Color) string {
	if !t.colour {
		return s
	}
	return text.Colors(colours).Sprint(s)
}

// head is the lines above the table. w is 0 for a plain screen.
func (t *topState) head(w int) []string {
	s, all, rdma := t.now.status, t.of(""), t.of("rdma")
	title := fmt.Sprintf("rdsd %s  pid %d  up %v  engine %s, turns p99 <%s, %s", cell(s.Version, "offline"), s.PID, s.Uptime.Round(time.Second),
		s.Engine.State, ctl.Rounded(s.Engine.TurnP99), plural(s.Engine.Stalls, "stall"))
	title = t.paint(title, text.Bold)
	if t.paused {
		title += "  " + t.paint(" PAUSED ", text.ReverseVideo)
	}
	lines := append([]string{title}, t.concerns()...)
	if t.err != nil {
		lines = append(lines, t.paint("● "+cell(t.err.Error(), "no answer")+"; what is shown is old", wrong))
	}
	trail := ""
	if w > 0 {
		trail = t.paint(sparkline(all.trail, min(trailLen, max(10, w-70))), text.FgCyan)
	}
	c := &s.Counts
	lines = append(lines, "",
		fmt.Sprintf("%-10s%9s msg/s %14s   %s", "sent", rateText(all.sentMsgs), byteRate(all.sent), trail),
		fmt.Sprintf("%-10s%9s msg/s %14s   %s", "received", rateText(all.receivedMsgs), byteRate(all.received), t.dim(fmt.Sprintf("RDMA written %s, read %s", byteRate(rdma.sent), byteRate(rdma.received)))),
		fmt.Sprintf("%-10s%s   operations %s", "acked in", timesText(all.msgs.Quantile(0.5), all.msgs.Quantile(0.99)), timesText(all.ops.Quantile(0.5), all.ops.Quantile(0.99))),
		fmt.Sprintf("%-10s%s, %s; %s, %d up; %s", "open", plural(c.Clients, "client"), plural(c.Sockets, "socket"), plural(c.Peers, "peer"), c.PeersUp, plural(c.OpsOutstanding, "operation")),
		"")
	if w == 0 {
		return lines
	}
	var tabs []string
	for _, v := range topViews() {
		if v.key == t.view {
			tabs = append(tabs, t.paint(" "+strings.ToUpper(v.name)+" ", text.ReverseVideo))
		} else {
			tabs = append(tabs, " "+t.paint(string(v.key), text.Bold)+" "+t.dim(v.name)+" ")
		}
	}
	order := ""
	if v := t.shown(); len(v.sorts) > 1 {
		order = t.dim("by ") + v.sorts[t.sort[t.view]%len(v.sorts)] + t.dim(" (s)   ")
	}
	return append(lines, strings.Join(tabs, "")+"   "+order+t.dim("space pause   q quit"), "")
}

func (t *topState) dim(s string) string { return t.paint(s, text.Faint) }

// concerns is a line for each thing that is wrong.
func (t *topState) concerns() []string {
	f := t.now.facts()
	list := ctl.Judge(f)
	if len(list) == 0 {
		return []string{t.paint("● "+allWell, good)}
	}
	var lines []string
	for i := range list {
		c := &list[i]
		lines = append(lines, t.paint("● "+cell(c.Line(f.Now), "")+t.dim("; "+cell(remedy(c), "")), levelTone(c.Level)))
	}
	return lines
}

func timesText(p50, p99 time.Duration) string {
	if p99 == 0 {
		return "p50 -, p99 -"
	}
	return fmt.Sprintf("p50 %v, p99 %v", ctl.Rounded(p50), ctl.Rounded(p99))
}

// shown is the view that is shown.
func (t *topState) shown() topView {
	views := topViews()
	return views[slices.IndexFunc(views, func(v topView) bool { return v.key == t.view })]
}

// table is the lines of the table that is shown. w is 0 for a plain screen.
func (t *topState) table(w, h int) []string {
	v := t.shown()
	g := v.grid(t, t.sort[t.view]%len(v.sorts))
	if len(g.rows) == 0 {
		return []string{t.dim("no " + v.name)}
	}
	if w > 0 {
		t.skip = min(t.skip, max(0, len(g.rows)-1))
		tone := g.tone
		skip := t.skip
		g.rows, g.width = g.rows[skip:], w
		if most := max(1, h-headLines-len(t.concerns())); len(g.rows) > most {
			g.rows = g.rows[:most]
		}
		g.tone = func(row, column int) text.Color { return tone(row+skip, column) }
	}
	if !t.colour {
		g.tone = nil
	}
	var b bytes.Buffer
	g.write(&b)
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

// topRow is a row of a table, and what it is sorted by.
type topRow struct {
	cells []string
	keys  []float64 // by the view's sorts; an order without a key is that of the list
	tone  map[int]text.Color
}

// gridOf sorts rows by the largest key first.
func gridOf(rows []topRow, sort int, right []bool, head ...string) grid {
	slices.SortStableFunc(rows, func(a, b topRow) int {
		if sort >= len(a.keys) {
			return 0
		}
		return cmp.Compare(b.keys[sort], a.keys[sort])
	})
	g := grid{head: head, right: right}
	for _, r := range rows {
		g.rows = append(g.rows, r.cells)
	}
	g.tone = func(row, column int) text.Color { return rows[row].tone[column] }
	return g
}
