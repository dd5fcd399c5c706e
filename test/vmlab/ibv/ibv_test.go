// Package ibv tests verbs/ibv, and rdsd on it, on Linux's soft-RoCE and
// soft-iWARP, in emulated hosts.
package ibv

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/rdsd/rdsd/test/vmlab/lab"
)

// TestConformance runs the providers' suite on soft-RoCE. On soft-iWARP both
// ends of the suite would need the same addresses in one process (see
// verbs/ibv/mr.go), so TestDaemons alone covers it.
func TestConformance(t *testing.T) {
	l := lab.Boot(t, lab.Config{Limit: 12 * time.Minute})
	l.Install(t, lab.BuildTest(t, "verbs/ibv", "-tags=ibv"))
	const limit = 10 * time.Minute
	out := l.A.Run(t, limit, fmt.Sprintf(`
		set -e
		lab_load rdma_rxe rdma_ucm ib_uverbs
		ip addr add 10.9.0.2/24 dev eth0
		rdma link add rxe0 type rxe netdev eth0
		export RDSD_IBV_A=10.9.0.1 RDSD_IBV_B=10.9.0.2
		ibv.test -test.run TestConformance -test.timeout %v %s`, limit-10*time.Second, os.Getenv("RDSD_VMLAB_ARGS")))
	t.Logf("%s", out[max(0, len(out)-2000):])
}
