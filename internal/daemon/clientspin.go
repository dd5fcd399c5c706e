package daemon

import "time"

const (
	// spareCPUs is how many processors a host must have for its applications
	// to spin: one for the engine, one for the process it works for, and one
	// at least that nobody waits for.
	spareCPUs = 4
	// atOnce, ns, tells a client to block without spinning. 0 would tell it
	// nothing.
	atOnce = 1
)

// clientSpin is how long, ns, clients are told to spin before they block. With
// few processors a client that spins holds the one its message needs: measured,
// see docs/performance.md. The engine spins all the same: it is awake between
// two messages of any client.
func clientSpin(engine time.Duration, cpus int) uint64 {
	if engine <= 0 || cpus < spareCPUs {
		return atOnce
	}
	return uint64(engine)
}
