package rdstcp

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/test/vmlab/lab"
)

// toolsVariable names the folder with rds-ping, rds-info and rds-stress, built of rds-tools; more than one with
// colons.
const toolsVariable = "RDS_TOOLS"

// tools runs f for each of toolsVariable's folders, with what rds-tools need in a lab: themselves and the preload
// library, which lies beside rdsctl there. It skips the test without them.
func tools(t *testing.T, f func(t *testing.T, files []string)) {
	t.Helper()
	if os.Getenv(lab.DirVariable) == "" {
		t.Skip("needs a virtual machine: make vm")
	}
	list := os.Getenv(toolsVariable)
	if list == "" {
		t.Skip("no rds-tools: RDS_TOOLS=DIR make vm")
	}
	out := t.TempDir()
	build := exec.Command("make", "-s", "-C", "../../../preload", "OUT="+out, "all")
	if b, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build.Args, err, b)
	}
	for _, dir := range filepath.SplitList(list) {
		files := []string{filepath.Join(out, "librdsd-preload.so"), lab.Build(t, "cmd/rdsd"), lab.Build(t, "cmd/rdsctl")}
		for _, name := range []string{"rds-ping", "rds-info", "rds-stress"} {
			files = append(files, filepath.Join(dir, name))
		}
		t.Run(filepath.Base(dir), func(t *testing.T) { f(t, files) })
	}
}

// TestTools runs rds-tools under the preload library against rds-tools on the kernel's RDS/TCP.
// rds-stress checks every byte. Either side begins.
func TestTools(t *testing.T) { tools(t, pingAndStress) }

func pingAndStress(t *testing.T, files []string) {
	l := lab.Boot(t, lab.Config{Hosts: 2, Limit: 10 * time.Minute})
	p := &pair{Pair: lab.NewPair(t, l, true), l: l, timeout: 30 * time.Second, lanes: 1}
	l.Install(t, files...)
	p.K.Load(t, "rds", "rds_tcp")
	p.start()
	under := func(h *lab.Host) string {
		if h == p.R {
			return "exec rdsctl run -socket " + lab.Control + " -- "
		}
		return "exec "
	}
	p.Both(func(t *testing.T, from, to *lab.Host) {
		out := from.Run(t, time.Minute, under(from)+fmt.Sprintf("rds-ping -I %s -c 3 -i 1 %s", from.IP(), to.IP()))
		if strings.Count(out, "usec") != 3 {
			t.Errorf("rds-ping: %s", out)
		}
	})
	out := p.R.Run(t, time.Minute, under(p.R)+"rds-info -c")
	if !strings.Contains(out, "rdsd_send_bytes") {
		t.Errorf("rds-info: %s", out)
	}
	for i, flags := range []string{"-v", "-v -t 2 -d 8 -q 4096 -a 2048", "-v -q 100000 -d 2", "-o -d 16 -q 100"} {
		t.Run(flags, func(t *testing.T) {
			if testing.Short() && i > 1 {
				t.Skip("the other flags show most of it")
			}
			p.Both(func(t *testing.T, from, to *lab.Host) {
				s := stress{from: from, to: to, viaFrom: under(from), viaTo: under(to), at: from.IP(), peer: to.IP(), port: 4000 + 200*i}
				if from == p.K {
					s.port += 100
				}
				t.Log(s.run(t, 4, flags))
			})
		})
	}
}

// A stress is a run of rds-stress between two addresses.
type stress struct {
	from, to       *lab.Host
	viaFrom, viaTo string // what comes before the program's name
	at, peer       string
	port           int
}

// run runs rds-stress on both sides and returns the line of the active side's averages.
func (s *stress) run(t *testing.T, seconds int, flags string) string {
	t.Helper()
	const limit = 2 * time.Minute
	passive := s.to.Start(t, s.viaTo+fmt.Sprintf("rds-stress -p %d -r %s", s.port, s.peer))
	defer passive.Kill()
	out := s.from.Run(t, limit, s.viaFrom+fmt.Sprintf("rds-stress -p %d -r %s -s %s -T %d --connect-retries 1000 %s", s.port, s.at, s.peer, seconds, flags))
	if r := passive.Wait(limit); r.Err() != nil {
		t.Errorf("the passive side: %v", r.Err())
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := lines[len(lines)-1]
	if !strings.Contains(last, "(average)") {
		t.Fatalf("no averages:\n%s", out)
	}
	return last
}

// TestToolsRates measures rds-stress on kernel RDS/TCP and then under the preload library over
// rdsd, between two network namespaces of one host. It asserts nothing about the figures.
func TestToolsRates(t *testing.T) {
	if testing.Short() {
		t.Skip("measures")
	}
	tools(t, toolsRates)
}

func toolsRates(t *testing.T, files []string) {
	l := lab.Boot(t, lab.Config{Limit: 12 * time.Minute})
	l.Install(t, files...)
	namespaces(t, l)
	port := 4000
	measure := func(name, viaA, viaB string, more ...string) {
		for _, flags := range append([]string{"-d 1 -q 64", "-d 8 -q 64", "-d 64 -q 64", "-d 8 -q 1024", "-d 8 -q 16384"}, more...) {
			s := stress{from: l.A, to: l.A, viaFrom: "exec ip netns exec a " + viaA, viaTo: "exec ip netns exec b " + viaB, at: "10.8.0.1", peer: "10.8.0.2", port: port}
			port += 100
			t.Logf("%s: rds-stress %s: %s", name, flags, s.run(t, 5, flags))
		}
	}
	l.A.Load(t, "rds", "rds_tcp")
	measure("kernel RDS/TCP", "", "")
	l.A.Run(t, time.Minute, "rmmod rds_tcp rds; true")
	daemons(t, l)
	measure("rdsd, preload", "rdsctl run -socket /run/a -- ", "rdsctl run -socket /run/b -- ", "-D 65536 -d 8", "-D 65536 -d 8 --rdma-use-once 1")
}
