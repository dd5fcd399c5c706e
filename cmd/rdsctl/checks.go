package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/hosts"
	"github.com/rdsd/rdsd/internal/ipc"
)

func (c *checker) daemon(string) error {
	r, err := c.ask(ctl.Request{Kind: ctl.KindStatus})
	if err != nil {
		if s, _, offErr := c.offline(""); offErr == nil && !errors.Is(err, ipc.ErrNoDaemon) {
			err = fmt.Errorf("%w; its engine is %s and late by %v", err, s.Engine.State, s.Engine.Late.Round(time.Millisecond))
			for _, f := range ctl.Judge(c.factsOffline("", s)) {
				err = fmt.Errorf("%w; %s", err, f.Text)
			}
			return err
		}
		return err
	}
	s := r.Status
	c.say(c.measure("engine_late_seconds", s.Engine.Late.Seconds()), "rdsd %s, pid %d, up %v, engine %s, late by %v", s.Version, s.PID,
		s.Uptime.Round(time.Second), s.Engine.State, s.Engine.Late.Round(time.Millisecond))
	for _, f := range ctl.Judge(&ctl.Facts{Now: time.Now(), Status: s}) {
		switch f.Check {
		case ctl.FindEngine: // how late it may be is measured
			if s.Engine.State == "stopped" {
				c.found(&f)
			}
		case ctl.FindWarning:
			c.found(&f)
		}
	}
	c.note("peers_up", float64(s.Counts.PeersUp))
	c.note("sockets", float64(s.Counts.Sockets))
	c.note("engine_stalls", float64(s.Engine.Stalls))
	return nil
}

// found says a finding: a warning, or critical if it is an error.
func (c *checker) found(f *ctl.Finding) {
	state := checkWarning
	if f.Level == ctl.LevelError {
		state = checkCritical
	}
	c.say(state, "%s", f.Line(time.Now()))
}

// judged asks for what the daemon is judged by, and judges it.
func (c *checker) judged() (*ctl.Facts, []ctl.Finding, error) {
	r, err := c.ask(ctl.Request{Kind: ctl.KindStatus})
	if err != nil {
		return nil, nil, err
	}
	f := c.facts(c.ctx, c.o, r.Status)
	return f, ctl.Judge(f), nil
}

// health is all findings, as doctor, top, status and the page have them.
func (c *checker) health(string) error {
	_, found, err := c.judged()
	if err != nil {
		return err
	}
	c.note("findings", float64(len(found)))
	for i := range found {
		c.found(&found[i])
	}
	if len(found) == 0 {
		c.say(checkOK, "%s", allWell)
	}
	return nil
}

// aboutPeers are the kinds of findings that check peers and check peer have.
var aboutPeers = []string{ctl.FindPeer, ctl.FindRefused, ctl.FindUnacked, ctl.FindPath}

func (c *checker) peers(string) error {
	f, found, err := c.judged()
	if err != nil {
		return err
	}
	var bad []string
	for i := range found {
		if slices.Contains(aboutPeers, found[i].Check) {
			bad = append(bad, found[i].Line(f.Now))
		}
	}
	up := 0
	for i := range f.Peers {
		if f.Peers[i].State == "up" {
			up++
		}
	}
	c.note("connections_up", float64(up))
	text := fmt.Sprintf("%d of %d connections are up", up, len(f.Peers))
	if len(bad) > 0 {
		text += "; " + strings.Join(bad[:min(3, len(bad))], "; ")
	}
	c.say(c.measure("connections_wanted", float64(len(bad))), "%s", text)
	return nil
}

func (c *checker) peer(arg string) error {
	addr, err := c.lookup(c.ctx, c.o, arg)
	if errors.Is(err, hosts.ErrName) {
		return usagef("peer: %v", err)
	}
	if err != nil {
		return err
	}
	f, judged, err := c.judged()
	if err != nil {
		return err
	}
	for i := range judged {
		if x := &judged[i]; x.About == addr.String() && slices.Contains(aboutPeers, x.Check) {
			c.say(checkCritical, "%s", x.Line(f.Now))
		}
	}
	found, resets := false, uint64(0)
	for i := range f.Peers {
		if p := &f.Peers[i]; p.Remote == addr {
			found = true
			resets += p.Resets
			if p.State != "up" {
				c.say(checkOK, "lane %s is idle", p.LanePath())
			} else {
				c.say(checkOK, "lane %s is up", p.LanePath())
			}
		}
	}
	if !found {
		c.say(checkCritical, "no connection to %v was ever made", addr)
	}
	c.note("resets", float64(resets))
	return nil
}

func (c *checker) socket(arg string) error {
	at, err := c.addrPort(c.ctx, c.o, arg, 0)
	if err != nil {
		return err
	}
	if at.Port() == 0 {
		return usagef("socket: %q is not ADDR:PORT", arg)
	}
	r, err := c.ask(ctl.Request{Kind: ctl.KindSockets})
	if err != nil {
		return err
	}
	for i := range r.Sockets {
		s := &r.Sockets[i]
		if s.Addr != at.Addr() || s.Port != at.Port() {
			continue
		}
		c.note("recv_bytes", float64(s.RecvBytes))
		c.note("send_queued_bytes", float64(s.SendBytes))
		if s.Congested {
			c.say(checkWarning, "%v of %s is congested: %d bytes are not read", at, process(&s.Owner), s.RecvBytes)
		} else {
			c.say(checkOK, "%v is bound by %s", at, process(&s.Owner))
		}
		return nil
	}
	c.say(checkCritical, "%v is not bound", at)
	if r.OtherSockets > 0 {
		c.r.State = checkUnknown
		c.r.Text += fmt.Sprintf(", or one of %d sockets of other users, which this user may not see", r.OtherSockets)
	}
	return nil
}

func (c *checker) backlog(string) error {
	r, err := c.ask(ctl.Request{Kind: ctl.KindBacklog, Limit: ctl.MaxLimit})
	if err != nil {
		return err
	}
	var worst ctl.BacklogInfo
	var bytes uint64
	for _, b := range r.Backlog {
		bytes += b.QueuedBytes + b.UnackedBytes + b.UnreadBytes
		if b.QueuedMessages+b.UnackedMessages+b.UnreadMessages > 0 && b.Oldest >= worst.Oldest { // check health judges who waits for relief
			worst = b
		}
	}
	c.note("backlog_bytes", float64(bytes))
	text := "nothing is in progress"
	if worst.Direction != "" {
		text = fmt.Sprintf("%s are in progress; the oldest message, of %s, is %s old and waits for: %s", bytesText(bytes), place(worst.Addr, worst.Port), short(worst.Oldest), worst.WaitsFor)
	}
	c.say(c.measure("oldest_seconds", worst.Oldest.Seconds()), "%s", text)
	return nil
}

func (c *checker) memory(string) error {
	r, err := c.ask(ctl.Request{Kind: ctl.KindStatus})
	if err != nil {
		return err
	}
	full, what := 0.0, "no limit is set"
	use := func(name string, used, limit uint64) {
		if limit == 0 {
			return
		}
		if p := 100 * float64(used) / float64(limit); p >= full {
			full, what = p, fmt.Sprintf("%s: %s of %s", name, bytesText(used), bytesText(limit))
		}
	}
	m := &r.Status.Memory
	use("registered memory", m.Registered, m.Limit)
	use("memory held for readers", m.Held, m.HeldLimit)
	for i := range r.Status.Users {
		u := &r.Status.Users[i]
		if q := u.RegisteredBytes.Quota; q != nil {
			use("registered memory of "+u.Name(), u.RegisteredBytes.Used, *q)
		}
		if q := u.QueuedBytes.Quota; q != nil {
			use("queues of "+u.Name(), u.QueuedBytes.Used, *q)
		}
	}
	c.say(c.measure("fullest_percent", full), "%s (%.0f %%)", what, full)
	return nil
}

func (c *checker) cert(string) error {
	r, err := c.ask(ctl.Request{Kind: ctl.KindStatus})
	if err != nil {
		return err
	}
	t := &r.Status.TLS
	if t.Subject == "" {
		c.say(checkOK, "no certificate: tls.mode is %s, connections are plain", t.Mode)
		return nil
	}
	days := time.Until(t.Expires).Hours() / 24
	c.r.Metrics = append(c.r.Metrics, checkMetric{"expires_days", days, &c.warn, &c.crit})
	state := checkOK
	switch { // smaller is worse
	case days <= c.crit:
		state = checkCritical
	case days <= c.warn:
		state = checkWarning
	}
	c.say(state, "%s until %s, %.0f days", t.Subject, t.Expires.UTC().Format(time.DateOnly), days)
	return nil
}

func (c *checker) config(string) error {
	r, err := c.ask(ctl.Request{Kind: ctl.KindDiff})
	if e, ok := errors.AsType[*ctl.Error](err); ok && e.Code == ctl.CodeFailed {
		c.say(checkCritical, "a reload or restart would fail: %s", e.Message)
		return nil
	}
	if err != nil {
		return err
	}
	for _, x := range r.Reload.Applied {
		c.say(checkWarning, "%s waits for rdsctl config reload", x.Key)
	}
	for _, x := range r.Reload.Restart {
		c.say(checkWarning, "%s waits for a restart", x.Key)
	}
	for _, w := range r.Reload.Warnings {
		c.say(checkWarning, "%s", w)
	}
	c.note("keys_waiting", float64(len(r.Reload.Applied)+len(r.Reload.Restart)))
	if c.r.Text == "" {
		c.say(checkOK, "the daemon runs with what its sources say")
	}
	return nil
}
