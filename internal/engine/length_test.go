package engine

import (
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// TestOperationLength: an operation that is longer than one may be ends with a status, on
// one host as between two, and nothing of it runs.
func TestOperationLength(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		w, a, b := opPair(t, hosts)
		r := b.expose(0, 64, abi.RightWrite, a)
		w.run()
		for _, n := range []uint64{8, abi.MaxTransfer + 1} {
			op := a.op(abi.OpWrite, r.Cookie, 0)
			op.Len = n
			a.submit(shm.Sub{}, op)
			w.run()
		}
		if st := a.statuses(); st[0] != int(abi.StatusSuccess) || st[1] != int(abi.StatusRemoteError) || a.told[1].Errno != uint32(unix.EMSGSIZE) {
			t.Errorf("%d hosts: statuses %v, %+v", hosts, st, a.told)
		}
		w.clean2(a, b)
	}
}
