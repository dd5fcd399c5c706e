package ctl

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Concern is one thing that an operator should know at the first look.
type Concern struct {
	Level string `json:"level"` // "warn", "error"
	Text  string `json:"text"`
	Do    string `json:"do"` // the command that says more, "" if there is none
}

// Concerns is what is wrong with a daemon in state s with these peers, the worst first. It is
// empty if all is well.
func Concerns(s *Status, peers []PeerInfo) []Concern {
	out := []Concern{}
	bad := func(text, do string) { out = append(out, Concern{"error", text, do}) }
	warn := func(text, do string) { out = append(out, Concern{"warn", text, do}) }
	if s.Engine.State == "stopped" {
		bad("the daemon has stopped", "")
	} else if s.Engine.Late >= StallAfter {
		bad(fmt.Sprintf(engineLate+"%v", s.Engine.Late.Round(time.Second)), "rdsctl status -offline")
	}
	var waiting, failed []PeerInfo
	for i := range peers {
		switch p := &peers[i]; {
		case p.State == "up":
		case p.QueuedMessages+p.UnackedMessages > 0:
			waiting = append(waiting, *p)
		case p.LastError != "":
			failed = append(failed, *p)
		}
	}
	if len(waiting) > 0 {
		bad(named(waiting, "down, and messages wait"), "rdsctl peers -filter state!=up")
	}
	if len(failed) > 0 {
		warn(named(failed, "down"), "rdsctl peers -filter state!=up")
	}
	if n := s.Counts.CongestedPorts; n > 0 {
		warn(fmt.Sprintf("%s congested: the process does not read", areSome(int(n), "port")), "rdsctl backlog")
	}
	for _, w := range s.Warnings { // TLS among them, unless tls.warn is off
		told := s.Engine.Late >= StallAfter && strings.HasPrefix(w, engineLate)
		if !told && !slices.ContainsFunc(out, func(c Concern) bool { return c.Text == w }) {
			warn(w, "")
		}
	}
	slices.SortStableFunc(out, func(a, b Concern) int { return len(b.Level) - len(a.Level) }) // error before warn
	return out
}

// named says how many peers are in a state, and names the first.
func named(peers []PeerInfo, state string) string {
	if len(peers) == 1 {
		return fmt.Sprintf("peer %v is %s", peers[0].Remote, state)
	}
	return fmt.Sprintf("%d peers are %s, %v first", len(peers), state, peers[0].Remote)
}

func areSome(n int, what string) string {
	if n == 1 {
		return "1 " + what + " is"
	}
	return fmt.Sprintf("%d %ss are", n, what)
}
