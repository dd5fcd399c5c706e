package rdstcp

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/test/vmlab/lab"
)

// TestSelftest runs the kernel's own test.py, unmodified, over the kernel's RDS/TCP, for comparison with what
// preload's TestSelftest shows of rdsd. KERNEL_SELFTESTS names tools/testing/selftests of Linux's sources, more
// than one with colons; not below /tmp, of which a lab host has its own. Its 50,000 messages take many minutes.
//
// test.py waits for ever for a message that is lost. So it is ended when it has slept for five minutes without
// waking. Then the test logs what both namespaces have in their queues, with rds-info if RDS_TOOLS has it.
func TestSelftest(t *testing.T) {
	list := os.Getenv("KERNEL_SELFTESTS")
	if list == "" {
		t.Skip("no self-tests: KERNEL_SELFTESTS=DIR make vm")
	}
	info := "rds-info"
	if tools := filepath.SplitList(os.Getenv(toolsVariable)); len(tools) > 0 {
		info = filepath.Join(tools[0], info)
	}
	for _, dir := range filepath.SplitList(list) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			l := lab.Boot(t, lab.Config{Limit: 55 * time.Minute})
			l.A.Load(t, "veth", "rds", "rds_tcp")
			out := l.A.Run(t, 50*time.Minute, fmt.Sprintf(selftest, dir, info))
			if strings.Contains(out, "FAIL") || strings.Contains(out, "not ok") || !strings.Contains(out, "Success") {
				t.Errorf("it failed")
			}
			t.Logf("%s: %s", dir, out[max(0, len(out)-8000):])
		})
	}
}

// selftest is a script with the places of the self-tests and of rds-info.
const selftest = `
	uname -r
	[ -e /usr/sbin/tcpdump ] || ln -s /usr/bin/tcpdump /usr/sbin/tcpdump # where the test looks for it
	python3 -u %s/net/rds/test.py >/run/out 2>&1 &
	p=$! was= still=0
	while kill -0 $p 2>/dev/null; do
		sleep 10
		now=$(grep ctxt /proc/$p/status)
		if [ "$now" != "$was" ]; then
			was=$now still=0
			continue
		fi
		[ $((still += 10)) -ge 300 ] || continue
		echo "stood still from second $((SECONDS - still)) on"
		for n in net0 net1; do
			echo "== $n"
			ip netns exec $n ss -tin '( sport = 16385 or dport = 16385 )'
			ip netns exec $n %s -Tcknrst
		done
		kill -9 $p
	done
	echo "ended at second $SECONDS"
	tail -n 12 /run/out`
