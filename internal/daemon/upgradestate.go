package daemon

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/version"
)

// maxUpgradeText bounds the texts of upgrades that go over, bytes.
const maxUpgradeText = unix.PathMax

// upgrades counts the planned restarts behind a daemon and keeps how the last one ended.
// Any goroutine may call its methods.
type upgrades struct {
	mu      sync.Mutex
	before  uint32    // daemons from which this one has taken over, one after the other; guarded by mu
	running bool      // guarded by mu
	attempt uint64    // number of the last attempt that has begun; guarded by mu
	program string    // of that attempt; guarded by mu
	began   time.Time // of that attempt; guarded by mu
	last    outcome   // guarded by mu

	stood  time.Time     // when the engine took nothing in any more; zero: it does. Guarded by mu
	paused time.Duration // how long that was, in the attempt that is failing; guarded by mu
}

// outcome is how an attempt ended.
type outcome struct {
	at          time.Time // zero: no attempt has ended
	took, pause time.Duration
	from        string // the predecessor's version, if the attempt succeeded
	state       uint16 // the version of the state that was handed over, if so
	err         string
}

// begin notes that an attempt begins. Its error is EBUSY if one is in progress.
func (u *upgrades) begin(program string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.running {
		return fmt.Errorf("%w: upgrade %d is in progress since %v", unix.EBUSY, u.attempt, time.Since(u.began).Round(time.Millisecond))
	}
	u.running, u.program, u.began, u.paused = true, program, time.Now(), 0
	u.attempt++
	return nil
}

// stands notes that the engine takes nothing in any more.
func (u *upgrades) stands() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stood = time.Now()
}

// since is the time of stands.
func (u *upgrades) since() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.stood
}

// resumes notes that the daemon serves again, because the attempt fails.
func (u *upgrades) resumes() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.stood.IsZero() {
		u.paused, u.stood = time.Since(u.stood), time.Time{}
	}
}

// failed notes that the attempt in progress has failed. The daemon serves.
func (u *upgrades) failed(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	u.running, u.last = false, outcome{at: now, took: now.Sub(u.began), pause: u.paused, err: err.Error()}
}

// handOver has go over what the successor has to know. The attempt in progress has not ended there
// either: served does that.
func (u *upgrades) handOver(s *handover.State) {
	u.mu.Lock()
	defer u.mu.Unlock()
	program, from := cut(u.program, maxUpgradeText), cut(version.String(), maxUpgradeText)
	s.U32(&u.before)
	s.U64(&u.attempt)
	s.Time(&u.began)
	s.String(&program, maxUpgradeText)
	if s.String(&from, maxUpgradeText); !s.Reads() {
		return
	}
	if u.before == math.MaxUint32 {
		s.Fail("generation %d", u.before)
	}
	u.before++
	u.running, u.program, u.last.from, u.last.state = true, program, from, s.Version()
}

// served notes that this daemon serves, and that its predecessor's engine took nothing in from stood on.
func (u *upgrades) served(stood time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	u.running = false
	u.last = outcome{at: now, took: max(0, now.Sub(u.began)), pause: max(0, now.Sub(stood)), from: u.last.from, state: u.last.state}
}

// state is what rdsctl is told.
func (u *upgrades) state() ctl.Upgrade {
	u.mu.Lock()
	defer u.mu.Unlock()
	return ctl.Upgrade{Generation: u.before + 1, PID: os.Getpid(), Version: version.String(), Running: u.running, Attempt: u.attempt, Program: u.program,
		At: u.last.at.UTC(), Took: u.last.took, Pause: u.last.pause, From: u.last.from, State: u.last.state, Error: u.last.err}
}

// cut returns at most most bytes of s, whole characters.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}

// BeginUpgrade starts a program in the background and has it take over from d. binary is its
// path; empty: the path of d's own program. Errors: EBUSY while an upgrade is in progress,
// ENOTSUP if d cannot start another daemon.
func (d *Daemon) BeginUpgrade(binary string) (ctl.Upgrade, error) {
	if err := d.mayHand(); err != nil {
		return ctl.Upgrade{}, err
	}
	if err := d.upgrades.begin(binary); err != nil {
		return ctl.Upgrade{}, err
	}
	u := d.upgradeState()
	d.summed.write(time.Now(), slog.LevelInfo, nil, "upgrade begun", "attempt", u.Attempt, "program", binary)
	go d.upgrade(func() (bool, error) { return d.hand(binary) })
	return u, nil
}

// upgrade has hand carry out the attempt that has begun.
func (d *Daemon) upgrade(hand func() (reload bool, err error)) {
	reload, err := hand()
	if err != nil {
		d.upgradeFailed(err)
	}
	if reload {
		_, _ = d.Reload() // it logs the result
	}
}

// upgradeFailed notes that the attempt in progress has failed. The event is about the daemon's
// own user, because its error can name a process of another one, which not everybody may see.
func (d *Daemon) upgradeFailed(err error) {
	d.upgrades.failed(err)
	d.summed.write(time.Now(), slog.LevelError, uint32(os.Getuid()), "upgrade failed, this daemon goes on", "attempt", d.upgradeState().Attempt, "err", err)
}

// tookOver notes that d serves in the place of its predecessor, whose engine took nothing in from stood on.
func (d *Daemon) tookOver(stood time.Time) {
	d.upgrades.served(stood)
	u := d.upgradeState()
	d.summed.write(time.Now(), slog.LevelInfo, nil, "upgrade done", "generation", u.Generation, "pid", u.PID, "version", u.Version,
		"from", u.From, "state_version", u.State, "pause", u.Pause, "took", u.Took)
}

func (d *Daemon) upgradeState() ctl.Upgrade { return d.upgrades.state() }
