package stats

// The mapping, all words u64 in host order (little-endian):
//
//	0                 header, headerWords words (the indices below)
//	offCounters       one word per counter
//	offTurns          Buckets words: turns by duration
//	offNames          nameSize bytes per counter: NUL-padded name, kind in the
//	                  last byte (0 counter, 1 gauge)
const (
	magic       = 0x54415453_44534452 // "RDSDSTAT"
	headerWords = 24
	nameSize    = 32
	maxName     = nameSize - 2
	// maxCounters bounds what a reader accepts of another version's table.
	maxCounters = 4096

	kindCounter = 0
	kindGauge   = 1
)

// Header words.
const (
	wMagic = iota // stored last: a reader that sees it sees the rest
	wVersion
	wCounters // how many
	wBuckets  // how many
	wOffCounters
	wOffTurns
	wOffNames
	wSize // bytes in all
	wPID
	wInstance
	wStart // unix nanoseconds
	wState // State
	wBeat  // unix nanoseconds of the last Publish
	wTurns // turns until then
	wTurnSum
	wTurnMax
)

// Buckets of the turn-time histogram: bucket i counts the turns that took
// 2^(i-1) <= t < 2^i nanoseconds, bucket 0 those of 0, the last one all above.
const Buckets = 36

const (
	offCounters = headerWords * 8
	offTurns    = offCounters + int(NumCounters)*8
	offNames    = offTurns + Buckets*8
	usedSize    = offNames + int(NumCounters)*nameSize
	// Size of the mapping in bytes, whole pages.
	Size = (usedSize + 4095) &^ 4095
)

// State of the engine as it last published it.
type State uint64

const (
	Starting State = iota
	Running        // turning: the heartbeat must advance
	Sleeping       // blocked with nothing to do: the heartbeat stands still
	Stopped        // shut down in order
)

func (s State) String() string {
	switch s {
	case Starting:
		return "starting"
	case Running:
		return "running"
	case Sleeping:
		return "sleeping"
	case Stopped:
		return "stopped"
	}
	return "unknown"
}
