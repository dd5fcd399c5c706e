package ledger

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/test/ledger/book"
	"github.com/rdsd/rdsd/test/ledger/plan"
)

// faults does the faults of a campaign.
type faults struct {
	c    *campaign
	rng  *rand.Rand
	wg   sync.WaitGroup // faults that last
	mu   sync.Mutex
	done map[plan.Fault]int // guarded by mu
	errs []error            // guarded by mu
	cuts int                // paths that were cut each by itself; guarded by mu
	cut  int                // upgrades in the middle of which the daemon was ended; guarded by mu

	rounds int // how often all daemons were replaced
}

// until does faults until the time end, then waits until all of them are over.
func (f *faults) until(end time.Time) {
	if every := f.c.upgrades; every > 0 {
		f.wg.Go(func() { f.upgradeAll(every, end) })
	}
	if f.c.plan.Cuts() {
		f.wg.Go(func() { f.cutPaths(end) })
	}
	for time.Now().Before(end) {
		time.Sleep(time.Duration(f.rng.Int64N(2 * int64(f.c.plan.Every)))) // any moment will do
		kind := f.c.plan.Draw(f.rng, f.c.net.missing == "")
		f.strike(kind)
	}
	f.wg.Wait()
}

func (f *faults) failed(err error) {
	if err != nil {
		f.mu.Lock()
		f.errs = append(f.errs, err)
		f.mu.Unlock()
	}
}

// note logs that hosts, or a process, are disturbed for a while.
func (f *faults) note(kind plan.Fault, d time.Duration, process int, hosts ...*host) {
	for _, h := range hosts {
		f.c.book.Write(book.Record{Kind: book.Fault, Text: string(kind), Peer: netip.AddrPortFrom(h.addr, 0), A: uint64(process), B: uint64(d)})
	}
}

func (f *faults) ms(least, most int) time.Duration {
	return time.Duration(least+f.rng.IntN(most-least)) * time.Millisecond
}

func (f *faults) strike(kind plan.Fault) {
	f.mu.Lock()
	f.done[kind]++
	f.mu.Unlock()
	i := f.rng.IntN(len(f.c.hosts))
	a, b := f.c.hosts[i], f.c.hosts[(i+1+f.rng.IntN(len(f.c.hosts)-1))%len(f.c.hosts)]
	switch kind {
	case plan.KillProcess:
		f.failed(f.c.apps[f.rng.IntN(len(f.c.apps))].replace())
	case plan.StopProcess:
		f.stopProcess(f.c.apps[f.rng.IntN(len(f.c.apps))])
	case plan.KillDaemon:
		f.failed(a.restart(syscall.SIGKILL, f.ms(0, 300)))
	case plan.EndDaemon:
		f.failed(a.restart(syscall.SIGTERM, f.ms(0, 300)))
	case plan.StopDaemon:
		d := f.ms(10, 600)
		f.last(func() {
			if !a.mu.TryRLock() {
				return
			}
			defer a.mu.RUnlock()
			f.note(kind, d, 0, a)
			a.daemon.pause(d)
		})
	case plan.KillStopped:
		f.failed(a.killStopped(f.ms(10, 300), f.ms(0, 300)))
	case plan.Reset:
		f.reset(a, b)
	case plan.Resets:
		for range 20 {
			f.reset(a, b)
		}
	case plan.ResetsAtStart:
		f.failed(a.restart(syscall.SIGKILL, f.ms(0, 50)))
		for range 5 {
			f.reset(a, b)
		}
	case plan.DrainDaemon, plan.DrainPeer:
		f.drain(kind, a, b)
	case plan.UpgradeDaemon:
		f.last(func() { f.upgrade(a) })
	case plan.Loss, plan.Partition:
		f.drop(kind, a, b)
	}
}

// last runs a fault that goes on while others happen.
func (f *faults) last(do func()) { f.wg.Go(do) }

func (f *faults) stopProcess(a *app) {
	d := f.ms(10, 800)
	if f.c.upgrades > 0 && f.rng.IntN(4) == 0 {
		d = f.ms(800, 2500) // all through a planned restart
	}
	f.last(func() {
		if !a.mu.TryLock() {
			return
		}
		defer a.mu.Unlock()
		f.note(plan.StopProcess, d, a.number, a.host)
		a.Signal(syscall.SIGSTOP)
		time.Sleep(d)
		a.Signal(syscall.SIGCONT)
	})
}

func (f *faults) reset(a, b *host) {
	f.note(plan.Reset, 0, 0, a, b)
	f.ask(a, "peer", "reset", b.addr.String())
}

// cutPaths resets one path between two hosts each second.
func (f *faults) cutPaths(end time.Time) {
	rng := rand.New(rand.NewPCG(f.c.seed, 5)) // that of f is its own goroutine's
	for time.Sleep(time.Second); time.Now().Before(end); time.Sleep(time.Second) {
		i := rng.IntN(len(f.c.hosts))
		a, b := f.c.hosts[i], f.c.hosts[(i+1)%len(f.c.hosts)]
		f.note(plan.Reset, 0, 0, a, b)
		f.ask(a, "peer", "reset", "-path", strconv.Itoa(rng.IntN(f.c.plan.Paths)), b.addr.String())
		f.mu.Lock()
		f.cuts++
		f.mu.Unlock()
	}
}

// ask runs rdsctl. It accepts the error of a daemon that does not know the peer yet, or that is
// being ended.
func (f *faults) ask(h *host, args ...string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	_, err := h.ctl(args...)
	if err != nil && !strings.Contains(err.Error(), "not found") && !strings.Contains(err.Error(), "no peer") && !strings.Contains(err.Error(), "still") {
		f.failed(err)
	}
}

func (f *faults) drain(kind plan.Fault, a, b *host) {
	d := f.ms(20, 600)
	f.last(func() {
		f.note(kind, d, 0, a)
		if kind == plan.DrainDaemon {
			f.ask(a, "daemon", "drain", "-wait", "0s")
			time.Sleep(d)
			f.ask(a, "daemon", "resume")
			return
		}
		f.note(kind, d, 0, b)
		f.ask(a, "peer", "drain", b.addr.String(), "-wait", "0s")
		time.Sleep(d)
		f.ask(a, "peer", "resume", b.addr.String())
	})
}

func (f *faults) drop(kind plan.Fault, a, b *host) {
	d, percent := f.ms(50, 1500), 1+f.rng.IntN(25)
	if kind == plan.Partition {
		d, percent = f.ms(20, 800), 100
	}
	f.last(func() {
		f.note(kind, d+time.Second, 0, a, b)
		f.failed(f.c.net.drop(a.addr, b.addr, percent))
		time.Sleep(d)
		f.failed(f.c.net.drop(a.addr, b.addr, 0))
	})
}

func (f *faults) String() string {
	var s []string
	for _, k := range plan.Faults() {
		if n := f.done[k]; n > 0 {
			s = append(s, fmt.Sprintf("%s %d", k, n))
		}
	}
	if f.cuts > 0 {
		s = append(s, fmt.Sprintf("paths cut %d", f.cuts))
	}
	if f.cut > 0 {
		s = append(s, fmt.Sprintf("ended in the middle of an upgrade %d", f.cut))
	}
	if f.rounds > 0 {
		s = append(s, fmt.Sprintf("all daemons replaced %d", f.rounds))
	}
	return strings.Join(s, ", ")
}
