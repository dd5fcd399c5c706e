package ctl

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/rdsd/rdsd/internal/lists"
)

const (
	there      = "the administrator of ADDR"
	bothHosts  = "the administrators of both hosts"
	theNetwork = "the administrator of the network"
	certFix    = "both hosts need certificates of one authority for their addresses, the same tls.mode, and right clocks"
	modeFix    = "the same tls.mode on both hosts, and certificates if it is on"
	upFix      = "see that the host is up, and that firewalls let TCP through to rdsd's port"
)

// causes say what the error of a connection, or of a host that was turned away, usually means. ADDR is the other host. The
// first that fits counts.
var causes = []struct{ text, who, fix string }{
	{"not in peers.allow", here, "add ADDR to peers.allow, then rdsctl config reload"},
	{"its peers.allow does not name", there, "add this host to peers.allow there, then rdsctl config reload there"},
	{"no more tls handshakes", bothHosts, "the connection comes by itself; if not, rdsctl errors names the hosts that connect too often"},
	{"without a word", there, "rdsctl doctor there; mostly its peers.allow does not name this host"},
	{"is no rdsd", there, "see what listens at that port there, and that port is the same on both hosts"},
	{"version", bothHosts, "install the same release on both hosts"},
	{"certificate has expired", there, "a new certificate there, or right clocks"},
	{"it has expired", here, "a new certificate here, or right clocks"},
	{"unknown authority", bothHosts, "certificates of one authority: that of ADDR's certificate is not in tls.ca here"},
	{"does not have its authority", bothHosts, "certificates of one authority: that of this host's certificate is not in tls.ca of ADDR"},
	{"peer's certificate is not for its address", there, "a certificate there that has ADDR as an IP SAN, or the same tls.names on both hosts"},
	{"does not accept this host's certificate", bothHosts, "rdsctl doctor on ADDR says what is wrong with the certificate of this host"},
	{"has no tls", bothHosts, modeFix},
	{"begins with tls", bothHosts, modeFix},
	{"wants tls", bothHosts, modeFix},
	{"begins without tls", bothHosts, modeFix},
	{"tls", bothHosts, certFix},
	{"certificate", bothHosts, certFix},
	{"rejected", there, "rdsctl doctor there says why; mostly its peers.allow does not name this host"},
	{"refused", there, "see that rdsd runs there, at this address and the same port (listen in rdsctl status)"},
	{"no route", theNetwork, "ip route get ADDR"},
	{"unreachable", theNetwork, "ip route get ADDR"},
	{"no answer", there, upFix},
	{"time", there, upFix},
}

// blame sets who has to act and what helps by f's error, if that is known.
func (f *Finding) blame(addr netip.Addr) {
	text := strings.ToLower(f.Error)
	for _, c := range causes {
		if strings.Contains(text, c.text) {
			f.Who, f.Fix = strings.ReplaceAll(c.who, "ADDR", addr.String()), strings.ReplaceAll(c.fix, "ADDR", addr.String())
			return
		}
	}
}

// TurnsAway reports whether an event says that this daemon did not take a host's connection.
func TurnsAway(event string) bool {
	return strings.HasPrefix(event, "request rejected") || strings.Contains(event, "connection refused")
}

// told is a kind of finding about a host.
type told struct {
	check string
	addr  netip.Addr
}

// connectFailed is the event of a peer that this daemon did not reach.
const connectFailed = "connect failed"

// refused judges the hosts that this daemon has turned away lately, and those that it did not reach while somebody wanted
// them: a program that has given up leaves no other sign. It passes over a host that is connected by now.
func (j *judgement) refused() {
	seen := map[told]bool{}
	for i := range j.out {
		if addr, err := netip.ParseAddr(j.out[i].About); err == nil {
			seen[told{j.out[i].Check, addr}] = true
		}
	}
	list := slices.Clone(j.Errors)
	lists.SortStable(list, func(a, b ErrorInfo) int { return b.Last.Compare(a.Last) })
	for i := range list {
		e := &list[i]
		f := Finding{Level: LevelWarn, Check: FindRefused, About: e.Peer.String(), Text: fmt.Sprintf("%v was turned away", e.Peer),
			Error: cmp.Or(e.Error, e.Event), ErrorAt: e.Last, Who: here, Do: fmt.Sprintf("rdsctl errors -filter peer=%v", e.Peer),
			Fix: "see to the certificates, version and tls.mode of both hosts"}
		switch {
		case e.Event == connectFailed:
			f.Check, f.Text, f.Who = FindPeer, fmt.Sprintf("%v was wanted and could not be reached", e.Peer), bothHosts
		case !TurnsAway(e.Event):
			continue
		}
		if !e.Peer.IsValid() || seen[told{f.Check, e.Peer}] || j.Now.Sub(e.Last) >= refusedFor ||
			slices.ContainsFunc(j.Peers, func(p PeerInfo) bool { return p.Remote == e.Peer && p.State == "up" && p.Since.After(e.Last) }) {
			continue
		}
		seen[told{f.Check, e.Peer}] = true
		f.blame(e.Peer)
		if f.Check == FindRefused && f.Fix != "" {
			f.Fix = "if that host belongs here: " + f.Fix
		}
		j.add(f)
	}
}
