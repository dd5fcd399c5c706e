package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/stats"
)

// TestStatisticsHandedOver: a reader at the path finds the statistics of the one daemon or of
// the other, with the same counts, instance and start.
func TestStatisticsHandedOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.stats")
	daemon := func(pid, before int) *Daemon {
		f, l, err := createStats(path, path+".lists", before)
		if err != nil {
			t.Fatal(err)
		}
		d := &Daemon{statFile: f, listFile: l, loop: &loop{}, info: stats.Info{PID: pid, Instance: uint64(pid), Start: int64(pid)}}
		if d.loop.stats, err = stats.NewBlock(f.Mem(), d.info); err != nil {
			t.Fatal(err)
		}
		if d.lists, err = stats.NewLists(l.Mem(), d.info); err != nil {
			t.Fatal(err)
		}
		return d
	}
	old := daemon(os.Getpid(), 0)
	old.loop.stats.C[stats.SendQueued] = 12
	next := daemon(7, os.Getpid())
	w := handover.Write(handover.Newest)
	old.handOverStats(w, old.info)
	r, err := handover.Read(w.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	info := old.info
	info.PID = 7
	next.handOverStats(r, info)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	read := func(pid int) {
		t.Helper()
		m, err := stats.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		l, err := stats.OpenLists(path + ".lists")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		s, i := m.Snapshot(), l.Info()
		if s.PID != pid || i.PID != pid || s.Instance != old.info.Instance || i.Instance != s.Instance || s.Start != old.info.Start {
			t.Errorf("%+v and %+v, not of process %d", s.Info, i, pid)
		}
		if n, _ := s.Get("send_queued"); n != 12 || !m.Live() || !stats.Live(path+".lists") {
			t.Errorf("%d sent, live %v", n, m.Live())
		}
	}
	old.loop.stats.Publish(1)
	read(os.Getpid())
	if err := next.ownStats(); err != nil {
		t.Fatal(err)
	}
	read(7)
	old.leaveStats()
	if err := errors.Join(old.statFile.Close(), old.listFile.Close()); err != nil {
		t.Error(err)
	}
	read(7)
	if err := errors.Join(next.statFile.Close(), next.listFile.Close()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// TestOldLists: what a daemon of release 0.2.0 has left goes, when this one begins and when it takes over.
func TestOldLists(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.stats")
	old, lists := config.OldListsPath(path), config.ListsPath(path)
	if v := strconv.Itoa(stats.ListVersion); lists != old+v {
		t.Errorf("lists of version %s at %s", v, lists)
	}
	leave := func() {
		if err := os.WriteFile(old, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(when string) {
		if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %s is still there (%v)", when, old, err)
		}
	}
	leave()
	f, l, err := createStats(path, lists, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	defer l.Close()
	gone("at the start")
	leave()
	if err := (&Daemon{statFile: f, listFile: l}).ownStats(); err != nil {
		t.Error(err)
	}
	gone("after a hand-over")
}
