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

// long skips a test in a short run.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("not in the short form")
	}
}

// modules are the kernel modules, by driver.
var modules = map[string]string{"rxe": "rdma_rxe", "siw": "siw"}

// TestConformance runs the providers' suite on soft-RoCE and on soft-iWARP. Each case must pass,
// or assert a deviation of the driver.
func TestConformance(t *testing.T) {
	long(t)
	for _, driver := range []string{"rxe", "siw"} {
		t.Run(driver, func(t *testing.T) { conformance(t, driver) })
	}
}

func conformance(t *testing.T, driver string) {
	l := lab.Boot(t, lab.Config{Limit: 15 * time.Minute})
	l.Install(t, lab.BuildTest(t, "verbs/ibv", "-tags=ibv"))
	const limit = 13 * time.Minute
	out := l.A.Run(t, limit, fmt.Sprintf(`
		set -e
		lab_load %[2]s rdma_ucm ib_uverbs
		ip addr add 10.9.0.2/24 dev eth0
		rdma link add %[1]s0 type %[1]s netdev eth0
		export RDSD_IBV_A=10.9.0.1 RDSD_IBV_B=10.9.0.2
		ibv.test -test.run TestConformance -test.timeout %[3]v %[4]s`, driver, modules[driver], limit-10*time.Second, os.Getenv("RDSD_VMLAB_ARGS")))
	t.Logf("%s", out[max(0, len(out)-2000):])
}
