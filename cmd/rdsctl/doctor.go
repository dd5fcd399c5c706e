package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
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
	// Finding is what ctl.Judge has found; nil if this is a finding of doctor alone.
	Finding *ctl.Finding `json:"finding,omitempty"`
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
	d.found = append(d.found, finding{Check: check, State: state, Text: fmt.Sprintf(format, args...), Fix: fix})
}

// judged adds what ctl.Judge finds, and what is well.
func (d *doctor) judged(f *ctl.Facts) {
	found := ctl.Judge(f)
	for i := range found {
		state, x := findNote, &found[i]
		if x.Level == ctl.LevelError {
			state = findWrong
		}
		d.found = append(d.found, finding{Check: x.Check, State: state, Text: x.Line(f.Now), Fix: remedy(x), Finding: x})
	}
	up := 0
	for i := range f.Peers {
		if f.Peers[i].State == "up" {
			up++
		}
	}
	if e := &f.Status.Engine; !slices.ContainsFunc(found, func(x ctl.Finding) bool { return x.Check == ctl.FindEngine }) {
		d.say(findOK, "engine", "", "%s; %s since the start that took long (stalls)", e.State, plural(e.Stalls, "turn"))
	}
	if len(found) == 0 {
		d.say(findOK, "judgement", "", "%s", allWell)
	}
	d.say(findOK, "peers", "", "%d of %d connections are up", up, len(f.Peers))
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
	d.judged(d.facts(d.ctx, d.o, s))
	d.limits(s)
	d.paths(s)
	d.addresses(s)
	d.config()
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
		fix = "what follows says whether it is stopped by a signal: then kill -CONT; a daemon that is stuck has to be restarted: rdsctl bundle first"
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
		d.judged(d.factsOffline("", off))
	}
	return nil
}

func (d *doctor) status(s *ctl.Status) {
	for _, t := range s.Transports {
		d.say(findOK, "transport", "", "%s: %s, %s", t.Name, yesNo(t.Used), t.Why)
	}
	if c := s.Congestion; c.Why != "" && c.Wanted != c.Used && c.Used != "" {
		d.say(findNote, "congestion", "as root: sysctl net.ipv4.tcp_available_congestion_control, and allow it with tcp_allowed_congestion_control", "%s", congestion(c))
	}
	if t := s.TLS; t.Subject == "" && t.Mode != "off" {
		d.say(findNote, "tls", "on a network that others use: tls.cert, tls.key and tls.ca", "no certificate: connections are plain")
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

// kernel reports whether the kernel's RDS is loaded as well.
func (d *doctor) kernel() {
	b, _ := os.ReadFile(filepath.Join(d.proc, "modules"))
	var loaded []string // those that use rds before it, as rmmod wants them
	for _, name := range []string{"rds_tcp", "rds_rdma", "rds"} {
		if strings.Contains("\n"+string(b), "\n"+name+" ") {
			loaded = append(loaded, name)
		}
	}
	if slices.Contains(loaded, "rds") {
		d.say(findNote, "kernel", "rmmod "+strings.Join(loaded, " ")+", and keep it out: echo 'install rds /bin/false' >/etc/modprobe.d/rds.conf (docs/replace-the-module.md)",
			"the kernel's own RDS is loaded (CVE-2026-43494): programs with AF_RDS sockets that do not run under rdsctl run use that, not rdsd")
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
	b, err := indented(&report{Schema: ctl.Schema, Kind: ctl.KindDoctor, Doctor: d.found})
	if err != nil {
		return []byte(err.Error())
	}
	return b
}
