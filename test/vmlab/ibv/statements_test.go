package ibv

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/test/vmlab/lab"
)

// leftOut are statements that the lab cannot show with one driver, or with both, and the reason.
var leftOut = []struct{ driver, numbers, why string }{
	{"", "9 192", "65,534 sockets, and 140,000 messages, in an emulated host"},
	{"", "10 42 68", "at 127.0.0.1 or ::1, which are no device's"},
	{"", "50 104", "with MSG_ZEROCOPY, which is EOPNOTSUPP on a device, as on the kernel's"},
	{"", "96 106 110 111 113 114 115", "hold RDMA up by stopping the peer's daemon, without which a device serves it"},
	{"", "98 99 103", "with a peer that is no device's"},
	{"", "102", "masked atomics, too, which no such device has"},
	{"siw", "32 36 43 44 45 58 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 97 100 101 105 107 108 109 112 116 117",
		"register memory by the kernel's calls, which counts from 0: siw has no such region (docs/verbs.md, OwnAddress)"},
}

// least is the least number of statements that must pass.
var least = map[string]int{"rxe": 100, "siw": 60}

var statementLine = regexp.MustCompile(`(?m)^\s+\S+:\d+: (\d+)\t[kr]\t(\w+)\t`)

// TestStatements runs the statements of test/conformance that sockets of two daemons prove, with
// the daemons on an RDMA device.
func TestStatements(t *testing.T) {
	long(t)
	for _, driver := range []string{"rxe", "siw"} {
		t.Run(driver, func(t *testing.T) {
			const limit = 20 * time.Minute
			l := lab.Boot(t, lab.Config{MemMiB: 2560, Limit: limit + 3*time.Minute})
			l.Install(t, lab.Build(t, "cmd/rdsd", "-tags=ibv"), lab.BuildTest(t, "test/conformance"))
			var skip []string
			for _, o := range leftOut {
				if o.driver == "" || o.driver == driver {
					skip = append(skip, strings.Fields(o.numbers)...)
				}
			}
			out := l.A.Run(t, limit, fmt.Sprintf(`
				set -e
				lab_load %[2]s rdma_ucm ib_uverbs
				for i in $(seq 254); do echo addr add 10.9.1.$i/16 dev eth0; echo addr add 10.9.2.$i/16 dev eth0; done | ip -batch -
				rdma link add %[1]s0 type %[1]s netdev eth0
				export RDS_CONFORMANCE_BIN=/usr/local/bin RDS_CONFORMANCE_NET=10.9.1.0
				# by address, as a network does not allow a host itself
				export RDS_CONFORMANCE_ARGS="-transport verbs -tls-mode off -peers-allow $(seq -f 10.9.1.%%g -s, 254),$(seq -f 10.9.2.%%g -s, 254)"
				exec conformance.test -test.run TestStatements -test.v -test.parallel 1 -test.timeout %[3]v -test.skip '/./^(%[4]s)_' %[5]s`,
				driver, modules[driver], limit-time.Minute, strings.Join(skip, "|"), os.Getenv("RDSD_VMLAB_ARGS")))
			count := map[string]int{}
			for _, m := range statementLine.FindAllStringSubmatch(out, -1) {
				count[m[2]]++
			}
			t.Logf("%v, left out %v", count, skip)
			if count["pass"] < least[driver] || count["FAIL"] > 0 {
				t.Errorf("%s", out)
			}
		})
	}
}
