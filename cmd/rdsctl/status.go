package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/stats"
)

func statusVerb(fs *flag.FlagSet) action {
	counters := fs.Bool("counters", false, "also list the counters that are not 0")
	return func(ctx context.Context, a *app, o *options, _ string) int {
		show := func(r *ctl.Response) {
			f := a.factsOffline(o.stats, r.Status)
			if !r.Status.Offline {
				f = a.facts(ctx, o, r.Status)
			}
			showStatus(a.stdout, f, *counters)
		}
		return a.repeat(ctx, o, func() int {
			if o.offline {
				return a.offlineStatus(o, show)
			}
			return a.ask(ctx, o, ctl.Request{Kind: ctl.KindStatus}, show)
		})
	}
}

func (a *app) offlineStatus(o *options, show func(*ctl.Response)) int {
	s, code, err := a.offline(o.stats)
	if err != nil {
		return a.fail(o, ctl.KindStatus, err)
	}
	r := &ctl.Response{Schema: ctl.Schema, Kind: ctl.KindStatus, Status: s}
	if o.output.machine() {
		return max(code, a.printJSON(o, r))
	}
	show(r)
	return code
}

// offline reads the first mapping that exists. The exit status says whether the mapping's
// daemon lives.
func (a *app) offline(path string) (*ctl.Status, int, error) {
	var tried []string
	for _, p := range a.statsPaths(path) {
		m, err := stats.Open(p)
		if errors.Is(err, fs.ErrNotExist) {
			tried = append(tried, p)
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		defer m.Close()
		s := &ctl.Status{Offline: true, Stats: p}
		snap := m.Snapshot()
		code := exitOK
		if !m.Live() {
			// The engine's last state does not matter once the daemon is dead.
			snap.State = stats.Stopped
			s.Warnings = append(s.Warnings, fmt.Sprintf("the daemon (pid %d) is gone; these are its last figures", snap.PID))
			code = exitNoDaemon
		} else if why := heldUp("/proc", snap.PID); why != "" {
			s.Warnings = append(s.Warnings, why)
		}
		s.Fill(&snap, time.Now())
		s.Normalize()
		return s, code, nil
	}
	return nil, 0, fmt.Errorf("%w: no statistics mapping at %s; name it with --stats, or the daemon's socket with --socket",
		ipc.ErrNoDaemon, strings.Join(tried, ", "))
}

// statsPaths are the paths at which a statistics mapping may be. If path is set, it is the
// only one.
func (a *app) statsPaths(path string) (paths []string) {
	if path != "" {
		return []string{path}
	}
	for _, p := range a.paths {
		paths = append(paths, config.StatsPath(p))
	}
	return paths
}

func showStatus(w io.Writer, f *ctl.Facts, counters bool) {
	s := f.Status
	for _, x := range ctl.Judge(f) {
		fmt.Fprintf(w, "%s: %s\n", map[string]string{ctl.LevelWarn: "warning", ctl.LevelError: "error"}[x.Level], printable(x.Line(f.Now)))
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(tw, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	version := cell(s.Version, "of unknown version")
	if s.Offline {
		version = "(from the statistics mapping)"
	}
	line("daemon", "rdsd %s, pid %d, up %v, instance %v", version, s.PID, s.Uptime.Round(time.Second), s.Instance)
	if text := upgradeText(&s.Upgrade); text != "" {
		line("upgrades", "%s", text)
	}
	if !s.Offline {
		line("socket", "%s", s.Socket)
		line("listen", "%s", joined(s.Listen))
		name := "transports"
		for _, t := range s.Transports {
			line(name, "%s", transportText(t))
			name = ""
		}
		line("tls", "%s", tlsText(&s.TLS))
		line("crc", "%s", s.CRC)
		line("congestion", "%s", congestion(s.Congestion))
		line("metrics", "%s", cell(s.Metrics, "off"))
	}
	line("statistics", "%s", s.Stats)
	if s.Sandbox != "" {
		line("sandbox", "%s", printable(s.Sandbox))
	}
	line("engine", "%s", engineText(&s.Engine))
	line("waiting", "%s", &s.Engine.Wait)
	if s.MessageTime.Count > 0 {
		line("messages", "acked after %s", &s.MessageTime)
	}
	if s.OperationTime.Count > 0 {
		line("operations", "settled after %s", &s.OperationTime)
	}
	c := &s.Counts
	line("open", "%s, %s (%d congested), %s (%d up), %s, %s", plural(c.Clients, "client"), plural(c.Sockets, "socket"), c.CongestedPorts,
		plural(c.Peers, "peer"), c.PeersUp, plural(c.Regions, "region"), plural(c.OpsOutstanding, "operation"))
	m := &s.Memory
	line("memory", "registered %s%s, shared with clients %s, pools %s, held for readers %s%s",
		bytesText(m.Registered), of(m.Limit), bytesText(m.Shared), bytesText(m.Pool), bytesText(m.Held), of(m.HeldLimit))
	_ = tw.Flush()
	showUsers(w, s.Users)
	if counters {
		showCounters(w, s.Counters)
	}
}

// engineText sums up the engine in a line.
func engineText(e *ctl.EngineInfo) string {
	turns := "no turn yet"
	if e.Turns > 0 {
		turns = fmt.Sprintf("%s of mean %s, p50 <%s, p99 <%s, max %s", plural(e.Turns, "turn"), short(e.TurnMean), short(e.TurnP50), short(e.TurnP99), short(e.TurnMax))
	}
	return fmt.Sprintf("%s, %s; %s", e.State, turns, plural(e.Stalls, "stall"))
}

// plural is a number of things with the plural of their name.
func plural(n uint64, name string) string {
	if n == 1 {
		return "1 " + name
	}
	return count(n) + " " + name + "s"
}

// tlsText sums up TLS in a line.
func tlsText(t *ctl.TLS) string {
	s := cell(t.Mode, "unknown")
	if t.Subject != "" {
		s += fmt.Sprintf(", certificate %s until %s", printable(t.Subject), t.Expires.UTC().Format(time.DateOnly))
	} else if t.Mode != "off" {
		s += ", no certificate: plain"
	}
	if t.Secured+t.Failed+t.Plain+t.Limited > 0 {
		s += fmt.Sprintf("; %d handshakes, turned away: %d failed, %d plain, %d too many", t.Secured, t.Failed, t.Plain, t.Limited)
	}
	return s
}

// of is the text for a limit behind a figure. A limit of 0 is not known.
func of(limit uint64) string {
	if limit == 0 {
		return ""
	}
	return " of " + bytesText(limit)
}

// showUsers lists what each user has, and its quota if there is one. It leaves out users
// that have nothing.
func showUsers(w io.Writer, users []ctl.User) {
	var rows [][]string
	for i := range users {
		u := &users[i]
		if u.Clients.Used+u.Sockets.Used+u.Destinations.Used+u.Operations.Used+u.Grants.Used+u.RegisteredBytes.Used+u.QueuedBytes.Used+u.HeldBytes+u.Unreceived.Used == 0 {
			continue
		}
		dests := usage(u.Destinations, count)
		if u.Waiting > 0 {
			dests += fmt.Sprintf(" (+%d)", u.Waiting)
		}
		rows = append(rows, []string{userText(u), usage(u.Clients, count), usage(u.Sockets, count), dests, usage(u.Operations, count), usage(u.Grants, count),
			usage(u.RegisteredBytes, bytesText), usage(u.QueuedBytes, bytesText), bytesText(u.HeldBytes), usage(u.Unreceived, count)})
	}
	if len(rows) > 0 {
		fmt.Fprintln(w)
		showTable(w, []string{"USER", "CLIENTS", "SOCKETS", "DESTINATIONS", "OPS", "GRANTS", "REGISTERED", "QUEUED", "HELD", "FDS"}, rightFrom(1, 10), rows)
	}
}

// userText is the uid, or the label of the account.
func userText(u *ctl.User) string {
	if u.UID == nil {
		return printable(u.Account)
	}
	return count(uint64(*u.UID))
}

func usage(u ctl.Usage, text func(uint64) string) string {
	if u.Quota == nil {
		return text(u.Used)
	}
	return text(u.Used) + "/" + text(*u.Quota)
}

func showCounters(w io.Writer, list ctl.CounterList) {
	var rows [][]string
	for _, c := range list {
		if c.Value != 0 {
			rows = append(rows, []string{printable(c.Name), count(c.Value)})
		}
	}
	fmt.Fprintln(w)
	showTable(w, []string{"COUNTER", "VALUE"}, rightFrom(1, 2), rows)
}

func transportText(t ctl.Choice) string {
	s := t.Name + ": " + yesNo(t.Used)
	if t.Why != "" {
		s += ", " + t.Why
	}
	return printable(s)
}

// congestion sums up the congestion control. It is known from the first connection on.
func congestion(c ctl.Congestion) string {
	switch {
	case c.Used == "" && c.Why == "":
		return c.Wanted + " wanted, no connection yet"
	case c.Used == "":
		return printable(c.Why)
	case c.Why == "":
		return c.Used
	}
	return fmt.Sprintf("%s; %s was wanted: %s", c.Used, c.Wanted, printable(c.Why))
}

func joined[T fmt.Stringer](list []T) string {
	var parts []string
	for _, v := range list {
		parts = append(parts, v.String())
	}
	return cell(strings.Join(parts, ", "), "nothing")
}
