package stats

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// Info describes the writer. It is written once.
type Info struct {
	PID      int
	Instance uint64
	Start    int64 // unix nanoseconds
}

// Block is the engine's side: words that the engine owns, and the memory that they are
// published to. Only one goroutine may use a Block. NewReader may read its memory at the
// same time.
type Block struct {
	// C are the counters and gauges, by Counter: st.C[stats.SendQueued]++.
	C [NumCounters]uint64

	// Messages has how long messages took from the turn that took them in until they were
	// acked, and Operations how long operations took from their post to their status.
	Messages, Operations Times

	turns   uint64
	turnSum uint64
	turnMax uint64
	hist    [Buckets]uint64

	pubC    [NumCounters]uint64 // the values in the memory
	pubHist [Buckets]uint64
	pubTime [2]Times
	mem     []uint64
}

// NewBlock formats mem, of at least Size bytes, and returns a Block that publishes to it.
// The daemon passes a File's memory, tests and the simulator pass heap memory.
func NewBlock(mem []uint64, info Info) (*Block, error) {
	if len(mem)*8 < Size {
		return nil, fmt.Errorf("stats: %d bytes of memory, %d needed", len(mem)*8, Size)
	}
	clear(mem)
	for w, v := range map[int]uint64{
		wVersion:     Version,
		wCounters:    uint64(NumCounters),
		wBuckets:     Buckets,
		wOffCounters: offCounters,
		wOffTurns:    uint64(offTurns),
		wOffNames:    uint64(offNames),
		wOffTimes:    uint64(offTimes),
		wTimeBuckets: TimeBuckets,
		wSize:        uint64(Size),
		wPID:         uint64(info.PID),
		wInstance:    info.Instance,
		wStart:       uint64(info.Start),
		wBeat:        uint64(info.Start),
	} {
		mem[w] = v
	}
	out := asBytes(mem)[offNames:]
	for c := range NumCounters {
		entry := out[int(c)*nameSize : int(c+1)*nameSize]
		copy(entry[:maxName], table[c].name)
		if c.Gauge() {
			entry[nameSize-1] = kindGauge
		}
	}
	atomic.StoreUint64(&mem[wMagic], magic)
	return &Block{mem: mem}, nil
}

// Turn counts one turn of the engine's loop that took d nanoseconds.
func (b *Block) Turn(d int64) {
	t := uint64(max(d, 0))
	b.turns++
	b.turnSum += t
	b.turnMax = max(b.turnMax, t)
	b.hist[min(bits.Len64(t), Buckets-1)]++
}

// Publish copies the changed values to the memory and updates the heartbeat. now is in unix
// nanoseconds. It neither allocates nor blocks, and takes some 100 ns.
func (b *Block) Publish(now int64) {
	out := b.mem[offCounters/8:]
	for i, v := range b.C {
		if v != b.pubC[i] {
			b.pubC[i] = v
			atomic.StoreUint64(&out[i], v)
		}
	}
	out = b.mem[offTurns/8:]
	for i, v := range b.hist {
		if v != b.pubHist[i] {
			b.pubHist[i] = v
			atomic.StoreUint64(&out[i], v)
		}
	}
	publishTimes(b.mem[offTimes/8:], &b.Messages, &b.pubTime[0])
	publishTimes(b.mem[offTimes/8+timesWords:], &b.Operations, &b.pubTime[1])
	atomic.StoreUint64(&b.mem[wTurnSum], b.turnSum)
	atomic.StoreUint64(&b.mem[wTurnMax], b.turnMax)
	atomic.StoreUint64(&b.mem[wTurns], b.turns)
	atomic.StoreUint64(&b.mem[wBeat], uint64(now))
}

// publishTimes copies t to out. pub is what is there.
func publishTimes(out []uint64, t, pub *Times) {
	if t.Sum == pub.Sum && t.Counts == pub.Counts {
		return
	}
	*pub = *t
	for i, n := range &t.Counts {
		atomic.StoreUint64(&out[i], n)
	}
	atomic.StoreUint64(&out[TimeBuckets], t.Sum)
}

// Woke publishes Running after a sleep. It updates the heartbeat first, so that a reader
// that sees Running does not take the sleep for a turn. now is as for Publish.
func (b *Block) Woke(now int64) {
	atomic.StoreUint64(&b.mem[wBeat], uint64(now))
	b.SetState(Running)
}

// SetState publishes the engine's state. The engine sets Sleeping before it blocks, so that
// a reader can tell an idle engine from a stuck one. Woke ends Sleeping.
func (b *Block) SetState(s State) { atomic.StoreUint64(&b.mem[wState], uint64(s)) }

func asBytes(mem []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)*8)
}

func asWords(mem []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/8)
}
