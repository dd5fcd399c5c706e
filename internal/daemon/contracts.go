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

// handOverContracts has go over which versions processes and peers speak. A state that is read fails
// if they speak others than this daemon.
func handOverContracts(s *handover.State) {
	programs, peers := uint32(firstIPC), uint32(firstExtension)
	if s.Version() >= 2 {
		if !s.Reads() {
			programs, peers = ipc.Version, wire.ExtVersion
		}
		s.U32(&programs)
		s.U32(&peers)
	}
	switch {
	case s.Err() != nil:
	case programs != ipc.Version:
		s.Fail("programs speak ipc version %d with the old daemon, the new one speaks %d: this upgrade needs a restart, and programs built anew", programs, ipc.Version)
	case peers != wire.ExtVersion:
		s.Fail("peers speak extension version %d with the old daemon, the new one speaks %d: this upgrade needs a restart, also of the peers' daemons", peers, wire.ExtVersion)
	}
}
