package ledger

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/test/loopback"
	"github.com/rdsd/rdsd/test/ledger/book"
	"github.com/rdsd/rdsd/test/ledger/judge"
	"github.com/rdsd/rdsd/test/ledger/plan"
	"github.com/rdsd/rdsd/test/ledger/worker"
)

// campaign is one run of the ledger: its daemons, its applications, its faults.
type campaign struct {
	seed     uint64
	lasts    time.Duration
	upgrades time.Duration // how often all daemons are replaced, 0: see package plan

	t     *testing.T
	net   *network
	plan  *plan.Plan
	dir   string
	book  *book.Log // records of ends and disturbances
	hosts []*host
	apps  []*app
	last  struct {
		sync.Mutex
		number int // number of processes so far
	}
}

// app is an application: a process, and the next process when that one was killed.
type app struct {
	c    *campaign
	host *host
	cfg  worker.Config

	mu     sync.Mutex // held while somebody ends, stops or starts the process
	number int
	*process
}

func (a *app) start() (err error) {
	a.c.last.Lock()
	a.c.last.number++
	a.number = a.c.last.number
	a.c.last.Unlock()
	a.cfg.Process, a.cfg.Socket = a.number, a.host.sock
	a.cfg.Log = filepath.Join(a.c.dir, fmt.Sprintf("process%04d.log", a.number))
	b, err := json.Marshal(a.cfg)
	if err != nil {
		return err
	}
	a.process, err = a.c.net.start([]string{envWorker + "=" + string(b), "GOMAXPROCS=2"}, os.Args[0])
	return err
}

// ending says how the process ended. It keeps all of its standard error beside its log, because
// the beginning of a panic counts.
func (a *app) ending() string {
	said := a.log()
	if err := os.WriteFile(strings.TrimSuffix(a.cfg.Log, ".log")+".err", []byte(said), 0o600); err != nil {
		said = err.Error() + "\n" + said
	}
	return fmt.Sprintf("%v\n%s", a.Cmd.ProcessState, said[:min(len(said), 6000)])
}

// replace kills the process and starts the next one.
func (a *app) replace() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.Alive() {
		return fmt.Errorf("process %d ended by itself: %s", a.number, a.ending())
	}
	a.c.book.Write(book.Record{Kind: book.Kill, A: uint64(a.number)})
	a.Signal(syscall.SIGKILL)
	a.wait(patience)
	a.c.book.Write(book.Record{Kind: book.Dead, A: uint64(a.number)})
	return a.start()
}

// TestLedger runs campaigns.
func TestLedger(t *testing.T) {
	net := newNetwork()
	for i := range uint64(*campaigns) {
		seed := *firstSeed + i
		c := campaign{seed: seed, upgrades: *upgraded, lasts: time.Duration(*seconds) * time.Second}
		t.Run(fmt.Sprintf("%#x", seed), func(t *testing.T) { c.run(t, net) })
	}
	t.Run("Packets", func(t *testing.T) {
		if net.missing != "" {
			t.Skipf("no packets were dropped: %s", net.missing)
		}
	})
}

// addresses is a network of 127/8 that is this test's until it ends.
func addresses(t *testing.T) netip.Addr {
	t.Helper()
	n, err := loopback.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n.First()
}

// run runs the campaign. c has its seed, its length, and how often daemons are replaced.
func (c *campaign) run(t *testing.T, net *network) {
	dir, err := os.MkdirTemp(*keep, "ledger-campaign")
	if err != nil {
		t.Fatal(err)
	}
	c.t, c.net, c.dir = t, net, dir
	if at := addresses(t); c.upgrades > 0 {
		c.plan = plan.Upgrades(c.seed, at)
	} else {
		c.plan = plan.New(c.seed, at)
	}
	if *paths > 0 {
		c.plan.Paths = *paths
	}
	if *threads != "" {
		c.plan.IOThreads = *threads
	}
	c.plan.TLS = c.plan.TLS || *overTLS
	defer c.leave()
	if c.book, err = book.Create(filepath.Join(dir, "faults.log")); err != nil {
		t.Fatal(err)
	}
	t.Log(c.plan)
	f := &faults{c: c, rng: rand.New(rand.NewPCG(c.seed, 3)), done: map[plan.Fault]int{}}
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	f.until(time.Now().Add(c.lasts))
	c.settle()
	if c.upgrades > 0 {
		f.failed(f.generation())
	}
	for _, err := range f.errs {
		t.Error(err)
	}
	for _, h := range c.hosts {
		if err := h.leaks(); err != nil {
			t.Error(err)
		}
		if err := h.ends(); err != nil {
			t.Error(err)
		}
	}
	r, err := c.judge()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d messages, %d received, %d operations %v; told %v; faults: %v", r.Messages, r.Delivered, r.Operations, r.Statuses, r.Told, f)
	t.Logf("not received: %s", r.Shares())
	if n := r.Excuses(); c.plan.Mix.Steady && n > 0 {
		t.Errorf("%d messages are excused where nothing ended and nothing was cancelled", n)
	}
	if n := r.Statuses["unknown"]; c.upgrades > 0 && n > 0 {
		t.Errorf("%d operations have the status UNKNOWN where nothing ended and nothing had a limit", n)
	}
	c.show(r)
}

// leave ends all processes that are left. It keeps the logs of a campaign that has failed.
func (c *campaign) leave() {
	c.kill()
	if !c.t.Failed() {
		os.RemoveAll(c.dir)
		return
	}
	for _, path := range c.logs() {
		_ = book.Trim(path) // for people who read the logs, so an error does not matter
	}
	for _, h := range c.hosts {
		h.keepLog(filepath.Join(c.dir, fmt.Sprintf("daemon-%v.txt", h.addr)))
	}
	again := fmt.Sprintf("make ledger SECONDS=%d SEED=%#x", int(c.lasts.Seconds()), c.seed)
	if c.upgrades > 0 {
		again += fmt.Sprintf(" UPGRADES=%v", c.upgrades)
	}
	if *paths != 1 {
		again += fmt.Sprintf(" LEDGERFLAGS='-ledger.paths %d'", *paths)
	}
	c.t.Logf("the logs are in %s; again: %s", c.dir, again)
}

func (c *campaign) start() error {
	c.hosts = newHosts(c.t, c.net, c.plan, c.book, c.dir)
	for _, h := range c.hosts {
		if err := h.start(); err != nil {
			return err
		}
	}
	for i, cfg := range c.plan.Processes() {
		a := &app{c: c, host: c.hosts[plan.HostOf(i)], cfg: cfg}
		if err := a.start(); err != nil {
			return err
		}
		c.apps = append(c.apps, a)
	}
	return nil
}

// kill ends all processes of a campaign that has failed.
func (c *campaign) kill() {
	for _, a := range c.apps {
		a.Signal(syscall.SIGKILL)
		a.wait(patience)
	}
	for _, h := range c.hosts {
		if h.daemon != nil {
			h.daemon.kill(patience)
		}
	}
}

// settle has the applications come to rest, send each other a last message, and close.
func (c *campaign) settle() {
	t := c.t
	c.book.Write(book.Record{Kind: book.Settled})
	var at []string
	for _, a := range c.apps {
		a.tell("settle")
	}
	deadline := time.Now().Add(2 * patience)
	for _, a := range c.apps {
		line, ok := a.line("settled", time.Until(deadline))
		if !ok {
			t.Errorf("process %d does not come to rest: %s", a.number, a.ending())
			continue
		}
		at = append(at, strings.Fields(line)[1:]...)
	}
	for _, a := range c.apps {
		a.tell("roll " + strings.Join(at, " "))
	}
	deadline = time.Now().Add(patience)
	for _, a := range c.apps {
		a.line("sent", time.Until(deadline))
	}
	// Some of them may have been answered with a notice. The judge names those that are missing.
	for last := -1; time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		rolled := 0
		for _, a := range c.apps {
			rolled += strings.Count(a.Stdout.String(), "rolled\n")
		}
		if quiet, err := c.quiet(); err != nil {
			t.Error(err)
			break
		} else if quiet && rolled == last {
			break
		}
		last = rolled
	}
	for _, a := range c.apps {
		a.tell("close")
	}
	deadline = time.Now().Add(2 * patience)
	for _, a := range c.apps {
		if _, ok := a.line("closed", time.Until(deadline)); !ok {
			t.Errorf("process %d does not close: %s", a.number, a.ending())
		}
		if !a.wait(max(time.Until(deadline), time.Second)) || a.Code() != 0 {
			t.Errorf("process %d: %s", a.number, a.ending())
		}
	}
}

// quiet reports whether no socket has messages that are not acknowledged, or not read.
func (c *campaign) quiet() (bool, error) {
	for _, left := range []func(*ctl.SocketInfo) uint64{
		func(s *ctl.SocketInfo) uint64 { return s.SendMessages }, // first, because those are to be read then
		func(s *ctl.SocketInfo) uint64 { return s.RecvBytes },
	} {
		for _, h := range c.hosts {
			r, err := h.ask(ctl.KindSockets, "sockets")
			if err != nil {
				return false, err
			}
			for i := range r.Sockets {
				if left(&r.Sockets[i]) > 0 {
					return false, nil
				}
			}
		}
	}
	return true, nil
}

func (c *campaign) logs() []string {
	all, _ := filepath.Glob(filepath.Join(c.dir, "*.log"))
	return all
}

func (c *campaign) judge() (*judge.Report, error) {
	j := judge.New()
	for _, path := range c.logs() {
		if err := book.Read(path, j.Add); err != nil {
			return nil, err
		}
	}
	return j.Verdict(), nil
}

// show fails the test with the violations. It prints up to three violations of each rule, with
// the lines of the logs that it concerns.
func (c *campaign) show(r *judge.Report) {
	shown := map[string]int{}
	for _, v := range r.Violations {
		if shown[v.Rule]++; shown[v.Rule] > 3 {
			continue
		}
		c.t.Error(v)
		for _, path := range c.logs() {
			lines, err := book.Grep(path, 30, v.Concerns)
			if err != nil {
				c.t.Error(err)
			}
			for _, l := range lines {
				c.t.Logf("    %s: %s", filepath.Base(path), l)
			}
		}
	}
	for rule, n := range shown {
		if n > 3 {
			c.t.Errorf("%s: %d violations in all", rule, n)
		}
	}
}
