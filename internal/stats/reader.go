package stats

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// ErrFormat says that memory is not a statistics mapping that this version can read.
// Compare with errors.Is.
var ErrFormat = errors.New("not a statistics mapping this version reads")

// Reader reads a mapping while its writer may change it. Any goroutine may use it. Each
// word is read whole, but the words of one Snapshot may be of different moments.
type Reader struct {
	mem   []uint64
	table []Desc
	turns int // word index of the histogram
	count int // its length
	first int // word index of the counters
	times int // word index of the two Times, 0: there are none
}

// Desc names one word of the mapping.
type Desc struct {
	Name  string
	Gauge bool
}

// Value is one counter or gauge.
type Value struct {
	Desc
	Value uint64
}

// Snapshot is a copy of the mapping.
type Snapshot struct {
	Info
	State  State
	Beat   int64 // unix nanoseconds of the last Publish
	Values []Value
	Turns  Histogram
	// Of all messages and operations: see Block. Mappings of older daemons have none.
	Messages, Operations Times
}

// NewReader checks mem, the words of a mapping, and returns its reader. It takes the names
// from the mapping, so that it can read another version's. Its error is ErrFormat, with
// what is wrong.
func NewReader(mem []uint64) (*Reader, error) {
	bad := func(format string, args ...any) (*Reader, error) {
		return nil, fmt.Errorf("stats: %w: %s", ErrFormat, fmt.Sprintf(format, args...))
	}
	if len(mem) < headerWords {
		return bad("%d bytes are too few", len(mem)*8)
	}
	if m := atomic.LoadUint64(&mem[wMagic]); m != magic {
		return bad("magic is %#x", m)
	}
	if v := mem[wVersion]; v != Version {
		return bad("layout version %d, this program reads %d", v, Version)
	}
	size := uint64(len(mem)) * 8
	n, buckets := mem[wCounters], mem[wBuckets]
	if n > maxCounters || buckets == 0 || buckets > 64 {
		return bad("%d counters, %d buckets", n, buckets)
	}
	within := func(off, length uint64) bool { return off%8 == 0 && off <= size && length <= size-off }
	if !within(mem[wOffCounters], n*8) || !within(mem[wOffTurns], buckets*8) || !within(mem[wOffNames], n*nameSize) {
		return bad("a table lies outside its %d bytes", size)
	}
	r := &Reader{
		mem:   mem,
		first: int(mem[wOffCounters] / 8),
		turns: int(mem[wOffTurns] / 8),
		count: int(buckets),
		table: make([]Desc, n),
	}
	if off := mem[wOffTimes]; off != 0 {
		if mem[wTimeBuckets] != TimeBuckets || !within(off, 2*timesWords*8) {
			return bad("%d buckets of times at %d", mem[wTimeBuckets], off)
		}
		r.times = int(off / 8)
	}
	names := asBytes(mem)[mem[wOffNames]:]
	for i := range r.table {
		entry := names[i*nameSize : (i+1)*nameSize]
		name, _, _ := bytes.Cut(entry[:nameSize-1], []byte{0})
		if !validName(name) {
			return bad("counter %d has the name %q", i, name)
		}
		r.table[i] = Desc{Name: string(name), Gauge: entry[nameSize-1] == kindGauge}
	}
	return r, nil
}

func validName(b []byte) bool {
	for _, c := range b {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return len(b) > 0
}

// Table is the name of each word, in order. The caller must not change it.
func (r *Reader) Table() []Desc { return r.table }

// Load is the value of word i of Table.
func (r *Reader) Load(i int) uint64 { return atomic.LoadUint64(&r.mem[r.first+i]) }

// Snapshot copies everything.
func (r *Reader) Snapshot() Snapshot {
	word := func(w int) uint64 { return atomic.LoadUint64(&r.mem[w]) }
	s := Snapshot{
		Info: Info{
			PID:      int(word(wPID)),
			Instance: word(wInstance),
			Start:    int64(word(wStart)),
		},
		State:  State(word(wState)), // read before Beat, see Woke
		Beat:   int64(word(wBeat)),
		Values: make([]Value, len(r.table)),
		Turns: Histogram{
			Turns:  word(wTurns),
			Sum:    time.Duration(word(wTurnSum)),
			Max:    time.Duration(word(wTurnMax)),
			Counts: make([]uint64, r.count),
		},
	}
	for i, d := range r.table {
		s.Values[i] = Value{Desc: d, Value: r.Load(i)}
	}
	for i := range s.Turns.Counts {
		s.Turns.Counts[i] = word(r.turns + i)
	}
	if r.times > 0 {
		for k, t := range []*Times{&s.Messages, &s.Operations} {
			for i := range t.Counts {
				t.Counts[i] = word(r.times + k*timesWords + i)
			}
			t.Sum = word(r.times + k*timesWords + TimeBuckets)
		}
	}
	return s
}

// Get is the value of the counter called name. It is false if the mapping has none.
func (s *Snapshot) Get(name string) (uint64, bool) {
	for _, v := range s.Values {
		if v.Name == name {
			return v.Value, true
		}
	}
	return 0, false
}

// SleepMost is the longest time that an idle engine sleeps. More frequent wake-ups would
// cost the threads of Go's runtime.
const SleepMost = 15 * time.Second

// Late is for how long the engine should have published and has not. For a running engine
// that is the time since the last Publish. A sleeping engine should wake after SleepMost,
// but a busy machine may delay it, so Late is 0 until twice SleepMost. A stopped engine is
// never late.
func (s *Snapshot) Late(now time.Time) time.Duration {
	late := max(0, time.Duration(now.UnixNano()-s.Beat))
	switch {
	case s.State == Stopped, s.State == Sleeping && late < 2*SleepMost:
		return 0
	case s.State == Sleeping:
		return late - SleepMost
	}
	return late
}

// Histogram is the histogram of the engine's turn times.
type Histogram struct {
	Turns  uint64
	Sum    time.Duration
	Max    time.Duration
	Counts []uint64 // by bucket, see Buckets
}

// Bound is the upper bound of bucket i, exclusive.
func Bound(i int) time.Duration {
	if i >= 63 {
		return math.MaxInt64
	}
	return 1 << i
}

// Quantile is an upper bound of the q-quantile (0 to 1): the bound of the quantile's
// bucket, at most Max. It is 0 without turns.
func (h *Histogram) Quantile(q float64) time.Duration {
	var total uint64
	for _, c := range h.Counts {
		total += c
	}
	if total == 0 {
		return 0
	}
	rank := max(1, uint64(math.Ceil(q*float64(total))))
	var seen uint64
	for i, c := range h.Counts[:len(h.Counts)-1] {
		if seen += c; seen >= rank {
			return min(Bound(i), h.Max)
		}
	}
	return h.Max // the last bucket has no bound
}
