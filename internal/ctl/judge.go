package ctl

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rdsd/rdsd/internal/lists"
)

// Facts is what Judge judges a daemon by. Lists that are not known are nil.
type Facts struct {
	Now       time.Time
	Status    *Status
	Peers     []PeerInfo
	Congested []CongestedInfo
	Backlog   []BacklogInfo
	Errors    []ErrorInfo
}

// Finding is one thing that an operator should know at the first look. Everything but the times stays the same while
// the state lasts.
type Finding struct {
	Level string    `json:"level"` // LevelWarn, LevelError
	Check string    `json:"check"` // what kind of finding it is, see the constants
	About string    `json:"about"` // a peer's address, a socket, a user; "" = the daemon
	Text  string    `json:"text"`
	Since time.Time `json:"since,omitzero"` // when the state began, as far as it is known
	// Error is the last error that belongs to it, "" = none. ErrorAt is when it came.
	Error   string    `json:"error"`
	ErrorAt time.Time `json:"error_at,omitzero"`
	Who     string    `json:"who"` // who has to act
	Fix     string    `json:"fix"` // what helps, "" = not known
	Do      string    `json:"do"`  // the command that tells more, "" = there is none
}

// Levels of findings.
const (
	LevelWarn  = "warn"
	LevelError = "error"
)

// The values of Finding.Check.
const (
	FindEngine   = "engine"   // it does not turn
	FindWarning  = "warning"  // the daemon's own warnings: log, metrics, certificates, names, drain
	FindPeer     = "peer"     // a peer that is wanted, or was lately, is not reached
	FindRefused  = "refused"  // this daemon turns another host away
	FindUnacked  = "unacked"  // something has no ack
	FindReceiver = "receiver" // a sender here waits for a receiver on another host
	FindReader   = "reader"   // a process here does not read
	FindPath     = "path"     // large packets do not pass
	FindQuota    = "quota"    // a user has all that it may have, or nearly
	FindMemory   = "memory"   // the same of the daemon
)

// UnackedAfter is the age from which a message without an ack is a finding, and LateAfter the age from which it is an error.
const (
	UnackedAfter = time.Second
	LateAfter    = 10 * time.Second
	// refusedFor is for how long a host that was turned away is a finding.
	refusedFor = 10 * time.Minute
	// mostOf bounds the findings of one kind.
	mostOf = 5
)

// Line is f without its level, Who and Do, in a line for people.
func (f *Finding) Line(now time.Time) string {
	s := f.Text
	if f.Error != "" {
		s += ": " + ErrorText(f.Error, f.ErrorAt, now)
	}
	if d := now.Sub(f.Since).Round(time.Second); !f.Since.IsZero() && d > 0 {
		s += fmt.Sprintf(", for %v", d)
	}
	return s
}

// ErrorText is a last error with its age, "" = none.
func ErrorText(text string, at, now time.Time) string {
	if text == "" || at.IsZero() {
		return text
	}
	return fmt.Sprintf("%s (%v ago)", text, max(0, now.Sub(at)).Round(time.Second))
}

// Missed reports whether the peer is not connected although somebody wants it to be.
func (i *PeerInfo) Missed() bool {
	return i.State != "up" && (i.Wanted || i.State == "connecting" || i.QueuedMessages+i.UnackedMessages > 0)
}

// judgement collects findings.
type judgement struct {
	*Facts
	out  []Finding
	more map[string]int // of each kind, those left out
}

// Judge decides whether a daemon is well. It returns what is wrong, the worst first, and nothing if all is well.
func Judge(f *Facts) []Finding {
	j := &judgement{Facts: f, out: []Finding{}, more: map[string]int{}}
	j.engine()
	j.peers()
	j.refused()
	j.congested()
	j.backlog()
	j.limits()
	for _, w := range f.Status.Warnings { // TLS among them, unless tls.warn is off
		if !slices.ContainsFunc(j.out, func(c Finding) bool { return c.Text == w }) {
			f := Finding{Level: LevelWarn, Check: FindWarning, Text: w, Who: here, Do: "rdsctl errors"}
			if strings.HasPrefix(w, "drained: ") || strings.Contains(w, " drained, ") {
				f.Fix, f.Do = "whoever drained it ends that with the command that this names", "rdsctl backlog"
			}
			j.out = append(j.out, f)
		}
	}
	for kind, n := range j.more {
		i := slices.IndexFunc(j.out, func(x Finding) bool { return x.Check == kind })
		j.out = append(j.out, Finding{Level: j.out[i].Level, Check: kind, Text: fmt.Sprintf("%d more findings as this one: %s", n, j.out[i].Text), Who: j.out[i].Who, Do: j.out[i].Do})
	}
	lists.SortStable(j.out, func(a, b Finding) int { return cmp.Compare(a.Level, b.Level) }) // error before warn
	return j.out
}

const here = "the administrator of this host"

// add adds f, unless there are enough of its kind.
func (j *judgement) add(f Finding) {
	n := 0
	for i := range j.out {
		if j.out[i].Check == f.Check {
			n++
		}
	}
	if n >= mostOf {
		j.more[f.Check]++
		return
	}
	j.out = append(j.out, f)
}

func (j *judgement) engine() {
	switch e := &j.Status.Engine; {
	case e.State == "stopped":
		j.add(Finding{Level: LevelError, Check: FindEngine, Text: "the daemon has stopped", Who: here, Fix: "systemctl start rdsd", Do: "rdsctl status -offline"})
	case e.Late >= StallAfter:
		j.add(Finding{Level: LevelError, Check: FindEngine, Text: "the engine does not turn", Since: j.Now.Add(-e.Late), Who: here,
			Fix: "rdsctl bundle -stacks, then restart the daemon", Do: "rdsctl status -offline"})
	}
}

// peers judges the connections, once for each host: by the lane that has waited for longest.
func (j *judgement) peers() {
	list := slices.Clone(j.Peers)
	lists.SortStable(list, func(a, b PeerInfo) int {
		return cmp.Or(a.Remote.Compare(b.Remote), cmp.Compare(b.OldestUnacked, a.OldestUnacked))
	})
	seen := map[told]bool{}
	for i := range list {
		for _, f := range []*Finding{j.path(&list[i]), j.unreached(&list[i]), j.unacked(&list[i])} {
			if f == nil || seen[told{f.Check, list[i].Remote}] {
				continue
			}
			seen[told{f.Check, list[i].Remote}] = true
			f.About = list[i].Remote.String()
			j.add(*f)
		}
	}
}

func (j *judgement) path(p *PeerInfo) *Finding {
	if p.MaxSegment == 0 {
		return nil
	}
	return &Finding{Level: LevelError, Check: FindPath, Text: fmt.Sprintf("large packets do not pass on the way to %v: its connection has TCP segments of at most %d bytes", p.Remote, p.MaxSegment),
		Who: "the administrator of the network", Fix: "ip route get and tracepath show the MTU; let ICMP \"fragmentation needed\" and \"packet too big\" pass, or lower the MTU of the interface",
		Do: fmt.Sprintf("rdsctl ping %v -size 8000", p.Remote)}
}

// waitingSince is when p's oldest message was taken in.
func (j *judgement) waitingSince(p *PeerInfo) (at time.Time) {
	if p.OldestUnacked > 0 {
		at = j.Now.Add(-p.OldestUnacked)
	}
	return at
}

// unreached judges a connection that is not up. One that is just being made has a second for that.
func (j *judgement) unreached(p *PeerInfo) *Finding {
	if !p.Missed() || p.OldestUnacked < UnackedAfter && (p.State != "down" || p.LastError == "") && j.Now.Sub(p.Since) < UnackedAfter {
		return nil
	}
	f := Finding{Level: LevelWarn, Check: FindPeer, Text: fmt.Sprintf("%v is wanted and cannot be reached", p.Remote), Since: j.waitingSince(p),
		Error: p.LastError, ErrorAt: p.LastErrorAt, Who: "the administrators of both hosts", Do: fmt.Sprintf("rdsctl ping %v", p.Remote)}
	if f.Error == "" {
		f.Error = "no answer"
	}
	if p.QueuedMessages+p.UnackedMessages > 0 {
		f.Level, f.Text = LevelError, fmt.Sprintf("messages wait for %v, which cannot be reached", p.Remote)
	}
	f.blame(p.Remote)
	return &f
}

// unacked judges what is in progress on a connection that is up.
func (j *judgement) unacked(p *PeerInfo) *Finding {
	if p.State != "up" || p.OldestUnacked < UnackedAfter {
		return nil
	}
	f := Finding{Level: LevelWarn, Check: FindUnacked, Since: j.waitingSince(p), Error: p.LastError, ErrorAt: p.LastErrorAt, Do: "rdsctl stalls"}
	if p.OldestUnacked >= LateAfter {
		f.Level = LevelError
	}
	switch {
	case p.UnackedMessages > 0:
		f.Text, f.Who = fmt.Sprintf("%v does not ack", p.Remote), fmt.Sprintf("the daemon of %v, or the network", p.Remote)
		f.Fix = fmt.Sprintf("rdsctl ping %v; if it has no answer either, look at the network and at the daemon there", p.Remote)
	case slices.ContainsFunc(j.Congested, func(c CongestedInfo) bool { return c.Addr == p.Remote }):
		return nil // congested says it
	default:
		f.Text, f.Who, f.Do = fmt.Sprintf("messages to %v wait to be sent", p.Remote), "whoever rdsctl backlog names", "rdsctl backlog"
	}
	return &f
}

// congested judges ports that are full.
func (j *judgement) congested() {
	named := uint64(0)
	for i := range j.Congested {
		c := &j.Congested[i]
		at := netip.AddrPortFrom(c.Addr, c.Port).String()
		f := Finding{Level: LevelWarn, About: at, Since: c.Since}
		switch {
		case c.Where != "here":
			f.Check, f.Text, f.Who, f.Do = FindReceiver, fmt.Sprintf("senders here wait for %s, which is full", at), "the process that has bound "+at, "rdsctl cong"
			f.Fix = "rdsctl doctor there names the process, which has to read"
		case c.Owner != nil:
			named++
			who := processName(c.Owner)
			f.Check, f.Text, f.Who, f.Do = FindReader, fmt.Sprintf("%s is full: %s does not read", at, who), who, "rdsctl backlog"
			f.Fix = stoppedFix
		default:
			continue
		}
		j.add(f)
	}
	if j.Status.Counts.CongestedPorts > 0 && named == 0 {
		j.add(Finding{Level: LevelWarn, Check: FindReader, Text: "a port here is full: its process does not read", Who: "the process that has bound it", Do: "rdsctl cong"})
	}
}

// backlog judges what peers and congested do not: messages that wait for long at a process or for an administrator here.
func (j *judgement) backlog() {
	for i := range j.Backlog {
		b := &j.Backlog[i]
		if b.Oldest < LateAfter || b.WaitsFor == WaitsForReader && b.Congested {
			continue
		}
		who := processName(&b.Owner)
		f := Finding{Level: LevelWarn, About: netip.AddrPortFrom(b.Addr, b.Port).String(), Since: j.Now.Add(-b.Oldest), Do: "rdsctl backlog"}
		switch b.WaitsFor {
		case WaitsForReader:
			f.Check, f.Text, f.Who, f.Fix = FindReader, fmt.Sprintf("%s does not read %s", who, f.About), who, stoppedFix
		case WaitsForQuota:
			f.Check, f.Text, f.Who = FindQuota, fmt.Sprintf("messages of %s wait: those to other destinations use all of quota.destinations of %s", who, b.Owner.charged()), here
			f.Fix = "raise the quota, or mend what the other messages wait for"
		case WaitsForRoom:
			f.Check, f.Text, f.Who = FindQuota, fmt.Sprintf("messages of %s wait: the daemon has as many peers as it can have", who), here
		default:
			continue
		}
		j.add(f)
	}
}

func processName(o *Owner) string { return fmt.Sprintf("%s[%d]", cmp.Or(o.Name, "unnamed"), o.PID) }

const stoppedFix = "see whether the process is stopped, or waits for something else"

// nearly reports whether nine tenths of limit are used.
func nearly(used, limit uint64) bool { return limit > 0 && used >= limit-limit/10 }

// limits judges what users and the daemon have of what is bounded.
func (j *judgement) limits() {
	for i := range j.Status.Users {
		u := &j.Status.Users[i]
		name := u.Name()
		for _, r := range []struct {
			name string
			use  *Usage
			do   string
		}{{"clients", &u.Clients, "processes"}, {"sockets", &u.Sockets, "sockets"}, {"destinations", &u.Destinations, "backlog"}, {"operations", &u.Operations, "backlog"},
			{"grants", &u.Grants, "keys"}, {"registered_bytes", &u.RegisteredBytes, "processes"}, {"queued_bytes", &u.QueuedBytes, "processes"}} {
			if r.use.Quota != nil && *r.use.Quota > 0 && nearly(r.use.Used, *r.use.Quota) {
				j.add(Finding{Level: LevelWarn, Check: FindQuota, About: name, Text: fmt.Sprintf("%s uses nine tenths or more of its quota.%s of %d", name, r.name, *r.use.Quota),
					Who: name + ", or " + here, Fix: "raise it in quota.overrides if that use is right", Do: "rdsctl " + r.do})
			}
		}
		if q := u.Unreceived.Quota; q != nil && 10*u.Unreceived.Used >= 9**q {
			j.add(Finding{Level: LevelError, Check: FindQuota, About: name,
				Text: fmt.Sprintf("processes of %s leave so many descriptors unreceived that its next processes and buffers are refused", name), Who: name,
				Fix: "see why they do not read, or end them (FDS)", Do: "rdsctl processes -filter " + strings.Replace(name, " ", "=", 1)})
		}
	}
	m := &j.Status.Memory
	if nearly(m.Registered, m.Limit) {
		j.add(Finding{Level: LevelWarn, Check: FindMemory, Text: "nine tenths or more of limits.max_registered_bytes are used", Who: here, Fix: "raise it, or have processes free buffers", Do: "rdsctl status"})
	}
	if nearly(m.Held, m.HeldLimit) {
		j.add(Finding{Level: LevelWarn, Check: FindMemory, Text: "nine tenths or more of limits.max_held_bytes are used: processes do not read", Who: "the processes that do not read", Do: "rdsctl backlog"})
	}
}
