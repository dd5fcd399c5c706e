package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/internal/succession"
)

// succeed has a daemon with the configuration of d, changed by edit, take over from d in this
// process. It returns the two daemons' errors, and the successor, which runs if there is none.
func succeed(t *testing.T, d *Daemon, edit func(*config.Config)) (next *Daemon, handed, taken error) {
	t.Helper()
	ours, theirs, err := succession.NewPair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	link, err := succession.Open(theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	s := &Successor{Config: *d.config(), Log: slog.New(slog.DiscardHandler), Confine: func(*Daemon) {}, Asked: func() error { return nil }}
	if edit != nil {
		edit(&s.Config)
	}
	if err := d.upgrades.begin(""); err != nil {
		t.Fatal(err)
	}
	end := make(chan error, 1)
	go func() { end <- succession.TakeOver(link, s, "test", func() bool { return false }) }()
	if handed = d.handTo(ours); handed != nil {
		d.upgrades.failed(handed)
	}
	if taken = <-end; taken == nil {
		if got, want := s.daemon.statistics.Snapshot(), uint64(len(s.daemon.inherited.heirs.all)); got.Values[stats.Clients].Value != want || got.Beat == 0 {
			t.Errorf("the statistics of the successor begin with %d clients at %d, not with %d", got.Values[stats.Clients].Value, got.Beat, want)
		}
		if len(s.daemon.loop.long) == 0 {
			t.Error("the successor is not about to look for holes in memory")
		}
		runDaemon(t, s.Daemon())
		eventually(t, "the successor serves", func() error {
			if u := s.Daemon().upgradeState(); u.Running {
				return fmt.Errorf("%+v", u)
			}
			return nil
		})
	}
	return s.Daemon(), handed, taken
}

// TestHandOver: an attached process goes on with one daemon after the other. It is the same
// instance, and a socket's port, the statistics and who is admitted stay.
func TestHandOver(t *testing.T) {
	d := startDaemon(t, nil)
	p := attached(t, d)
	first, port := d.info, p.addr.Port
	for i := range 3 {
		if err := p.ping(); err != nil {
			t.Fatal(err)
		}
		next, handed, taken := succeed(t, d, nil)
		if handed != nil || taken != nil {
			t.Fatalf("%d: %v, %v", i, handed, taken)
		}
		d = next
		if err := p.ping(); err != nil {
			t.Fatalf("after hand-over %d: %v", i, err)
		}
	}
	u := d.upgradeState()
	if d.info.Instance != first.Instance || d.info.Start != first.Start || u.Generation != 4 || u.Error != "" {
		t.Errorf("%+v, was %+v; %+v", d.info, first, u)
	}
	eventually(t, "messages are counted on", func() error {
		if n := d.statistics.Snapshot().Values[stats.RecvDelivered].Value; n != 6 {
			return fmt.Errorf("%d delivered", n)
		}
		return nil
	})
	if q := attached(t, d); q.addr.Port == port {
		t.Error("a port was given twice")
	}
}

// TestHandOverRefused: a successor that cannot open what it needs gives up, and the daemon and
// its processes go on as if nothing had been. That holds for a name whose address it does not
// find: the daemon knows it since its own start, and a peer must not be forbidden by an upgrade.
func TestHandOverRefused(t *testing.T) {
	d := startDaemon(t, nil)
	p := attached(t, d)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	before := resolver
	resolver = answers{} // which answers nothing
	t.Cleanup(func() { resolver = before })
	inUse := l.Addr().(*net.TCPAddr).AddrPort()
	for _, edit := range []func(*config.Config){
		func(c *config.Config) { c.Stats = "/nowhere/s.stats" },
		func(c *config.Config) { c.Metrics.Listen = inUse },
		func(c *config.Config) { c.Peers.Allow = []config.Allowed{{Name: "hostb"}} },
	} {
		_, handed, taken := succeed(t, d, edit)
		if taken == nil || !errors.Is(handed, succession.ErrRefused) || !strings.Contains(handed.Error(), taken.Error()[strings.LastIndex(taken.Error(), ": "):]) {
			t.Errorf("%v; %v", handed, taken)
		}
		if err := p.ping(); err != nil {
			t.Error(err)
		}
	}
	if u := d.upgradeState(); u.Generation != 1 || u.Running || u.Error == "" {
		t.Errorf("%+v", u)
	}
}

// givingUp is a successor that gives up after it has adopted everything.
type givingUp struct{ *Successor }

func (g givingUp) Adopt(v uint16, p succession.Parcel) error {
	return errors.Join(g.Successor.Adopt(v, p), errors.New("no go"))
}

// TestNothingLeft: a successor that gives up after it has opened everything leaves no files, and
// those of one that was killed are removed by the daemon that goes on. Those of the daemon stay.
func TestNothingLeft(t *testing.T) {
	d := startDaemon(t, nil)
	p := attached(t, d)
	here := func() int {
		files, err := os.ReadDir(filepath.Dir(d.config().Stats))
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	before := here()
	ours, theirs, err := succession.NewPair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	link, err := succession.Open(theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	s := &Successor{Config: *d.config(), Log: slog.New(slog.DiscardHandler), Confine: func(*Daemon) {}, Asked: func() error { return nil }}
	end := make(chan error, 1)
	go func() { end <- succession.TakeOver(link, givingUp{s}, "test", func() bool { return false }) }()
	if err := d.handTo(ours); !errors.Is(err, succession.ErrRefused) || !strings.Contains(err.Error(), "no go") {
		t.Error(err)
	}
	if err := <-end; err == nil {
		t.Error("it took over")
	}
	if n := here(); n != before+2 {
		t.Errorf("%d files, and %d without a successor: it has no statistics", n, before)
	}
	s.Leave()
	if n := here(); n != before {
		t.Errorf("%d files, before %d", n, before)
	}
	s.daemon.inherited.heirs.leave()
	killed := fmt.Sprintf("%s.%d", d.config().Stats, os.Getpid()+1)
	if err := os.WriteFile(killed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.removeAside()
	if n := here(); n != before {
		t.Errorf("%d files, before %d", n, before)
	}
	if err := p.ping(); err != nil {
		t.Error(err)
	}
}

// TestHandOverNotes: a daemon that takes over warns of a drain as the one before did, and counts
// events on from that one's last: rdsctl events -f, whose connection stays, misses none.
func TestHandOverNotes(t *testing.T) {
	d := startDaemon(t, nil)
	if _, err := (backend{d: d}).Drain(netip.Addr{}, ctl.DoBegin); err != nil {
		t.Fatal(err)
	}
	for range maxEvents + 7 {
		d.summed.write(time.Now(), slog.LevelInfo, nil, "an event")
	}
	all := ctl.View{Limit: 2 * maxEvents, May: func(uint32) bool { return true }}
	for i := range 2 {
		seen := d.summed.journal.copy().seq
		next, handed, taken := succeed(t, d, nil)
		if handed != nil || taken != nil {
			t.Fatal(handed, taken)
		}
		d = next
		if w := (backend{d: d}).warnings(); !slices.ContainsFunc(w, func(s string) bool { return strings.Contains(s, "drained") }) {
			t.Errorf("generation %d does not warn of the drain: %q", i+2, w)
		}
		for after, n := range map[uint64]int{seen: 1, 0: maxEvents} {
			got, more, err := (backend{d: d}).Events(all, after)
			if err != nil || more || len(got) != n || got[n-1].Seq != seen+1 || got[n-1].Event != "upgrade done" {
				t.Errorf("generation %d, after %d: %d events, %v, %v", i+2, after, len(got), more, err)
			}
		}
	}
}

// TestHandOverUnanswered: an answer that does not come to its end while the engine stands still
// costs its process the session. Others go on, and the state is there.
func TestHandOverUnanswered(t *testing.T) {
	d := startDaemon(t, nil)
	p := attached(t, d)
	other := attached(t, d)
	if err := d.admission.recess(context.Background(), true); err != nil {
		t.Fatal(err)
	}
	for c := range d.admission.open { // nobody else uses the map in a recess
		if c.nth == 1 {
			c.answers.Add(1)
			defer c.answers.Add(-1)
		}
	}
	parts := &predecessor{Daemon: d}
	if err := d.upgrades.begin(""); err != nil {
		t.Fatal(err)
	}
	if _, err := parts.still(handover.Newest); err != nil {
		t.Error(err)
	}
	parts.Resume()
	if n := len(d.handing.handed); n != 1 {
		t.Fatalf("%d sessions are handed over", n)
	}
	if s := p.reason(); !strings.Contains(s, errNotStood.Error()) {
		t.Error(s)
	}
	d.has(t, 1)
	if err := other.ping(); err != nil {
		t.Error(err)
	}
}

// TestFaultEnds: a fault ends the session that it is of, with its reason. Others go on, with the
// next daemon too.
func TestFaultEnds(t *testing.T) {
	d := startDaemon(t, nil)
	first, bad, last := attached(t, d), attached(t, d), attached(t, d)
	d.handing.handed = d.admission.handOver()
	for n, ends := range map[uint32]bool{1: true, 3: false} {
		if got := d.endFaulty(handover.Faults{{Session: n, Err: handover.ErrFormat}}); got != ends {
			t.Errorf("session %d ends: %v", n, got)
		}
	}
	if d.endFaulty(nil) {
		t.Error("a session without a fault ends")
	}
	if why := bad.reason(); !strings.Contains(why, errNotTaken.Error()) || !strings.Contains(why, handover.ErrFormat.Error()) {
		t.Errorf("the session ended with %q", why)
	}
	if _, handed, taken := succeed(t, d, nil); handed != nil || taken != nil {
		t.Fatal(handed, taken)
	}
	for _, p := range []*proc{first, last} {
		if err := p.ping(); err != nil {
			t.Error(err)
		}
	}
}

// TestHandOverAfterEnd: a daemon that has taken over begins to hand over when its predecessor has
// ended. Before that a supervisor would not take its word for who the main process is. It waits
// no longer than it serves.
func TestHandOverAfterEnd(t *testing.T) {
	d := (&parted{t: t, d: startDaemon(t, nil)}).next()
	defer d.closeAll()
	d.inherited = &inherited{ended: make(chan struct{})}
	end := make(chan error, 1)
	go func() {
		_, err := d.hand("/nowhere") // it has no starter: if it does not wait, it fails
		end <- err
	}()
	eventually(t, "the upgrade is in progress", func() error {
		if d.handing.mu.TryLock() {
			d.handing.mu.Unlock()
			return errors.New("it is not")
		}
		return nil
	})
	d.handing.stop()
	if err := <-end; !errors.Is(err, errShutdown) {
		t.Error(err)
	}
}

// TestFaultsEndTogether: all processes with faults that one attempt has found end before the next, so eight of
// one user cost everybody one more pause.
func TestFaultsEndTogether(t *testing.T) {
	d := startDaemon(t, nil)
	var all []*proc
	for range 9 {
		all = append(all, attached(t, d))
	}
	d.handing.handed = d.admission.handOver()
	var faults handover.Faults
	for n := range uint32(8) {
		faults = append(faults, &handover.Fault{Session: n, Err: handover.ErrFormat})
	}
	if !d.endFaulty(faults) {
		t.Fatal("none ends")
	}
	for i, s := range d.handing.handed[:8] {
		if s.why.Load() == nil {
			t.Fatalf("process %d has not ended", i)
		}
	}
	for _, p := range all[:8] {
		if why := p.reason(); !strings.Contains(why, errNotTaken.Error()) {
			t.Errorf("a session ended with %q", why)
		}
	}
	if _, handed, taken := succeed(t, d, nil); handed != nil || taken != nil {
		t.Fatal(handed, taken)
	}
	if err := all[8].ping(); err != nil {
		t.Error(err)
	}
}
