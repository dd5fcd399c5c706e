package stats

// The mapping, all words u64 in host order (little-endian):
//
//	0                 header, headerWords words (the indices below)
//	offCounters       one word per counter
//	offTurns          Buckets words: turns by duration
//	offNames          nameSize bytes per counter: NUL-padded name, kind in the
//	                  last byte (0 counter, 1 gauge)
//	offTimes          two Times: of messages, of operations. Mappings without them
//	                  have 0 in wOffTimes
const (
	magic       = 0x54415453_44534452 // "RDSDSTAT"
	headerWords = 24
	nameSize    = 32
	maxName     = nameSize - 2
	// maxCounters bounds the table that a reader accepts from another version.
	maxCounters = 4096

	kindCounter = 0
	kindGauge   = 1
)

// Header words.
const (
	wMagic = iota // stored last, so a reader that sees it sees the rest
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
	wTurns // turns until the last Publish
	wTurnSum
	wTurnMax
	wOffTimes    // 0: there are none
	wTimeBuckets // of each
)

// Buckets is the number of buckets of the turn-time histogram. Bucket 0 counts turns of 0
// ns, bucket i those of 2^(i-1) <= t < 2^i ns, the last bucket all longer ones.
const Buckets = 36

const (
	offCounters = headerWords * 8
	offTurns    = offCounters + int(NumCounters)*8
	offNames    = offTurns + Buckets*8
	offTimes    = offNames + int(NumCounters)*nameSize
	usedSize    = offTimes + 2*timesWords*8
	timesWords  = TimeBuckets + 1
	// Size is the size of the mapping in bytes. It is a multiple of the page size.
	Size = (usedSize + 4095) &^ 4095
)

// State of the engine as it last published it.
type State uint64

const (
	Starting State = iota
	Running        // the heartbeat must advance
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
