package daemon

import (
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/ipc"
)

// A daemon goes on with programs and peers that were promised something: how they share memory
// with it, and what it sends. A daemon that keeps other promises must not take over. In version 1
// of the state they were not named: all daemons of that version had these.
const (
	firstIPC       = 3
	firstExtension = 2
)

// encodeContracts writes which versions the processes and peers of this daemon speak.
func encodeContracts(w *handover.Writer) {
	if w.Version() < 2 {
		return
	}
	w.U32(ipc.Version)
	w.U32(wire.ExtVersion)
}

// adoptContracts makes r fail if processes or peers speak other versions than this daemon.
func adoptContracts(r *handover.Reader) {
	programs, peers := uint32(firstIPC), uint32(firstExtension)
	if r.Version() >= 2 {
		programs, peers = r.U32(), r.U32()
	}
	switch {
	case r.Err() != nil:
	case programs != ipc.Version:
		r.Fail("programs speak ipc version %d with the old daemon, the new one speaks %d: this upgrade needs a restart, and programs built anew", programs, ipc.Version)
	case peers != wire.ExtVersion:
		r.Fail("peers speak extension version %d with the old daemon, the new one speaks %d: this upgrade needs a restart, also of the peers' daemons", peers, wire.ExtVersion)
	}
}
