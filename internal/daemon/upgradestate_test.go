package daemon

import (
	"errors"
	"log/slog"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/handover"
)

// adopted is what a successor makes of what u hands over.
func adopted(t *testing.T, u *upgrades) (*upgrades, error) {
	t.Helper()
	w := handover.Write(handover.Newest)
	w.Begin(handover.TagDaemon)
	u.handOver(w)
	w.End()
	r, err := handover.Read(w.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	next := &upgrades{}
	r.Begin(handover.TagDaemon)
	next.handOver(r)
	r.End()
	return next, r.Close()
}

// A chain of daemons counts its attempts and generations on.
func TestUpgradeState(t *testing.T) {
	u := &upgrades{}
	if s := u.state(); s.Generation != 1 || s.Attempt != 0 || s.Running || !s.At.IsZero() {
		t.Errorf("at first %+v", s)
	}
	if err := u.begin("/opt/rdsd"); err != nil {
		t.Fatal(err)
	}
	if err := u.begin(""); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("a second one at the same time: %v", err)
	}
	if s := u.state(); !s.Running || s.Attempt != 1 || s.Program != "/opt/rdsd" || s.Error != "" {
		t.Errorf("begun %+v", s)
	}
	u.stands()
	u.stood = u.stood.Add(-time.Second)
	u.resumes()
	u.failed(errors.New("no port"))
	if s := u.state(); s.Running || s.Generation != 1 || s.Error != "no port" || s.State != 0 || s.At.IsZero() || s.Pause < time.Second {
		t.Errorf("failed %+v", s)
	}
	if err := u.begin(""); err != nil {
		t.Fatal(err)
	}
	u.failed(errors.New("no file"))
	if s := u.state(); s.Pause != 0 || s.Error != "no file" {
		t.Errorf("failed before the pause %+v", s)
	}
	for n := range 3 {
		if err := u.begin("/opt/rdsd"); err != nil {
			t.Fatal(err)
		}
		u.began = u.began.Add(-time.Minute)
		u.stands()
		next, err := adopted(t, u)
		if err != nil {
			t.Fatal(err)
		}
		if s := next.state(); !s.Running || s.Program != "/opt/rdsd" {
			t.Errorf("a successor that does not serve yet: %+v", s)
		}
		next.served(time.Now().Add(-time.Second))
		s := next.state()
		if s.Running || s.Generation != uint32(n)+2 || s.Attempt != uint64(n)+3 || s.Error != "" || s.From == "" || s.State != handover.Newest || s.Pause < time.Second || s.Took < time.Minute || s.Took > time.Hour || s.At.IsZero() || s.Program != "/opt/rdsd" {
			t.Errorf("successor %d: %+v", n, s)
		}
		u = next
	}
	u.before = math.MaxUint32
	if _, err := adopted(t, u); !errors.Is(err, handover.ErrFormat) {
		t.Errorf("more generations than there are: %v", err)
	}
}

// A daemon without a starter says so at once. Success and failure are events.
func TestUpgradeEvents(t *testing.T) {
	d := &Daemon{summed: newSummedLog(slog.New(slog.DiscardHandler)), upgrades: &upgrades{}, handing: newHanding()}
	b := backend{d: d}
	if _, err := b.BeginUpgrade(""); !errors.Is(err, unix.ENOTSUP) || !strings.Contains(err.Error(), "another program") {
		t.Errorf("without a starter: %v", err)
	}
	if s := b.Upgrade(); s.Attempt != 0 || s.Running {
		t.Errorf("refused, and an attempt: %+v", s)
	}
	if err := d.upgrades.begin(""); err != nil {
		t.Fatal(err)
	}
	d.upgradeFailed(errors.New("no port"))
	d.tookOver(time.Now())
	if seen, _ := d.summed.journal.events(viewOf(uint32(os.Getuid())+1, false, ctl.MaxLimit), 0); len(seen) != 1 || seen[0].Event != "upgrade done" {
		t.Errorf("another user sees %+v", seen)
	}
	events, _ := d.summed.journal.events(viewOf(0, true, ctl.MaxLimit), 0)
	if len(events) != 2 || events[0].Event != "upgrade failed, this daemon goes on" || events[0].Error != "no port" || events[0].Level != "error" ||
		events[1].Event != "upgrade done" || events[1].PID == 0 {
		t.Errorf("events %+v", events)
	}
}
