package shm

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/rdsd/rdsd/conn/frames"
)

// A run is consecutive datagrams of one socket to one destination in one chunk of the send
// arena: RunHead bytes, of which the state is all, then frames (package frames). KindRun
// submits it.
//
// The client appends while the daemon has not taken the descriptor. It writes a frame
// behind those that the state speaks of, then replaces the state by one that includes it,
// with compare-and-swap. The daemon replaces the state by RunClosed when it takes the
// descriptor. What it finds there is what the run holds. A client whose compare-and-swap
// fails opens another run.
const (
	RunHead = 8
	// MaxRun is the most bytes of a run's chunk.
	MaxRun = RunHead + frames.MaxLen

	// RxStep is set in an entry of the receive-return ring that does not give its receive
	// id back: another quarter of the run's bytes was read. A run has RunSteps-1 of them.
	RxStep   = 1 << 31
	RunSteps = 4
)

// RunState is what the state word of a run says.
//
//	bits  0 to 19  bytes of frames
//	bits 20 to 39  datagrams
//	bits 40 to 59  bytes of payload
//	bit  60        an ack is to be asked for at once
//	bit  63        closed
type RunState uint64

const (
	// RunAckNow asks for an ack at once, as SubAckNow does.
	RunAckNow RunState = 1 << 60
	// RunClosed is the state once the daemon has taken the run.
	RunClosed RunState = 1 << 63

	runSays = RunAckNow<<1 - 1 // the bits that say something of a run that is open
	runBits = 20
	runMask = 1<<runBits - 1
)

// Append is the state with one more datagram, of n bytes.
func (s RunState) Append(n int) RunState {
	return s + RunState(frames.Size(n)) + 1<<runBits + RunState(n)<<(2*runBits)
}

// Len is how many bytes of frames there are.
func (s RunState) Len() int { return int(s & runMask) }

// Datagrams is how many frames there are.
func (s RunState) Datagrams() int { return int(s >> runBits & runMask) }

// Payload is how many bytes of payload they have.
func (s RunState) Payload() int { return int(s >> (2 * runBits) & runMask) }

// Check returns an error if no run in a chunk of size bytes can be in state s when the
// daemon takes it. The frames may still be others than s says.
func (s RunState) Check(size int) error {
	n := s.Datagrams()
	least := s.Len() - frames.Size(0)*n // without the lengths: the payload, and up to 3 bytes of padding each
	if s&^runSays != 0 || size > MaxRun || s.Len() > size-RunHead || n < 1 || s.Payload() > least || s.Payload() < least-3*n {
		return fmt.Errorf("state %#x of a run in %d bytes", uint64(s), size)
	}
	return nil
}

// RunWord is the state word of the run whose chunk is mem. It panics if mem is shorter
// than RunHead. mem begins at a multiple of Unit.
//
// It does not touch mem: the other side may write there.
func RunWord(mem []byte) *RunCell {
	if len(mem) < RunHead {
		panic("shm: a run without its state")
	}
	return (*RunCell)(unsafe.Pointer(unsafe.SliceData(mem)))
}

// RunCell is a run's state word in shared memory.
type RunCell struct{ v atomic.Uint64 }

// Load reads the state.
func (c *RunCell) Load() RunState { return RunState(c.v.Load()) }

// Open stores the first state of a run that nobody else knows of yet.
func (c *RunCell) Open(s RunState) { c.v.Store(uint64(s)) }

// Replace makes the state s unless it is not was any more.
func (c *RunCell) Replace(was, s RunState) bool { return c.v.CompareAndSwap(uint64(was), uint64(s)) }

// Close ends the run and returns what it holds.
func (c *RunCell) Close() RunState { return RunState(c.v.Swap(uint64(RunClosed))) }
