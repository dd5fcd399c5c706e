package loadgen

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rdsd/rdsd/abi"
)

// protocol is the version of what the two ends of rdsctl bench say to each other. Both ends
// must have the same.
const protocol = 2

// Mode is what is measured.
type Mode uint8

// Modes.
const (
	RTT       Mode = 1 // a message there and the same back
	Rate      Mode = 2 // messages one way
	RDMARead  Mode = 3
	RDMAWrite Mode = 4
)

var modes = map[Mode]string{RTT: "rtt", Rate: "rate", RDMARead: "rdma-read", RDMAWrite: "rdma-write"}

func (m Mode) String() string {
	if s, ok := modes[m]; ok {
		return s
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

// RDMA reports whether m measures operations.
func (m Mode) RDMA() bool { return m == RDMARead || m == RDMAWrite }

// ParseMode reads a mode's name.
func ParseMode(s string) (Mode, error) {
	for m, name := range modes {
		if s == name {
			return m, nil
		}
	}
	return 0, fmt.Errorf("%q is none of rtt, rate, rdma-read, rdma-write", s)
}

// Limits of a session.
const (
	maxSockets  = 256
	maxDepth    = 4096
	maxSize     = abi.MaxMessage
	maxMemory   = 1 << 30 // of a session's RDMA buffer, and of each socket's buffers
	minVerified = 16      // sequence and pattern, bytes
)

// The methods of a server, which are called as package rds/rpc does. Bodies are JSON.
const (
	callBegin = "bench.begin" // hello, answered by welcome
	callAlive = "bench.alive" // a client calls it every aliveEvery
	callMark  = "bench.mark"  // the measurement begins
	callEnd   = "bench.end"   // the number of messages that were sent, answered by final
)

// hello asks for a session.
type hello struct {
	Version uint16
	Mode    Mode
	Verify  bool
	Sockets int
	Size    int // of a message or operation, bytes
	Depth   int // outstanding per socket
	Sample  int // mode Rate: the server answers every Sample messages
}

// welcome says where the session's sockets are.
type welcome struct {
	Cookie uint64 // RDMA: names Sockets times Depth slots of Size bytes, socket by socket
	Ports  []uint16
}

// final is what the server has counted.
type final struct {
	Received  uint64        // messages
	CPU       time.Duration // of the server's process since the mark
	DaemonCPU time.Duration // of its daemon, negative if it is not known
	Wrong     string        // what verification found, "" for nothing
}

// ErrLimits says that no server accepts such a session.
var ErrLimits = errors.New("beyond the limits")

// check returns an error that says what is wrong, or nil.
func (h *hello) check(speaks uint16) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrLimits}, args...)...)
	}
	switch {
	case h.Version != speaks:
		return fmt.Errorf("rdsctl bench at the other end speaks version %d of its protocol, this one %d: use the same rdsctl at both", h.Version, speaks)
	case modes[h.Mode] == "":
		return bad("%v is not known here", h.Mode)
	case h.Sockets < 1 || h.Sockets > maxSockets:
		return bad("%d sockets, want 1 to %d", h.Sockets, maxSockets)
	case h.Depth < 1 || h.Depth > maxDepth:
		return bad("%d outstanding, want 1 to %d", h.Depth, maxDepth)
	case h.Size < 0 || h.Size > maxSize:
		return bad("%d bytes, want at most %d", h.Size, maxSize)
	case h.Verify && h.Size < minVerified:
		return bad("%d bytes are too few to verify, want %d", h.Size, minVerified)
	case h.Mode.RDMA() && h.Size == 0:
		return bad("an operation of no bytes")
	case h.Mode == Rate && (h.Sample < 1 || h.Sample > maxDepth):
		return bad("an answer every %d messages, want 1 to %d", h.Sample, maxDepth)
	case h.Sockets*h.Depth*h.Size > maxMemory:
		return bad("%d sockets with %d of %d bytes each outstanding are more than %d bytes", h.Sockets, h.Depth, h.Size, maxMemory)
	}
	return nil
}

// encode is a message as JSON. It is for types that always have one.
func encode(m any) []byte {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}
