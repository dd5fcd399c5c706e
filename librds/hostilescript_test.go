package librds

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/rdsd/rdsd/internal/shm"
)

// A hostileOp is a rule that a hostile daemon breaks.
type hostileOp int

// What the daemon gives with its answer to Hello.
const (
	badSize      hostileOp = iota // memory of another size
	badUnsealed                   // memory that can be truncated, and is
	badCount                      // too few descriptors
	badKind                       // a pipe instead of memory, memory instead of a pipe
	badParams                     // a parameter that was not asked for
	badVersion                    // another version, no features, a long spin
	badSegment                    // a segment that is formatted otherwise
	badFirstWord                  // garbage instead of the answer
	firstControl                  // What it answers to later requests.
)

// What it answers to later requests.
const (
	badAnswer   = firstControl + iota // bytes that are no answer
	badErrno                          // an error
	badSilence                        // nothing
	badGoodbye                        // the end of the session
	badTwice                          // the same answer twice
	badNumbers                        // handles, sizes and cookies
	badFDs                            // descriptors that do not belong there
	badType                           // an answer of another type
	badBuffer                         // a buffer of another size, or one that can be truncated
	badHangUp                         // the end of the connection
	firstEngine                       // What it does with the shared memory.
)

// What it does with the shared memory.
const (
	badWord    = firstEngine + iota // any word of the segment
	badIndex                        // an index of a ring, an announcement
	badTable                        // a slot or a cell
	badReceive                      // the receive arena
	badMessage                      // the receive arena, where messages lie
	badSend                         // the send arena, with the states of runs
	badReturn                       // a message id
	badEvent                        // an event of any bytes
	badField                        // an event of a known kind and socket, otherwise of any bytes
	badBell                         // the doorbell: ended, full, or a pipe that blocks
	badRun                          // a run that goes on behind its last frame
	hostileOps
)

const (
	stepSize = 8 // bytes of a step, without those that follow it
	maxSteps = 200
)

// A step is one broken rule.
type step struct {
	op    hostileOp
	after uint8  // requests or turns of the engine since the step before
	at    uint16 // where, which
	v     uint32 // a value
	bytes []byte // an event's or a frame's
}

func (s step) String() string {
	return fmt.Sprintf("op %d after %d at %d value %#x bytes %x", s.op, s.after, s.at, s.v, s.bytes)
}

// following is how many bytes follow a step.
func following(op hostileOp, at uint16) int {
	switch op {
	case badEvent, badField:
		return shm.EntrySize
	case badAnswer, badFirstWord:
		return int(at % 64)
	}
	return 0
}

// parseScript splits bytes into the steps at Hello, at requests and of the engine. The first two
// bytes choose what the daemon does beside them.
func parseScript(b []byte) (seed uint16, hello, control, engine []step) {
	if len(b) < 2 {
		return 0, nil, nil, nil
	}
	seed, b = binary.LittleEndian.Uint16(b), b[2:]
	for n := 0; len(b) >= stepSize && n < maxSteps; n++ {
		s := step{hostileOp(int(b[0]) % int(hostileOps)), b[1], binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint32(b[4:]), nil}
		b = b[stepSize:]
		more := min(following(s.op, s.at), len(b))
		s.bytes, b = b[:more], b[more:]
		switch {
		case s.op < firstControl:
			hello = append(hello, s)
		case s.op < firstEngine:
			control = append(control, s)
		default:
			engine = append(engine, s)
		}
	}
	return seed, hello, control, engine
}

// scriptOf is a random script: one with a few steps of op, or with op -1 steps of any kind, most
// of them of the engine.
func scriptOf(op int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, uint64(op)))
	b := binary.LittleEndian.AppendUint16(nil, uint16(r.Uint32()))
	steps := 6
	if op < 0 {
		steps = 1 + r.IntN(60)
	}
	for range steps {
		kind, v := op, r.Uint32()
		if op < 0 {
			kind = int(firstEngine) + r.IntN(int(hostileOps-firstEngine))
			if r.IntN(20) == 0 {
				kind = int(firstControl) + r.IntN(int(firstEngine-firstControl))
			}
		}
		if r.IntN(2) == 0 {
			v %= 16
		}
		at := uint16(r.Uint32())
		b = append(b, byte(kind), byte(r.IntN(20)))
		b = binary.LittleEndian.AppendUint16(b, at)
		b = binary.LittleEndian.AppendUint32(b, v)
		for range following(hostileOp(kind), at) {
			b = append(b, byte(r.Uint32()>>(r.IntN(4)*8)))
		}
	}
	return b
}
