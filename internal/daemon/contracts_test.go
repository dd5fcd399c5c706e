package daemon

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/ipc"
)

// TestContracts: a daemon takes over if it speaks as the one before with programs and peers. The
// refusal says with whom it does not, and what to do.
func TestContracts(t *testing.T) {
	state := func(version uint16, write func(*handover.State)) *handover.State {
		w := handover.Write(version)
		write(w)
		r, err := handover.Read(w.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for v := handover.Oldest; v <= handover.Newest; v++ {
		r := state(v, handOverContracts)
		handOverContracts(r)
		if err := r.Close(); err != nil {
			t.Errorf("version %d: %v", v, err)
		}
	}
	for _, c := range []struct {
		programs, peers uint32
		says            string
	}{
		{ipc.Version + 1, wire.ExtVersion, "programs speak ipc version 4"},
		{ipc.Version, wire.ExtVersion - 1, "peers speak extension version 1"},
	} {
		r := state(2, func(s *handover.State) { s.U32s(&c.programs, &c.peers) })
		handOverContracts(r)
		if err := r.Close(); !errors.Is(err, handover.ErrFormat) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "needs a restart") {
			t.Errorf("%+v: %v", c, err)
		}
	}
	r := state(2, func(s *handover.State) { s.U32(new(uint32(ipc.Version))) })
	if handOverContracts(r); r.Close() == nil {
		t.Error("half of it was enough")
	}
}
