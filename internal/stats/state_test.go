package stats

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/handover"
)

// adopt has a new block read what write wrote.
func adopt(t *testing.T, write func(*handover.State)) (*Block, error) {
	t.Helper()
	w := handover.Write(handover.Newest)
	write(w)
	s, err := handover.Read(w.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	b := newBlock(t)
	b.C[PoolBytes] = 7
	b.HandOver(s)
	return b, s.Close()
}

// TestBlockHandedOver: all that was counted goes on, and is published. Gauges are those of
// the new daemon. The instance and the start are those of the daemon before.
func TestBlockHandedOver(t *testing.T) {
	a := newBlock(t)
	for i := range a.C {
		a.C[i] = uint64(i) + 1
	}
	a.Turn(1500)
	a.Turn(3)
	a.Messages.Add(TimeBucket(1e6), 1e6, 3)
	a.Operations.Add(TimeBucket(1e3), 1e3, 1)
	b, err := adopt(t, a.HandOver)
	if err != nil {
		t.Fatal(err)
	}
	for c := range NumCounters {
		want := a.C[c]
		if c.Gauge() {
			want = 0
		}
		if c == PoolBytes {
			want = 7
		}
		if b.C[c] != want {
			t.Errorf("%s is %d, want %d", c, b.C[c], want)
		}
	}
	if b.Messages != a.Messages || b.Operations != a.Operations {
		t.Error("the times are others")
	}
	b.SetInfo(Info{PID: 5, Instance: 6, Start: 7})
	r, err := NewReader(b.mem)
	if err != nil {
		t.Fatal(err)
	}
	s := r.Snapshot()
	if s.Turns.Turns != 2 || s.Turns.Sum != 1503 || s.Turns.Max != 1500 || s.Turns.Counts[2] != 1 || s.Turns.Counts[11] != 1 {
		t.Errorf("turns: %+v", s.Turns)
	}
	if v, _ := s.Get("send_queued"); v != a.C[SendQueued] || s.Messages != a.Messages || s.PID != 5 || s.Instance != 6 || s.Start != 7 {
		t.Errorf("published is %+v", s)
	}
	lists, err := NewLists(make([]uint64, ListSize/8), Info{PID: 1, Instance: 2})
	if err != nil {
		t.Fatal(err)
	}
	lists.SetInfo(Info{PID: 5, Instance: 6})
	lr, err := NewListReader(lists.mem)
	if err != nil {
		t.Fatal(err)
	}
	if i := lr.Info(); i.PID != 5 || i.Instance != 6 {
		t.Errorf("the lists are of %+v", i)
	}
}

// counted is a name with its value.
type counted struct {
	name string
	n    uint64
}

// block writes the statistics of another version.
func block(counters []counted, turns uint64, buckets, timeBuckets int) func(*handover.State) {
	return func(s *handover.State) {
		s.Begin(handover.TagStats)
		s.Count(len(counters), 0, 1)
		for _, c := range counters {
			s.String(&c.name, len(c.name))
			s.U64(&c.n)
		}
		counts := func(n int) {
			all := make([]uint64, n)
			for i := range all {
				all[i] = uint64(i & 1)
			}
			s.Table(all)
		}
		s.U64s(&turns, new(uint64(20)), new(uint64(30)))
		counts(buckets)
		for range 2 {
			s.U64(new(uint64(40)))
			counts(timeBuckets)
		}
		s.End()
	}
}

// TestBlockOfOthers: a version that has other counters, in another order.
func TestBlockOfOthers(t *testing.T) {
	b, err := adopt(t, block([]counted{{"send_queued", 4}, {"counter_of_the_future", 5}, {"rdsd_sockets", 6}, {"conn_reset", 7}}, Buckets/2, Buckets, TimeBuckets))
	if err != nil {
		t.Fatal(err)
	}
	want := [NumCounters]uint64{SendQueued: 4, ConnReset: 7, PoolBytes: 7}
	if b.C != want {
		t.Errorf("counters are %v", b.C)
	}
}

// TestBlockHostile: what cannot be statistics is refused.
func TestBlockHostile(t *testing.T) {
	many := make([]counted, maxCounters+1)
	for name, write := range map[string]func(*handover.State){
		"a counter \"conn_reset\", or twice": block([]counted{{"conn_reset", 1}, {"conn_reset", 1}}, Buckets/2, Buckets, TimeBuckets),
		"a counter \"no name\"":              block([]counted{{"no name", 1}}, Buckets/2, Buckets, TimeBuckets),
		"a counter \"\"":                     block([]counted{{"", 1}}, Buckets/2, Buckets, TimeBuckets),
		"at most 30":                         block([]counted{{strings.Repeat("x", maxName+1), 1}}, Buckets/2, Buckets, TimeBuckets),
		"at most 4096":                       block(many, Buckets/2, Buckets, TimeBuckets),
		"19 turns, 18 by their duration":     block(nil, Buckets/2+1, Buckets, TimeBuckets),
		"35 numbers, not 36":                 block(nil, Buckets/2, Buckets-1, TimeBuckets),
		"at most 25":                         block(nil, Buckets/2, Buckets, TimeBuckets+1),
		"24 numbers, not 25":                 block(nil, Buckets/2, Buckets, TimeBuckets-1),
	} {
		if _, err := adopt(t, write); !errors.Is(err, handover.ErrFormat) || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
}

// TestFileAside: a file that takes the place of a live daemon's. Readers find the old one
// until Own, and a live one at all times. Nobody removes what is another's.
func TestFileAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.stats")
	me := os.Getpid()
	for name, create := range map[string]func(string, int) (*File, error){
		path:            CreateAside,
		path + ".lists": CreateListsAside,
	} {
		format := func(f *File, pid int) {
			t.Helper()
			var err error
			if name == path {
				_, err = NewBlock(f.Mem(), Info{PID: pid})
			} else {
				_, err = NewLists(f.Mem(), Info{PID: pid})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		old, err := owned(create(name, 0))
		if err != nil {
			t.Fatal(err)
		}
		format(old, me)
		if _, err := create(name, me+1); !errors.Is(err, ErrInUse) {
			t.Errorf("the file of a third daemon: %v", err)
		}
		if err := os.WriteFile(name+".12345", nil, 0o600); err != nil { // of a process that was killed
			t.Fatal(err)
		}
		for range 2 {
			gaveUp, err := create(name, me)
			if err != nil {
				t.Fatal(err)
			}
			if err := gaveUp.Close(); err != nil {
				t.Error(err)
			}
			next, err := create(name, me)
			if err != nil {
				t.Fatal(err)
			}
			format(next, me)
			was, _ := os.Stat(name)
			if err := next.Own(); err != nil {
				t.Fatal(err)
			}
			if is, _ := os.Stat(name); os.SameFile(was, is) || is.Mode() != was.Mode() {
				t.Errorf("%v after %v", is, was)
			}
			old.Leave()
			if err := old.Close(); err != nil {
				t.Error(err)
			}
			if !Live(name) {
				t.Error("readers take the daemon for dead")
			}
			old = next
		}
		if err := old.Close(); err != nil {
			t.Error(err)
		}
	}
	if left, _ := filepath.Glob(path + "*"); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}
