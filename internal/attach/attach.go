// Package attach lets tests and the simulator choose how package rds reaches its daemon. A program attaches through the
// daemon's control socket; a test can give rds.Open a daemon of its own, in the same process and in virtual time.
//
// The choice travels in the context of rds.Open, so that nothing of it shows in the signatures of package rds.
package attach

import (
	"context"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// Way is how a client reaches its daemon. It serves one rds.Open.
type Way struct {
	// Control carries the client's requests. If it implements Memory, the descriptors in its answers are names of heap memory.
	Control ipc.Control
	// Wake is where the client's leader sleeps. It may be nil if Control does not implement
	// Memory: the leader then sleeps at the descriptor that the daemon sends.
	Wake shm.Waiter
	// Again returns the way to the next daemon when this one has gone, for a client that
	// opens again. nil: by the control socket of its options.
	Again func(context.Context) (Way, error)
}

// Memory is implemented by a Control whose daemon is in the same process.
type Memory interface {
	// Map returns the size bytes of memory that fd stands for.
	Map(fd, size int, writable bool) ([]byte, error)
	// RingDaemon rings the daemon's doorbell.
	RingDaemon()
}

type key struct{}

// Through returns a context with which rds.Open attaches through w.
func Through(ctx context.Context, w Way) context.Context { return context.WithValue(ctx, key{}, w) }

// Chosen returns the Way of ctx. It is the zero Way if ctx has none.
func Chosen(ctx context.Context) Way {
	w, _ := ctx.Value(key{}).(Way)
	return w
}
