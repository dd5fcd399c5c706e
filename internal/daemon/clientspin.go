package daemon

import "time"

const (
	// spareCPUs is how many processors a host must have for its applications to spin:
	// one for the engine, one for the process that the engine works for, and at least
	// one that no message needs.
	spareCPUs = 4
	// atOnce, ns, tells a client to block without spinning. 0 would leave it the choice.
	atOnce = 1
)

// clientSpin is how long, ns, clients are told to spin before they block. With
// few processors a client that spins holds the one that its message needs
// (docs/performance.md has the measurement). The engine spins all the same, because it is
// awake between two messages of any client.
func clientSpin(engine time.Duration, cpus int) uint64 {
	if engine <= 0 || cpus < spareCPUs {
		return atOnce
	}
	return uint64(engine)
}
