package preload

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

var (
	toolsDir = flag.String("preload.tools", os.Getenv("RDS_TOOLS"), "directory with rds-ping, rds-info and rds-stress, built of rds-tools; more than one with colons")
	seconds  = flag.Int("preload.seconds", 3, "how long each rds-stress runs")
)

// tools runs f for each of toolsDir. All versions of rds-tools say that they are 2.0.7, so the folder's name counts as well.
func tools(t *testing.T, f func(t *testing.T, dir string)) {
	t.Helper()
	each(t, *toolsDir, "no rds-tools: RDS_TOOLS=DIR make preload-test", func(t *testing.T, dir string) {
		help, _ := exec.Command(filepath.Join(dir, "rds-stress"), "--help").CombinedOutput()
		said := regexp.MustCompile(`rds-stress version .*`).FindString(string(help))
		if said == "" {
			t.Fatalf("%s/rds-stress says no version: %s", dir, help)
		}
		version(t, said+" in "+dir)
		f(t, dir)
	})
}

// flagSets are flags of rds-stress, of 2.0.7 and later.
var flagSets = []string{
	"-v", "-v -t 4 -d 8 -q 4096 -a 2048", "-q 100000 -v", "-o -d 16", "-z -t 2", "-v -c -M 2", "-Q 3 -v",
	"-D 65536 -v", "-D 65536 -q 1024 -t 2 -d 4 -v --rdma-use-once 1", "-D 4096 -v --rdma-use-fence 1 -I 4",
	"-D 4194304 -d 2 -v", "-D 3000000 -q 64 -a 64 -d 2 -v --rdma-use-once 1",
}

// oracleSets are those that Oracle's 2.3 has in addition, but for five that end early by themselves: --abort-after,
// --async and --reset, as on Linux (docs/kernel.md), and --sync-always-bursty without the folder /sys/module/rds.
var oracleSets = []string{
	"-q 1000000 -d 2 -v", "-q 64 -a 64 -d 32 -t 2 -v", "-R", "-V", "--show-params", "--show-perfdata", "--show-outliers 100",
	"--show-histogram", "--disable-inq -v", "--always-bursty -d 8", "--use-cong-monitor 0 -d 16 -q 8192 -v", "--cancel-sent-to",
	"-D 4096 -v", "-D 4096 -v --rdma-use-fence 0", "-D 16384 -v --rdma-use-get-mr 1",
	"-D 16384 -v --rdma-use-get-mr 1 --rdma-cache-mrs 1 -d 4", "-D 16384 -v --rdma-use-notify 1 -M 1",
	"-D 16384 -v --rdma-alignment 64 -M 2", "-D 16384 --rdma-key-o-meter -d 4", "-D 4096 -I 512 -v",
}

// TestTools runs rds-tools, unmodified, between two daemons. It needs them built in RDS_TOOLS.
func TestTools(t *testing.T) { tools(t, pingAndStress) }

func pingAndStress(t *testing.T, dir string) {
	ds := rdstest.StartDaemons(t, 2)
	t.Run("ping", func(t *testing.T) {
		for _, to := range ds {
			out := finish(t, preloaded(t, ds[0], "", filepath.Join(dir, "rds-ping"), "-I", ds[0].Addr().String(), "-c", "3", to.Addr().String()))
			if strings.Count(out, "usec") != 3 {
				t.Errorf("ping %v: %s", to.Addr(), out)
			}
		}
	})
	t.Run("stress", func(t *testing.T) {
		sets := flagSets
		if out, _ := exec.Command(filepath.Join(dir, "rds-stress"), "--help").CombinedOutput(); strings.Contains(string(out), "--always-bursty") {
			sets = slices.Concat(sets, oracleSets)
		}
		for i, args := range sets {
			t.Run(args, func(t *testing.T) { stress(t, ds, filepath.Join(dir, "rds-stress"), 4000+100*i, strings.Fields(args)) })
		}
	})
}

// TestInfo: rds-info, unmodified, prints all its tables, with what the daemon has. It needs
// rds-tools built in RDS_TOOLS.
func TestInfo(t *testing.T) { tools(t, info) }

func info(t *testing.T, dir string) {
	ds := rdstest.StartDaemons(t, 2)
	a, b := ds[0].Bind(t, ds[0].Open(t), 4100), ds[1].Bind(t, ds[1].Open(t), 4200)
	if _, err := b.SendTo(make([]byte, 1234), a.LocalAddrPort()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Wait(t.Context(), rds.WaitSet{Message: true}); err != nil {
		t.Fatal(err)
	}
	if err := ds[1].Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.SendTo(make([]byte, 4321), b.LocalAddrPort()); err != nil { // which waits now
		t.Fatal(err)
	}
	at, to := ds[0].Addr().String(), ds[1].Addr().String()
	tables := map[string]string{ // and a row of each
		"Counters": `conn_reset +\d+`, "RDS Sockets": at + ` +4100 +0\.0\.0\.0 +0 `, "RDS Connections": at + " +" + to + " +0 ",
		"Receive Message Queue": at + " +4100 +" + to + ` +4200 +\d+ +\d+ +1234`, "Send Message Queue": at + " +4100 +" + to + ` +4200 +\d+ +\d+ +4321`,
		"Retransmit Message Queue": "", "TCP Connections": "", "RDS IB Connections": at + " +" + to,
	}
	for tries := 0; ; tries++ { // until the daemon has taken in what was sent
		out := finish(t, preloaded(t, ds[0], "", filepath.Join(dir, "rds-info")))
		missing := ""
		for title, row := range tables {
			_, table, found := strings.Cut("\n"+out, "\n"+title+":\n")
			table, _, _ = strings.Cut(table, "\n\n")
			if !found || !regexp.MustCompile(row).MatchString(table) {
				missing += fmt.Sprintf("%s with %q\n", title, row)
			}
		}
		if missing == "" && strings.Contains(out, "rdsd_send_bytes") {
			return
		}
		if tries == 100 {
			t.Fatalf("rds-info printed no\n%s in\n%s", missing, out)
		}
	}
}

// stress runs rds-stress on both sides.
func stress(t *testing.T, ds []*rdstest.Daemon, path string, port int, args []string) {
	at := []string{"-p", fmt.Sprint(port), "-r"}
	passive := preloaded(t, ds[1], "", path, append(at, ds[1].Addr().String())...)
	passive.Cancel = func() error { return passive.Process.Signal(syscall.SIGTERM) }
	var log strings.Builder
	passive.Stdout, passive.Stderr = &log, &log
	if err := passive.Start(); err != nil {
		t.Fatal(err)
	}
	active := append(append(at, ds[0].Addr().String(), "-s", ds[1].Addr().String(), "-T", fmt.Sprint(*seconds), "--connect-retries", "1000"), args...)
	out := finish(t, preloaded(t, ds[0], "", path, active...))
	err := passive.Wait()
	if err != nil || !strings.Contains(out, "(average)") {
		t.Errorf("active:\n%s\npassive: %v\n%s", out, err, log.String())
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	t.Logf("%s", lines[len(lines)-1])
}
