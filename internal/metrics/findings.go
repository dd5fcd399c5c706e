package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/stats"
)

var findingDesc = desc("finding", "What rdsctl doctor, top and the page find: for how many seconds, 0: not known. Without findings there is no such series.",
	"level", "check", "about", "text", "who", "fix", "do")

// judge returns the daemon's status, as far as it is known here, and what is wrong. Every process of the host can read that:
// nothing names a process, and of a user only what rdsd_user_used says, too. peers is nil if the engine does not answer;
// then it is asked nothing more.
func (c *collector) judge(now time.Time, snap *stats.Snapshot, peers []ctl.PeerInfo, users []ctl.User) (*ctl.Status, []ctl.Finding) {
	nobody := ctl.View{Limit: ctl.DefaultLimit, May: func(uint32) bool { return false }}
	s := &ctl.Status{Users: users}
	s.Fill(snap, now)
	f := ctl.Facts{Now: now, Status: s, Peers: peers}
	if c.src.Warnings != nil {
		s.Warnings = append(s.Warnings, c.src.Warnings()...)
	}
	if c.src.Congested != nil && peers != nil {
		f.Congested, _ = c.askCongested.ask()
	}
	if c.src.Errors != nil {
		f.Errors, _, _ = c.src.Errors(nobody)
	}
	return s, ctl.Judge(&f)
}

func collectFindings(ch chan<- prometheus.Metric, now time.Time, found []ctl.Finding) {
	for _, f := range found {
		age := 0.0
		if !f.Since.IsZero() {
			age = now.Sub(f.Since).Seconds()
		}
		ch <- prometheus.MustNewConstMetric(findingDesc, prometheus.GaugeValue, age, f.Level, f.Check, f.About, f.Text, f.Who, f.Fix, f.Do)
	}
}
