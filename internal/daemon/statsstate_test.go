package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// TestListsPath: the name of the lists has their version.
func TestListsPath(t *testing.T) {
	if p := config.ListsPath("/run/x.stats"); p != fmt.Sprintf("/run/x.lists%d", stats.ListVersion) {
		t.Errorf("%s for version %d", p, stats.ListVersion)
	}
}
