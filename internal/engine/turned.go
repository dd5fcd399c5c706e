package engine

import (
	"fmt"

	"github.com/rdsd/rdsd/internal/rdstcp"
	"github.com/rdsd/rdsd/internal/stats"
)

// turnedAway follows the device's count of incoming connections that it closed before they
// made a request, because of garbage, half a request, or silence.
type turnedAway struct {
	seen, told uint64
	toldAt     Wall
}

// Events of connections that were not taken, by queue pairs and by RDS/TCP.
const (
	EventRefused    = "connection refused"
	EventRefusedTCP = "RDS/TCP connection refused"
)

const tellTurnedNs = 1_000_000_000

// refusedTCP notes a connection by RDS/TCP that was reset.
func (w *watching) refusedTCP(s *rdstcp.Conn, why error) {
	e := w.e
	e.st.C[stats.BadHandshakes]++
	e.cfg.Trace(Place{Local: s.Local.Addr(), Remote: s.Remote.Addr()}, EventRefusedTCP, why)
}

// countTurnedAway counts them with the handshakes that the engine refused, and
// says so, once a second at most, however many knock.
func (w *watching) countTurnedAway(wall Wall) {
	e := w.e
	if e.cfg.TurnedAway == nil {
		return
	}
	t := &w.turned
	n := e.cfg.TurnedAway()
	e.st.C[stats.BadHandshakes] += n - t.seen
	t.seen = n
	if n == t.told || wall-t.toldAt < tellTurnedNs {
		return
	}
	e.cfg.Trace(Place{}, "incoming connections turned away",
		fmt.Errorf("%d sent garbage, half a request or nothing, or were too many at once", n-t.told))
	t.told, t.toldAt = n, wall
}
