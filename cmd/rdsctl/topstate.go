package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/stats"
)

// trailLen is how many rates a sparkline has at most.
const trailLen = 60

// topState is what top shows, what it has seen before, and the user's choices.
type topState struct {
	view   rune
	sort   map[rune]int // how often the order of each view was changed
	skip   int          // rows that are scrolled over
	paused bool
	colour bool

	now, before look
	processes   []ctl.ProcessInfo
	flows       map[string]*flow // of peers, processes, sockets and the daemon, by their names
	err         error
}

// flow is what went through something, as rates between the last two looks, and their past.
type flow struct {
	sent, received         float64 // bytes per second, RDMA included
	sentMsgs, receivedMsgs float64
	msgs, ops              stats.Times // between the last two looks
	trail                  []float64   // sent and received

	last seen
	at   time.Time
}

// seen is the totals that a flow is the change of.
type seen struct {
	sent, received, sentMsgs, receivedMsgs uint64
	msgs, ops                              stats.Times
}

func newTop() *topState {
	return &topState{view: topPeers, sort: map[rune]int{}, flows: map[string]*flow{}}
}

// take replaces what is shown, and computes the rates.
func (t *topState) take(l look) {
	if t.err = l.err; l.err != nil {
		return
	}
	if t.now.status != nil && t.now.status.Instance != l.status.Instance {
		t.flows, t.now = map[string]*flow{}, look{}
	}
	t.before, t.now = t.now, l
	t.processes = ctl.Processes(l.sockets, nil)
	get := func(name string) uint64 { n, _ := l.status.Counters.Get(name); return n }
	t.flow("", l.at, seen{get("rdsd_send_bytes"), get("rdsd_recv_bytes"), get("send_queued"), get("recv_queued"), l.status.MessageTime.Stats(), l.status.OperationTime.Stats()})
	t.flow("rdma", l.at, seen{sent: get("send_rdma_bytes") + get("rdsd_served_bytes"), received: get("recv_rdma_bytes") + get("rdsd_placed_bytes")})
	for i := range l.peers {
		p := &l.peers[i]
		t.flow(peerName(p), l.at, seen{p.SentBytes + p.WrittenBytes + p.ServedBytes, p.ReceivedBytes + p.ReadBytes + p.PlacedBytes, p.Sent, p.Received, p.MessageTime.Stats(), p.OperationTime.Stats()})
	}
	for i := range l.sockets {
		s := &l.sockets[i]
		t.flow(socketName(s), l.at, seen{s.SentBytes + s.ServedBytes, s.ReceivedBytes + s.PlacedBytes, s.Sent, s.Received, s.MessageTime.Stats(), s.OperationTime.Stats()})
	}
	for i := range t.processes {
		p := &t.processes[i]
		t.flow(processName(p), l.at, seen{p.SentBytes + p.ServedBytes, p.ReceivedBytes + p.PlacedBytes, p.Sent, p.Received, p.MessageTime.Stats(), p.OperationTime.Stats()})
	}
	for name, f := range t.flows {
		if !f.at.Equal(l.at) { // it is gone
			delete(t.flows, name)
		}
	}
}

// flow brings the flow called name up to date.
func (t *topState) flow(name string, at time.Time, s seen) {
	f := t.flows[name]
	if f == nil {
		t.flows[name] = &flow{last: s, at: at}
		return
	}
	d := at.Sub(f.at).Seconds()
	rate := func(now, last uint64) float64 {
		if d <= 0 || now < last {
			return 0
		}
		return float64(now-last) / d
	}
	f.sent, f.received = rate(s.sent, f.last.sent), rate(s.received, f.last.received)
	f.sentMsgs, f.receivedMsgs = rate(s.sentMsgs, f.last.sentMsgs), rate(s.receivedMsgs, f.last.receivedMsgs)
	f.msgs, f.ops = s.msgs.Since(&f.last.msgs), s.ops.Since(&f.last.ops)
	f.trail = append(f.trail, f.sent+f.received)
	if len(f.trail) > trailLen {
		f.trail = f.trail[1:]
	}
	f.last, f.at = s, at
}

// of is the flow called name; an empty one if there is none.
func (t *topState) of(name string) *flow {
	if f := t.flows[name]; f != nil {
		return f
	}
	return &flow{}
}

// counter is the rate of a counter.
func (t *topState) counter(name string) float64 {
	if t.before.status == nil || gauges[name] {
		return 0
	}
	now, _ := t.now.status.Counters.Get(name)
	last, _ := t.before.status.Counters.Get(name)
	d := t.now.at.Sub(t.before.at).Seconds()
	if d <= 0 || now < last {
		return 0
	}
	return float64(now-last) / d
}

func peerName(p *ctl.PeerInfo) string { return fmt.Sprint("peer ", p.Local, p.Remote, p.LanePath()) }
func socketName(s *ctl.SocketInfo) string {
	return fmt.Sprint("socket ", s.Addr, s.Port, " ", s.Incarnation)
}
func processName(p *ctl.ProcessInfo) string {
	return fmt.Sprint("process ", p.Owner.PID, " ", p.Owner.Name)
}

// rateText is a rate for people: three significant digits and a prefix.
func rateText(f float64) string {
	switch {
	case f < 0.05:
		return "0"
	case f < 9.95:
		return strconv.FormatFloat(f, 'f', 1, 64)
	case f < 999.5:
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	const units = "kMGT"
	i := -1
	for f >= 999.5 && i < len(units)-1 {
		f /= 1000
		i++
	}
	digits := 0
	for limit := 99.95; f < limit && digits < 2; limit /= 10 {
		digits++
	}
	return strconv.FormatFloat(f, 'f', digits, 64) + units[i:i+1]
}

// byteRate is a rate of bytes for people; "-" for none.
func byteRate(f float64) string {
	if f < 0.5 {
		return "-"
	}
	return bytesText(uint64(f)) + "/s"
}

// sparkline draws the last n values, each as a bar; the highest one is as high as a line.
func sparkline(values []float64, n int) string {
	const bars = "▁▂▃▄▅▆▇█"
	if len(values) > n {
		values = values[len(values)-n:]
	}
	top := 0.0
	for _, v := range values {
		top = max(top, v)
	}
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", n-len(values)))
	for _, v := range values {
		if v <= 0 {
			b.WriteByte(' ')
			continue
		}
		b.WriteRune([]rune(bars)[min(7, int(v/top*8))])
	}
	return b.String()
}
