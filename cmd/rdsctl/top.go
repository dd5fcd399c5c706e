package main

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rdsd/rdsd/internal/ctl"
)

// The views of top.
const (
	topPeers    = 'p'
	topBacklog  = 'b'
	topCounters = 'c'
)

// topState is what top shows and the user's choices.
type topState struct {
	view   rune
	sort   int // column of topSorts
	paused bool

	at, before time.Time
	status     *ctl.Status
	peers      []ctl.PeerInfo
	backlog    []ctl.BacklogInfo
	last       map[string]uint64 // counters at the time before
	lastPeer   map[string]uint64 // sequences at the time before, by peerName
	err        error
}

// topSorts are the orders of peers.
var topSorts = []struct {
	name string
	key  func(t *topState, p *ctl.PeerInfo) float64
}{
	{"unacked", func(_ *topState, p *ctl.PeerInfo) float64 { return float64(p.UnackedMessages + p.QueuedMessages) }},
	{"rate", func(t *topState, p *ctl.PeerInfo) float64 { return t.peerRate(p) }},
	{"resets", func(_ *topState, p *ctl.PeerInfo) float64 { return float64(p.Resets) }},
	{"address", func(*topState, *ctl.PeerInfo) float64 { return 0 }},
}

func topVerb(fs *flag.FlagSet) action {
	every := fs.Duration("d", time.Second, "`time` between two looks")
	offline, path := offlineFlags(fs)
	return func(ctx context.Context, a *app, o *options, _ string) int {
		switch {
		case a.screen == nil:
			fmt.Fprintln(a.stderr, "rdsctl: top: standard output is no terminal; for files and pipes: rdsctl peers -watch 1s")
			return exitUsage
		case *every < 50*time.Millisecond:
			fmt.Fprintf(a.stderr, "rdsctl: top: -d %v: want 50ms or more\n", *every)
			return exitUsage
		case *path != "" && !*offline:
			fmt.Fprintln(a.stderr, "rdsctl: top: -stats is for -offline")
			return exitUsage
		}
		keys, restore, err := a.screen.raw()
		if err != nil {
			fmt.Fprintf(a.stderr, "rdsctl: top: %v\n", err)
			return exitFailed
		}
		defer restore()
		t := &topState{view: topPeers}
		if *offline {
			t.view = topCounters
		}
		look := func() {
			if *offline {
				s, _, err := a.offline(*path)
				var peers []ctl.PeerInfo
				if r, _, err := a.offlineList(*path, ctl.OfflinePeers); err == nil { // an ordinary user can read only the counters
					peers = r.Peers
				}
				t.take(time.Now(), s, peers, nil, err)
				return
			}
			t.look(ctx, a, o)
		}
		return t.loop(ctx, a, *every, keys, look)
	}
}

// loop asks and draws until the user types q or ctx ends.
func (t *topState) loop(ctx context.Context, a *app, every time.Duration, keys <-chan rune, look func()) int {
	tick := time.NewTicker(every)
	defer tick.Stop()
	look()
	for {
		w, h := a.screen.size()
		fmt.Fprint(a.stdout, "\x1b[H"+t.draw(w, h)+"\x1b[J")
		select {
		case <-ctx.Done():
			return exitOK
		case k, ok := <-keys:
			if !ok || !t.key(k) {
				return exitOK
			}
		case <-tick.C:
			if !t.paused {
				look()
			}
		}
	}
}

// key handles a key. It returns false for the key that ends top.
func (t *topState) key(k rune) bool {
	switch k {
	case 'q', 3, 4:
		return false
	case topPeers, topBacklog, topCounters:
		t.view = k
	case 's':
		t.sort = (t.sort + 1) % len(topSorts)
	case ' ':
		t.paused = !t.paused
	}
	return true
}

// look asks the daemon for everything that is shown.
func (t *topState) look(ctx context.Context, a *app, o *options) {
	var s *ctl.Status
	var peers []ctl.PeerInfo
	var backlog []ctl.BacklogInfo
	c, err := a.connect(ctx, o)
	if err == nil {
		defer c.Close()
		for _, k := range []ctl.Kind{ctl.KindStatus, ctl.KindPeers, ctl.KindBacklog} {
			var r *ctl.Response
			if _, r, err = call(ctx, c, o, ctl.Request{Kind: k}); err != nil {
				break
			}
			switch k {
			case ctl.KindStatus:
				s = r.Status
			case ctl.KindPeers:
				peers = r.Peers
			default:
				backlog = r.Backlog
			}
		}
	}
	t.take(time.Now(), s, peers, backlog, err)
}

// take replaces what is shown, and keeps the old figures to compute rates.
func (t *topState) take(now time.Time, s *ctl.Status, peers []ctl.PeerInfo, backlog []ctl.BacklogInfo, err error) {
	if t.err = err; err != nil {
		return
	}
	last, lastPeer := map[string]uint64{}, map[string]uint64{}
	if t.status != nil && t.status.Instance == s.Instance {
		for _, c := range t.status.Counters {
			last[c.Name] = c.Value
		}
		for i := range t.peers {
			lastPeer[peerName(&t.peers[i])] = t.peers[i].NextTxSeq
		}
	}
	t.before, t.at = t.at, now
	t.last, t.lastPeer = last, lastPeer
	t.status, t.peers, t.backlog = s, peers, backlog
}

func peerName(p *ctl.PeerInfo) string { return fmt.Sprint(p.Local, p.Remote, p.Lane) }

// rate is the increase per second from last to now.
func (t *topState) rate(now, last uint64, ok bool) float64 {
	d := t.at.Sub(t.before).Seconds()
	if !ok || d <= 0 || now < last {
		return 0
	}
	return float64(now-last) / d
}

func (t *topState) counter(name string) float64 {
	now, _ := t.status.Counters.Get(name)
	last, ok := t.last[name]
	return t.rate(now, last, ok && !gauges[name])
}

func (t *topState) peerRate(p *ctl.PeerInfo) float64 {
	last, ok := t.lastPeer[peerName(p)]
	return t.rate(p.NextTxSeq, last, ok)
}

// draw returns a screen of w columns and h lines.
func (t *topState) draw(w, h int) string {
	var b bytes.Buffer
	switch {
	case t.err != nil:
		fmt.Fprintf(&b, "%s\nlooking again; q: quit\n", printable(t.err.Error()))
	case t.status == nil:
		fmt.Fprintln(&b, "nothing yet")
	default:
		t.head(&b)
		switch t.view {
		case topBacklog:
			t.drawBacklog(&b)
		case topCounters:
			t.drawCounters(&b)
		default:
			t.drawPeers(&b)
		}
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) > h {
		lines = lines[:h]
	}
	for i, l := range lines {
		lines[i] = cut(l, w) + "\x1b[K"
	}
	return strings.Join(lines, "\r\n")
}

// cut shortens s to at most w columns.
func cut(s string, w int) string {
	if utf8.RuneCountInString(s) <= w {
		return s
	}
	return string([]rune(s)[:w])
}

func (t *topState) head(b *bytes.Buffer) {
	s := t.status
	paused := ""
	if t.paused {
		paused = "  PAUSED"
	}
	fmt.Fprintf(b, "rdsd %s  pid %d  up %v  engine %s, %d stalls%s\n", cell(s.Version, "offline"), s.PID, s.Uptime.Round(time.Second), s.Engine.State, s.Engine.Stalls, paused)
	fmt.Fprintf(b, "%d peers (%d up)  %d sockets (%d congested)  %d operations  sent %.0f/s  received %.0f/s  RDMA %s/s\n", s.Counts.Peers, s.Counts.PeersUp,
		s.Counts.Sockets, s.Counts.CongestedPorts, s.Counts.OpsOutstanding, t.counter("send_queued"), t.counter("recv_queued"),
		bytesText(uint64(t.counter("send_rdma_bytes")+t.counter("recv_rdma_bytes"))))
	for _, w := range s.Warnings {
		fmt.Fprintf(b, "warning: %s\n", cell(w, ""))
	}
	fmt.Fprintf(b, "p peers  b backlog  c counters  s sort (%s)  space pause  q quit\n\n", topSorts[t.sort].name)
}

func (t *topState) drawPeers(b *bytes.Buffer) {
	peers := slices.Clone(t.peers)
	slices.SortStableFunc(peers, func(x, y ctl.PeerInfo) int {
		key := topSorts[t.sort].key
		return cmp.Or(cmp.Compare(key(t, &y), key(t, &x)), x.Remote.Compare(y.Remote), cmp.Compare(x.Lane, y.Lane))
	})
	var lines [][]string
	for i := range peers {
		p := &peers[i]
		lines = append(lines, []string{p.Remote.String(), count(uint64(p.Lane)), p.State, ago(p.Since, t.at), transport(*p), fmt.Sprintf("%.0f", t.peerRate(p)),
			count(p.QueuedMessages), count(p.UnackedMessages), fmt.Sprint(p.SendCredits), count(p.Resets), cell(p.LastError, "none")})
	}
	showTable(b, []string{"REMOTE", "LANE", "STATE", "FOR", "TRANSPORT", "SENT/S", "QUEUED", "UNACKED", "CREDITS", "RESETS", "LAST-ERROR"},
		[]bool{false, true, false, false, false, true, true, true, true, true, false}, lines)
}

func (t *topState) drawBacklog(b *bytes.Buffer) {
	list := slices.Clone(t.backlog)
	slices.SortStableFunc(list, func(x, y ctl.BacklogInfo) int { return cmp.Compare(y.Oldest, x.Oldest) })
	l := backlogList()
	var header []string
	var right []bool
	var lines [][]string
	for _, c := range l.columns {
		if !c.wide {
			header, right = append(header, c.head), append(right, l.number(&c))
		}
	}
	for i := range list {
		var line []string
		for _, c := range l.columns {
			if !c.wide {
				line = append(line, c.text(&list[i]))
			}
		}
		lines = append(lines, line)
	}
	showTable(b, header, right, lines)
}

func (t *topState) drawCounters(b *bytes.Buffer) {
	list := slices.Clone(t.status.Counters)
	slices.SortStableFunc(list, func(x, y ctl.Counter) int { return cmp.Compare(t.counter(y.Name), t.counter(x.Name)) })
	var lines [][]string
	for _, c := range list {
		rate := "none"
		if !gauges[c.Name] {
			rate = fmt.Sprintf("%.1f/s", t.counter(c.Name))
		}
		if c.Value != 0 {
			lines = append(lines, []string{cell(c.Name, "unnamed"), count(c.Value), rate})
		}
	}
	showTable(b, []string{"COUNTER", "VALUE", "RATE"}, rightFrom(1, 3), lines)
}
