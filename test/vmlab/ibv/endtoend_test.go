package ibv

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/test/vmlab/lab"
)

// TestEndToEnd runs end-to-end tests with daemons on soft-RoCE, on one host: the outcome of
// messages when the connection is reset or the peer's daemon is killed at any moment, and plain
// messages.
func TestEndToEnd(t *testing.T) {
	long(t)
	const driver = "rxe"
	l := lab.Boot(t, lab.Config{Limit: 12 * time.Minute})
	l.Install(t, lab.Build(t, "cmd/rdsd", "-tags=ibv"), lab.Build(t, "cmd/rdsctl"), lab.BuildTest(t, "test/e2e"))
	l.A.Run(t, time.Minute, fmt.Sprintf(`
		set -e
		lab_load %[2]s rdma_ucm ib_uverbs
		for i in 2 3 4 5 6 7 8 9; do ip addr add 10.9.0.$i/24 dev eth0; done
		rdma link add %[1]s0 type %[1]s netdev eth0`, driver, modules[driver]))
	for _, test := range []string{"TestDatagrams", "TestExactOutcomes", "TestPeerKilled"} {
		t.Run(test, func(t *testing.T) {
			out := l.A.Run(t, 5*time.Minute, fmt.Sprintf(`
				export E2E_BIN=/usr/local/bin E2E_NET=10.9.0.0 E2E_TEST=%[1]s
				export E2E_ARGS="-transport verbs -tls-mode off -peers-allow $(echo 10.9.0.{1..9} | tr ' ' ,)" # each by name: all are of this host
				exec e2e.test -test.run '^%[2]s$' -test.v -test.timeout 280s`, test, strings.ReplaceAll(test, "/", "$/^")))
			if !strings.Contains(out, "--- PASS: "+test) {
				t.Errorf("%s", out)
			}
		})
	}
}
