package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/version"
)

// finding is one line of doctor.
type finding struct {
	Check string `json:"check"`
	State string `json:"state"` // "ok", "note", "wrong", "skipped"
	Text  string `json:"text"`
	Fix   string `json:"fix"` // "" if nothing is wrong
}

const (
	findOK      = "ok"
	findNote    = "note"
	findWrong   = "wrong"
	findSkipped = "skipped"
)

// findTones are the colours of states on a terminal.
var findTones = map[string]text.Color{findOK: good, findNote: busy, findWrong: wrong}

// doctor looks for problems, from the control socket outward.
type doctor struct {
	*app
	ctx   context.Context
	o     *options
	proc  string // /proc
	sys   string // /sys
	found []finding
}

func doctorVerb(*flag.FlagSet) action {
	return func(ctx context.Context, a *app, o *options, _ string) int {
		d := &doctor{app: a, ctx: ctx, o: o, proc: "/proc", sys: "/sys"}
		d.run()
		if ctx.Err() != nil {
			fmt.Fprintln(a.stderr, "rdsctl: doctor: interrupted")
			return exitFailed
		}
		code := exitOK
		for _, f := range d.found {
			if f.State == findWrong {
				code = exitFailed
			}
		}
		if o.output.machine() {
			return max(code, a.printReport(o, report{Kind: ctl.KindDoctor, Doctor: d.found}, nil))
		}
		for _, f := range d.found {
			state := fmt.Sprintf("%-8s", f.State)
			if c := findTones[f.State]; c != 0 && a.terminal().is() {
				state = c.Sprint(state)
			}
			fmt.Fprintf(a.stdout, "%s%-12s%s\n", state, f.Check, cell(f.Text, "nothing to say"))
			if f.Fix != "" {
				fmt.Fprintf(a.stdout, "%-8s%-12sfix: %s\n", "", "", cell(f.Fix, ""))
			}
		}
		return code
	}
}

func (d *doctor) say(state, check, fix, format string, args ...any) {
	d.found = append(d.found, finding{check, state, fmt.Sprintf(format, args...), fix})
}

func (d *doctor) run() {
	s := d.daemon()
	d.kernel()
	d.devices(s)
	if s == nil {
		return
	}
	d.nodes()
	d.status(s)
	d.limits(s)
	d.addresses(s)
	d.config()
	d.peers()
	d.backlog()
}

// daemon returns the daemon's status. It is nil if the daemon cannot be asked.
func (d *doctor) daemon() *ctl.Status {
	_, r, err := d.once(d.ctx, d.o, ctl.Request{Kind: ctl.KindStatus})
	if err == nil {
		s := r.Status
		d.say(findOK, "daemon", "", "rdsd %s answers at %s, pid %d, up %v", s.Version, s.Socket, s.PID, s.Uptime.Round(time.Second))
		if v := version.String(); v != s.Version {
			d.say(findNote, "version", "install both from one release; restart the daemon after an upgrade", "this rdsctl is %s, the daemon %s", v, s.Version)
		}
		return s
	}
	fix := "start rdsd (systemctl start rdsd), or name its socket with -socket or RDSD_SOCKET"
	switch code, _ := exitOf(err); code {
	case exitPermission:
		fix = "run as root, or as a user whom socket_mode and the group of the socket let in"
	case exitTimeout:
		fix = "rdsctl status -offline; a daemon that stays stuck has to be restarted: rdsctl bundle first"
	case exitVersion:
		fix = "use the rdsctl that came with the daemon"
	}
	d.say(findWrong, "daemon", fix, "%s", err)
	off, gone, offErr := d.offline("")
	switch {
	case offErr != nil:
		d.say(findSkipped, "statistics", "", "%s", offErr)
	case gone != exitOK:
		d.say(findNote, "statistics", "", "%s are of a daemon that is gone (pid %d)", off.Stats, off.PID)
	default:
		d.say(findNote, "statistics", "", "%s: the engine is %s, late by %v", off.Stats, off.Engine.State, off.Engine.Late.Round(time.Millisecond))
		for _, w := range off.Warnings {
			d.say(findNote, "warning", "", "%s", w)
		}
	}
	return nil
}

func (d *doctor) status(s *ctl.Status) {
	for _, w := range s.Warnings {
		d.say(findNote, "warning", "", "%s", w)
	}
	if s.Engine.Late >= ctl.StallAfter {
		d.say(findWrong, "engine", "rdsctl bundle -stacks, then restart the daemon", "it has not turned for %v", s.Engine.Late.Round(time.Millisecond))
	} else {
		d.say(findOK, "engine", "", "%s, %d stalls", s.Engine.State, s.Engine.Stalls)
	}
	for i := range s.Users {
		u := &s.Users[i].Unreceived
		if u.Quota != nil && 10*u.Used >= 9**u.Quota {
			d.say(findWrong, "descriptors", "rdsctl processes -filter 'uid="+count(uint64(s.Users[i].UID))+"' shows which (FDS); see why they do not read, or end them",
				"processes of uid %d have not received %d descriptors, which is all that the user may have: its next processes and buffers are refused", s.Users[i].UID, u.Used)
		}
	}
	for _, t := range s.Transports {
		d.say(findOK, "transport", "", "%s: %s, %s", t.Name, yesNo(t.Used), t.Why)
	}
	if c := s.Congestion; c.Why != "" && c.Wanted != c.Used && c.Used != "" {
		d.say(findNote, "congestion", "as root: sysctl net.ipv4.tcp_available_congestion_control, and allow it with tcp_allowed_congestion_control", "%s", congestion(c))
	}
	switch t := s.TLS; {
	case t.Subject == "" && t.Mode != "off":
		d.say(findNote, "tls", "on a network that others use: tls.cert, tls.key and tls.ca", "no certificate: connections are plain")
	case t.Subject != "" && time.Until(t.Expires) < 14*24*time.Hour:
		d.say(findWrong, "tls", "replace the files of tls.cert and tls.key, then rdsctl config reload", "the certificate ends %s", t.Expires.UTC().Format(time.DateOnly))
	case t.Failed > 0:
		d.say(findNote, "tls", "rdsctl errors -filter event~TLS", "%d handshakes failed", t.Failed)
	}
}

// limits checks the limits of the daemon's process.
func (d *doctor) limits(s *ctl.Status) {
	dir := filepath.Join(d.proc, strconv.Itoa(s.PID))
	b, err := os.ReadFile(filepath.Join(dir, "limits"))
	if err != nil {
		d.say(findSkipped, "limits", "", "%s", err)
		return
	}
	soft := func(name string) (uint64, bool) {
		sc := bufio.NewScanner(strings.NewReader(string(b)))
		for sc.Scan() {
			if rest, ok := strings.CutPrefix(sc.Text(), name); ok {
				f := strings.Fields(rest)
				if len(f) == 0 || f[0] == "unlimited" {
					return 0, false
				}
				n, err := strconv.ParseUint(f[0], 10, 64)
				return n, err == nil
			}
		}
		return 0, false
	}
	if n, ok := soft("Max open files"); ok {
		fds, err := os.ReadDir(filepath.Join(dir, "fd"))
		switch {
		case err != nil:
			d.say(findSkipped, "files", "", "%s", err)
		case uint64(len(fds))*10 > n*8:
			d.say(findWrong, "files", "LimitNOFILE= in the unit, or ulimit -n", "%d of %d descriptors are open", len(fds), n)
		default:
			d.say(findOK, "files", "", "%d of %d descriptors are open", len(fds), n)
		}
	}
	for _, t := range s.Transports {
		if n, ok := soft("Max locked memory"); ok && t.Used && t.Name == string(config.TransportVerbs) && n < 1<<30 {
			d.say(findWrong, "memlock", "LimitMEMLOCK=infinity in the unit, or CAP_IPC_LOCK", "an adapter locks memory, and the limit is %s", bytesText(n))
		}
	}
}

// addresses checks that the host has the addresses that the daemon listens at.
func (d *doctor) addresses(s *ctl.Status) {
	have, err := net.InterfaceAddrs()
	if err != nil {
		d.say(findSkipped, "addresses", "", "%s", err)
		return
	}
	for _, l := range s.Listen {
		found := l.Addr().IsLoopback() // all of 127/8
		for _, h := range have {
			if p, err := netip.ParsePrefix(h.String()); err == nil && p.Addr().Unmap() == l.Addr() {
				found = true
			}
		}
		if found {
			d.say(findOK, "addresses", "", "%v is this host's", l.Addr())
		} else {
			d.say(findWrong, "addresses", "ip addr add, or change listen and restart", "%v is not an address of this host (seen from here)", l.Addr())
		}
	}
}

func (d *doctor) config() {
	_, r, err := d.once(d.ctx, d.o, ctl.Request{Kind: ctl.KindDiff})
	switch e, ok := errors.AsType[*ctl.Error](err); {
	case ok && e.Code == ctl.CodeFailed:
		d.say(findWrong, "config", "correct it; rdsctl config validate FILE checks it", "a restart would fail: %s", e.Message)
	case err != nil:
		d.say(findSkipped, "config", "", "%s", err)
	case len(r.Reload.Restart) > 0:
		d.say(findNote, "config", "restart the daemon", "%d keys wait for a restart: rdsctl config diff", len(r.Reload.Restart))
	case len(r.Reload.Applied) > 0:
		d.say(findNote, "config", "rdsctl config reload", "%d keys wait for a reload: rdsctl config diff", len(r.Reload.Applied))
	default:
		d.say(findOK, "config", "", "the daemon runs with what its sources say")
	}
}

// hints say what an error of a connection usually means.
var hints = []struct{ text, fix string }{
	{"peers.allow", "add this host to peers.allow there, and that one here"},
	{"refused", "see that rdsd runs there, at this address and port (listen in rdsctl status)"},
	{"tls", "both hosts need certificates of one CA for their addresses, and right clocks: docs/operations.md, Two hosts safely"},
	{"certificate", "both hosts need certificates of one CA for their addresses, and right clocks: docs/operations.md, Two hosts safely"},
	{"no route", "ip route get ADDR"},
	{"unreachable", "ip route get ADDR"},
	{"time", "see that the host is up, and that firewalls let TCP through to rdsd's port"},
	{"version", "install the same release on both hosts"},
}

func (d *doctor) peers() {
	_, r, err := d.once(d.ctx, d.o, ctl.Request{Kind: ctl.KindPeers})
	if err != nil {
		d.say(findSkipped, "peers", "", "%s", err)
		return
	}
	up, bad := 0, 0
	for i := range r.Peers {
		p := &r.Peers[i]
		if p.MaxSegment != 0 {
			d.say(findWrong, "path", "ip route get "+p.Remote.String()+" and tracepath show the MTU; let ICMP \"fragmentation needed\" and \"packet too big\" pass, or lower the MTU of the interface",
				"large packets do not pass on the way to %v: its connection has TCP segments of at most %d bytes", p.Remote, p.MaxSegment)
		}
		switch {
		case p.State == "up":
			up++
		case wants(p):
			if bad++; bad > 10 {
				continue
			}
			fix := "rdsctl ping " + p.Remote.String() + " and rdsctl errors say more"
			for _, h := range hints {
				if strings.Contains(strings.ToLower(p.LastError), h.text) {
					fix = strings.ReplaceAll(h.fix, "ADDR", p.Remote.String())
					break
				}
			}
			d.say(findWrong, "peer", fix, "%v lane %d is %s with %d messages waiting: %s", p.Remote, p.Lane, p.State,
				p.QueuedMessages+p.UnackedMessages, cell(p.LastError, "no error"))
		}
	}
	if bad > 10 {
		d.say(findWrong, "peer", "rdsctl peers -filter 'state!=up'", "and %d more", bad-10)
	}
	d.say(findOK, "peers", "", "%d of %d connections are up", up, len(r.Peers))
}

func (d *doctor) backlog() {
	_, r, err := d.once(d.ctx, d.o, ctl.Request{Kind: ctl.KindBacklog})
	if err != nil {
		d.say(findSkipped, "backlog", "", "%s", err)
		return
	}
	old := 0
	for i := range r.Backlog {
		b := &r.Backlog[i]
		if b.Oldest < 10*time.Second {
			continue
		}
		if old++; old <= 5 {
			fix := map[string]string{
				ctl.WaitsForReader:   fmt.Sprintf("%s has to read its socket", process(&b.Owner)),
				ctl.WaitsForReceiver: "the process at the destination has to read: rdsctl cong there",
				ctl.WaitsForOperator: "rdsctl daemon resume, or peer resume",
				ctl.WaitsForQuota:    "messages in progress to other destinations of its user use all of quota.destinations: rdsctl backlog shows them; raise the quota, or mend what they wait for",
			}[b.WaitsFor]
			d.say(findNote, "backlog", fix, "%s to %s: the oldest message is %s old, waits for: %s", place(b.Addr, b.Port), place(b.Dest, b.DestPort), short(b.Oldest), b.WaitsFor)
		}
	}
	if old == 0 {
		d.say(findOK, "backlog", "", "no message has waited for 10 seconds")
	}
}

// kernel reports whether the kernel's RDS is loaded as well.
func (d *doctor) kernel() {
	b, err := os.ReadFile(filepath.Join(d.proc, "modules"))
	if err == nil && strings.Contains("\n"+string(b), "\nrds ") {
		d.say(findNote, "kernel", "", "the kernel's own RDS is loaded: programs with AF_RDS sockets use that, not rdsd")
	}
}

// devices reports the host's RDMA adapters and whether they may be opened.
func (d *doctor) devices(s *ctl.Status) {
	adapters, err := os.ReadDir(filepath.Join(d.sys, "class/infiniband"))
	if err != nil || len(adapters) == 0 {
		d.say(findOK, "adapters", "", "no RDMA adapter: connections are TCP")
		return
	}
	var names []string
	for _, e := range adapters {
		names = append(names, e.Name())
	}
	used := false
	if s != nil {
		for _, t := range s.Transports {
			used = used || t.Used && t.Name == string(config.TransportVerbs)
		}
	}
	if used {
		d.say(findOK, "adapters", "", "%s, used", strings.Join(names, ", "))
	} else {
		d.say(findNote, "adapters", "set transport to \"auto\" or \"verbs\", and use an rdsd from make build-ibv; rdsctl devices says what is missing", "%s: not used", strings.Join(names, ", "))
	}
}

// nodes reports whether the daemon can use the character devices of the RDMA devices.
func (d *doctor) nodes() {
	_, r, err := d.once(d.ctx, d.o, ctl.Request{Kind: ctl.KindDevices})
	if err != nil {
		d.say(findSkipped, "nodes", "", "%s", err)
		return
	}
	for i := range r.Devices.Devices {
		x := &r.Devices.Devices[i]
		if len(x.Nodes) == 0 {
			d.say(findNote, "nodes", "modprobe ib_uverbs rdma_ucm", "%s has no character device", x.Name)
		}
		for _, n := range x.Nodes {
			if n.Problem == "" {
				d.say(findOK, "nodes", "", "%s: the daemon can use %s", x.Name, n.Path)
			} else {
				d.say(findNote, "nodes", "a udev rule or group that lets the daemon's user read and write it, then restart the daemon", "%s: %s", x.Name, n.Problem)
			}
		}
	}
}

// json is the part of the findings that a bundle keeps.
func (d *doctor) json() []byte {
	b, err := json.MarshalIndent(&report{Schema: ctl.Schema, Kind: ctl.KindDoctor, Doctor: d.found}, "", "  ")
	if err != nil {
		return []byte(err.Error())
	}
	return b
}
