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
func TestSelftest(t *testing.T) {
	list := os.Getenv("KERNEL_SELFTESTS")
	if list == "" {
		t.Skip("no self-tests: KERNEL_SELFTESTS=DIR make vm")
	}
	for _, dir := range filepath.SplitList(list) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			l := lab.Boot(t, lab.Config{Limit: 55 * time.Minute})
			l.A.Load(t, "veth", "rds", "rds_tcp")
			out := l.A.Run(t, 50*time.Minute, fmt.Sprintf(`
				set -e
				uname -r
				[ -e /usr/sbin/tcpdump ] || ln -s /usr/bin/tcpdump /usr/sbin/tcpdump # where the test looks for it
				time python3 -u %s/net/rds/test.py 2>&1`, dir))
			if strings.Contains(out, "FAIL") || strings.Contains(out, "not ok") || !strings.Contains(out, "Success") {
				t.Errorf("it failed")
			}
			t.Logf("%s: %s", dir, out[max(0, len(out)-2000):])
		})
	}
}
