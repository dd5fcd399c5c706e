package tidy

import (
	"testing"

	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/rdmaop"
)

// Values that travel between packages that do not import each other.
func TestValuesAgree(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b int64
	}{
		{"shm and rdmaop SUCCESS", int64(shm.StatusSuccess), int64(rdmaop.StatusSuccess)},
		{"shm and rdmaop REMOTE_ERROR", int64(shm.StatusRemoteError), int64(rdmaop.StatusRemoteError)},
		{"shm and rdmaop CANCELED", int64(shm.StatusCanceled), int64(rdmaop.StatusCanceled)},
		{"shm and rdmaop DROPPED", int64(shm.StatusDropped), int64(rdmaop.StatusDropped)},
		{"shm and rdmaop OTHER_ERROR", int64(shm.StatusOtherError), int64(rdmaop.StatusOtherError)},
		{"shm and rdmaop UNKNOWN", int64(shm.StatusUnknown), int64(rdmaop.StatusUnknown)},
		{"cmsg and rdmaop SUCCESS", int64(cmsg.StatusSuccess), int64(rdmaop.StatusSuccess)},
		{"cmsg and rdmaop REMOTE_ERROR", int64(cmsg.StatusRemoteError), int64(rdmaop.StatusRemoteError)},
		{"cmsg and rdmaop CANCELED", int64(cmsg.StatusCanceled), int64(rdmaop.StatusCanceled)},
		{"cmsg and rdmaop DROPPED", int64(cmsg.StatusDropped), int64(rdmaop.StatusDropped)},
		{"cmsg and rdmaop OTHER_ERROR", int64(cmsg.StatusOtherError), int64(rdmaop.StatusOtherError)},
		{"shm and rdmaop WRITE", int64(shm.OpWrite), int64(rdmaop.Write)},
		{"shm and rdmaop READ", int64(shm.OpRead), int64(rdmaop.Read)},
		{"shm and rdmaop FETCH_ADD", int64(shm.OpFetchAdd), int64(rdmaop.FetchAdd)},
		{"shm and rdmaop CMP_SWAP", int64(shm.OpCmpSwap), int64(rdmaop.CmpSwap)},
		{"shm and rdmaop notify", int64(shm.OpNotify), int64(rdmaop.FlagNotify)},
		{"shm and rdmaop silent", int64(shm.OpSilent), int64(rdmaop.FlagSilent)},
		{"shm and rdmaop fence", int64(shm.OpFence), int64(rdmaop.FlagFence)},
		{"shm and rdmaop report", int64(shm.OpReport), int64(rdmaop.FlagReport)},
		{"cmsg and rdmaop notify", int64(cmsg.FlagNotifyMe), int64(rdmaop.FlagNotify)},
		{"cmsg and rdmaop silent", int64(cmsg.FlagSilent), int64(rdmaop.FlagSilent)},
		{"cmsg and rdmaop fence", int64(cmsg.FlagFence), int64(rdmaop.FlagFence)},
		{"shm and rdmaop segments", shm.SegListMax, rdmaop.MaxSegs},
		{"cmsg and rdmaop segments", cmsg.MaxLocalSegments, rdmaop.MaxSegs},
		{"shm and cmsg message size", shm.MaxMessage, cmsg.MaxMessage},
	} {
		if c.a != c.b {
			t.Errorf("%s: %d and %d", c.name, c.a, c.b)
		}
	}
}
