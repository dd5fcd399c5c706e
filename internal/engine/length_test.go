package engine

import (
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// TestOperationLength: an operation that is longer than the library makes them
// ends with a status, on one host as between two, and nothing of it runs.
func TestOperationLength(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		w, a, b := opPair(t, hosts)
		buf := func(s *opSide) uint32 {
			return s.must(&ipc.Alloc{Size: 2 * abi.MaxRDMA}).(*ipc.AllocOK).Buffer
		}
		local, remote := buf(a), buf(b)
		r := b.must(&ipc.Register{Sock: b.sock, Buffer: remote, Len: 2 * abi.MaxRDMA, Access: abi.RightWrite}).(*ipc.RegisterOK)
		b.must(&ipc.Expose{Region: r.Region, Addr: a.e.addrs.all[0].addr, Port: a.port})
		w.run()
		for _, n := range []uint64{abi.MaxRDMA, abi.MaxRDMA + 1} {
			op := a.op(abi.OpWrite, r.Cookie, 0)
			op.Region, op.Len = local, n
			a.submit(shm.Sub{}, op)
			w.run()
		}
		if st := a.statuses(); st[0] != int(abi.StatusSuccess) || st[1] != int(abi.StatusRemoteError) || a.told[1].Errno != uint32(unix.EMSGSIZE) {
			t.Errorf("%d hosts: statuses %v, %+v", hosts, st, a.told)
		}
		w.clean2(a, b)
	}
}
