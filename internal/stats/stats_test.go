package stats

import (
	"encoding/binary"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func newBlock(t *testing.T) *Block {
	t.Helper()
	b, err := NewBlock(make([]uint64, Size/8), Info{PID: 4711, Instance: 0x1122334455667788, Start: 1_000_000_000})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The golden file has the bytes of the whole mapping, values included: other versions read
// the layout and the name table.
func TestGolden(t *testing.T) {
	b := newBlock(t)
	for i := range b.C {
		b.C[i] = uint64(i) + 1
	}
	b.Turn(0)
	b.Turn(1)
	b.Turn(1500)
	b.Messages.Add(TimeBucket(1e6), 1e6, 3)
	b.Operations.Add(TimeBucket(1e3), 1e3, 1)
	b.SetState(Sleeping)
	b.Publish(2_000_000_000)

	got := asBytes(b.mem)[:usedSize]
	path := filepath.Join("testdata", "mapping.golden")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d bytes, golden has %d; appended counters need -update", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("byte %d (word %d) is %#x, golden has %#x", i, i/8, got[i], want[i])
		}
	}
	if string(got[:8]) != "RDSDSTAT" {
		t.Errorf("the file starts with %q", got[:8])
	}
	if n := binary.LittleEndian.Uint64(got[8*wCounters:]); n != uint64(NumCounters) {
		t.Errorf("%d counters in the header, want %d", n, NumCounters)
	}
}

func TestNames(t *testing.T) {
	seen := map[string]Counter{}
	for c := range NumCounters {
		name := c.String()
		if !validName([]byte(name)) || len(name) > maxName {
			t.Errorf("counter %d: bad name %q", c, name)
		}
		if help := c.Help(); !strings.HasSuffix(help, ".") {
			t.Errorf("%s: help %q", name, help)
		}
		if other, dup := seen[name]; dup {
			t.Errorf("counters %d and %d are both %q", other, c, name)
		}
		seen[name] = c
		if ours := strings.HasPrefix(name, "rdsd_"); ours != (c > SendStuckRM) {
			t.Errorf("counter %d: %q: the prefix rdsd_ is for ours, and only for them", c, name)
		}
	}
	if SendStuckRM != 35 {
		t.Errorf("the kernel has 36 counters, here its last one has index %d", SendStuckRM)
	}
	if Clients.Gauge() != true || EngineStalls.Gauge() || NumCounters.Gauge() {
		t.Error("gauges are Clients to OpsOutstanding")
	}
	if NumCounters.String() != "unknown" || Counter(-1).String() != "unknown" || NumCounters.Help() != "" {
		t.Error("an index outside the table has a name")
	}
}

func TestPublishSnapshot(t *testing.T) {
	b := newBlock(t)
	r, err := NewReader(b.mem)
	if err != nil {
		t.Fatal(err)
	}
	b.C[SendQueued] = 7
	b.C[Sockets] = 3
	if s := r.Snapshot(); s.Values[SendQueued].Value != 0 {
		t.Fatal("visible before Publish")
	}
	b.Turn(100)
	b.SetState(Running)
	b.Publish(5)
	b.C[Sockets] = 0 // gauges fall
	b.Publish(6)
	s := r.Snapshot()
	if v, ok := s.Get("send_queued"); !ok || v != 7 {
		t.Errorf("send_queued %d, %v", v, ok)
	}
	if v := s.Values[Sockets]; v.Value != 0 || !v.Gauge || v.Name != "rdsd_sockets" {
		t.Errorf("sockets: %+v", v)
	}
	if _, ok := s.Get("nonsense"); ok {
		t.Error("a counter nobody has was found")
	}
	if s.PID != 4711 || s.Instance != 0x1122334455667788 || s.Start != 1_000_000_000 || s.Beat != 6 || s.State != Running || s.Turns.Turns != 1 {
		t.Errorf("header: %+v", s)
	}
}

func TestPublishAllocatesNothing(t *testing.T) {
	b := newBlock(t)
	now := int64(0)
	if n := testing.AllocsPerRun(100, func() {
		for i := range b.C {
			b.C[i]++
		}
		now++
		b.Turn(now)
		b.Publish(now)
	}); n != 0 {
		t.Errorf("%v allocations per Publish", n)
	}
}

func TestQuantile(t *testing.T) {
	b := newBlock(t)
	for range 99 {
		b.Turn(1000) // bucket bound 1024
	}
	b.Turn(5000)
	b.Turn(int64(time.Hour)) // beyond the last bucket's lower bound
	b.Publish(1)
	r, _ := NewReader(b.mem)
	h := r.Snapshot().Turns
	for _, tc := range []struct {
		q    float64
		want time.Duration
	}{{0, 1024}, {0.5, 1024}, {0.98, 1024}, {0.985, 8192}, {1, time.Hour}} {
		if got := h.Quantile(tc.q); got != tc.want {
			t.Errorf("q %v: %v, want %v", tc.q, got, tc.want)
		}
	}
	if h.Max != time.Hour || h.Sum != time.Hour+104*time.Microsecond {
		t.Errorf("max %v, sum %v", h.Max, h.Sum)
	}
	if (&Histogram{}).Quantile(0.5) != 0 {
		t.Error("quantile of nothing")
	}
}

func TestLate(t *testing.T) {
	for _, tc := range []struct {
		state     State
		ago, want time.Duration
	}{
		{Starting, 2 * time.Second, 2 * time.Second}, {Running, 2 * time.Second, 2 * time.Second}, {Running, -time.Second, 0},
		{Stopped, time.Hour, 0},
		{Sleeping, SleepMost, 0}, {Sleeping, 2*SleepMost - 1, 0}, {Sleeping, 2 * SleepMost, SleepMost}, {Sleeping, time.Hour, time.Hour - SleepMost},
	} {
		s := Snapshot{State: tc.state, Beat: int64(time.Hour)}
		if got := s.Late(time.Unix(0, int64(time.Hour+tc.ago))); got != tc.want {
			t.Errorf("%v since %v: late %v, want %v", tc.state, tc.ago, got, tc.want)
		}
	}
}

// A sleep is never taken for a turn, even by a reader at the moment of waking.
func TestLateAtWaking(t *testing.T) {
	b := newBlock(t)
	r, err := NewReader(b.mem)
	if err != nil {
		t.Fatal(err)
	}
	var asleep atomic.Int64 // the least time until which the engine sleeps
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for now := int64(1); ; now++ {
			select {
			case <-stop:
				return
			default:
			}
			b.SetState(Sleeping)
			asleep.Store(now)
			b.Woke(now)
		}
	}()
	for range 20000 {
		now := asleep.Load()
		if s := r.Snapshot(); s.State == Running && s.Beat < now {
			t.Fatalf("running, and the heart beat last at %d, before it slept until %d", s.Beat, now)
		}
	}
	close(stop)
	<-done
}

func TestReaderRejects(t *testing.T) {
	for _, tc := range []struct {
		name   string
		mutate func(m []uint64) []uint64
		want   string
	}{
		{"empty", func(m []uint64) []uint64 { return nil }, "0 bytes are too few"},
		{"magic", func(m []uint64) []uint64 { m[wMagic]++; return m }, "magic is"},
		{"version", func(m []uint64) []uint64 { m[wVersion] = 9; return m }, "layout version 9, this program reads 1"},
		{"count", func(m []uint64) []uint64 { m[wCounters] = 1 << 60; return m }, "counters"},
		{"no buckets", func(m []uint64) []uint64 { m[wBuckets] = 0; return m }, "0 buckets"},
		{"offset", func(m []uint64) []uint64 { m[wOffNames] = ^uint64(7); return m }, "outside its"},
		{"unaligned", func(m []uint64) []uint64 { m[wOffTurns] += 4; return m }, "outside its"},
		{"short", func(m []uint64) []uint64 { return m[:offNames/8] }, "outside its"},
		{"name", func(m []uint64) []uint64 { m[offNames/8] = 0; return m }, `counter 0 has the name ""`},
	} {
		b := newBlock(t)
		_, err := NewReader(tc.mutate(b.mem))
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want ErrFormat with %q", tc.name, err, tc.want)
		}
	}
}

func FuzzReader(f *testing.F) {
	golden, err := os.ReadFile(filepath.Join("testdata", "mapping.golden"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	f.Add(golden[:headerWords*8])
	f.Fuzz(func(t *testing.T, data []byte) {
		mem := make([]uint64, len(data)/8)
		copy(asBytes(mem), data)
		r, err := NewReader(mem)
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		s := r.Snapshot()
		if len(s.Values) != len(r.Table()) {
			t.Fatalf("%d values, %d names", len(s.Values), len(r.Table()))
		}
		s.Turns.Quantile(0.99)
	})
}

// A later version with more counters is still readable.
func TestReaderTakesLongerTable(t *testing.T) {
	const n = int(NumCounters) + 1
	mem := make([]uint64, 2*Size/8)
	copy(mem, newBlock(t).mem)
	old := asBytes(mem)[offNames:offTimes]
	names := append(append([]byte{}, old...), make([]byte, nameSize)...)
	copy(names[len(old):], "rdsd_from_the_future")
	base := Size / 8
	mem[wCounters], mem[wOffCounters] = uint64(n), uint64(Size)
	mem[wOffNames] = uint64(Size + n*8)
	copy(asBytes(mem)[Size+n*8:], names)
	mem[base+n-1] = 42
	r, err := NewReader(mem)
	if err != nil {
		t.Fatal(err)
	}
	s := r.Snapshot()
	if v, ok := s.Get("rdsd_from_the_future"); !ok || v != 42 {
		t.Errorf("%d, %v", v, ok)
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rdsd.sock.stats")
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewBlock(f.Mem(), Info{PID: os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if !m.Live() {
		t.Error("the writer is alive, the mapping says no")
	}
	b.C[RecvQueued] = 9
	b.Publish(1)
	if m.Load(int(RecvQueued)) != 9 {
		t.Error("a published value did not arrive")
	}
	if _, err := Create(path); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "pid") {
		t.Errorf("second writer: %v, want ErrInUse with the pid", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if m.Live() {
		t.Error("the writer is gone, the mapping says alive")
	}
	if m.Load(int(RecvQueued)) != 9 {
		t.Error("the reader lost its mapping with the writer")
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCreateReplacesDeadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stats")
	if err := os.WriteFile(path, []byte("what a killed daemon left"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, ErrFormat) {
		t.Errorf("garbage opened: %v", err)
	}
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fi, err := os.Stat(path)
	if err != nil || fi.Size() != int64(Size) || fi.Mode().Perm() != 0o644 {
		t.Errorf("%v %v", fi, err)
	}
}

func TestCreateErrors(t *testing.T) {
	if _, err := Create(filepath.Join(t.TempDir(), "no", "such", "dir")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing directory: %v", err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(filepath.Join(dir, "taken")); err == nil {
		t.Error("a directory was replaced")
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("a failed Create left files behind: %v", left)
	}
	if _, err := NewBlock(make([]uint64, 10), Info{}); err == nil {
		t.Error("80 bytes were taken for a mapping")
	}
}

// Readers run beside a publishing writer, for the race detector.
func TestConcurrentReaders(t *testing.T) {
	b := newBlock(t)
	r, err := NewReader(b.mem)
	if err != nil {
		t.Fatal(err)
	}
	const rounds = 1000
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			var last uint64
			for last < rounds {
				s := r.Snapshot()
				v := s.Values[SendQueued].Value
				if v < last {
					t.Errorf("a counter fell from %d to %d", last, v)
					return
				}
				last = v
			}
		})
	}
	for i := range rounds {
		b.C[SendQueued]++
		b.Turn(int64(i))
		b.Publish(int64(i))
	}
	wg.Wait()
}
