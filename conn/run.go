package conn

import (
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/conn/wire"
)

// Runs. Between two rdsd a run is one message: it has one header, one sequence and one
// end, and is refused or finds no socket as a whole.

// checkRun says what is wrong with h, the header of a run. What the frames are
// is not looked at here: whoever sent the run may change them after its daemon has looked
// at them, so no peer answers for them. The Host looks when it has copied them.
func checkRun(h *wire.Header) error {
	switch n, ok := h.Run(); {
	case !ok:
		return errors.New("a run that does not say of how many datagrams")
	case h.Len > frames.MaxLen:
		return fmt.Errorf("a run of %d bytes, at most %d", h.Len, frames.MaxLen)
	case n > int(h.Len)/frames.Head:
		return fmt.Errorf("a run of %d datagrams in %d bytes", n, h.Len)
	case h.Flags&(wire.FlagSilent|wire.FlagInternal|wire.FlagCong) != 0:
		return fmt.Errorf("a run with flags %#x", h.Flags)
	case h.DPort == 0:
		return errors.New("a run of pings")
	}
	return nil
}

// datagrams is how many datagrams the message of h is, which checkRun has seen.
func datagrams(h *wire.Header) uint64 {
	if h.Flags&wire.FlagRun == 0 {
		return 1
	}
	n, _ := h.Run()
	return uint64(n)
}

// TookRun tells how many bytes of payload a run has that the Host accepts, for
// Stats.RecvBytes. The Host calls it from inside Deliver or Commit.
func (c *Conn) TookRun(payload int) {
	c.calls.Note()
	c.stats.RecvBytes += uint64(payload)
}
