package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/rds"
)

// bystanders are applications of two hosts that must not notice the upgrades of one of them:
// datagrams in all directions, and operations on regions of both hosts.
type bystanders struct {
	t     *testing.T
	loads []*load
}

const (
	bystanderBytes = 3000             // the longest datagram
	bystanderPace  = time.Millisecond // between two datagrams of each of six senders
)

func startBystanders(t *testing.T, here, there *host) *bystanders {
	t.Helper()
	b := &bystanders{t: t}
	for _, way := range [][2]*host{{here, there}, {there, here}, {here, here}} {
		b.loads = append(b.loads, startLoadAt(t, way[0], way[1], bystanderBytes, bystanderPace))
	}
	b.progress()
	return b
}

// progress waits until everything gets on.
func (b *bystanders) progress() {
	b.t.Helper()
	for _, l := range b.loads {
		l.progress(20)
	}
}

// finish checks that nothing was lost, twice, out of order or unknown. Operations of peers are
// DROPPED if their connection is reset, as are those of this host that do not end in time.
func (b *bystanders) finish() {
	b.t.Helper()
	for i, l := range b.loads {
		l.finish()
		if b.t.Failed() {
			return
		}
		l.audit.all(b.t, l.socks[0], l.socks[1])
		if s := l.ops.sums; s[rds.Success] == 0 || s[rds.Success]+s[rds.Dropped] != len(l.ops.statuses) || l.ops.stale > 0 {
			b.t.Errorf("operations of load %d: %v, %d stale", i, s, l.ops.stale)
		}
	}
	b.loads[2].ops.onlySuccess(b.t) // they need no connection
}

// failing is a host whose daemon hands over to a program with fail points.
type failing struct {
	*host
	file string // what RDSD_FAIL is in the next successor
}

func newFailing(t *testing.T, options ...option) *failing {
	t.Helper()
	f := &failing{file: filepath.Join(t.TempDir(), "fail")}
	f.next("")
	f.host = newHost(t, append(options, withEnv("RDSD_FAIL=@"+f.file))...)
	f.expected = append(f.expected, "upgrade failed")
	return f
}

// next decides what fails in the next successor.
func (f *failing) next(fail string) {
	if err := os.WriteFile(f.file, []byte(fail), 0o600); err != nil {
		panic(err)
	}
}

// failingSuccessor are the arguments of an upgrade to a program with fail points.
func failingSuccessor() []string { return []string{"-binary", program("rdsd-failpoints")} }

// The hits of each fail point that fail in a successor of a daemon with bystanders and a client
// with memory of its own: while it opens everything, and while it adopts the state.
var (
	atOpening = map[string][]int{
		failpoint.Taking: {1}, failpoint.ControlSocket: {1}, failpoint.StatsFile: {1}, failpoint.Device: {1}, failpoint.ProtectionDomain: {1},
		failpoint.CompletionQueue: {1}, failpoint.ReceiveQueue: {1}, failpoint.SendPool: {1}, failpoint.ReceivePool: {1}, failpoint.Listen: {1},
		failpoint.Epoll: {1}, failpoint.Eventfd: {1}, failpoint.Watch: {1, 2},
	}
	atAdoption = map[string][]int{
		failpoint.Adopt: {1}, failpoint.Segment: {1, 4}, failpoint.Table: {1}, failpoint.SendWindow: {1}, failpoint.RecvWindow: {1},
		failpoint.DaemonDoorbell: {1}, failpoint.ClientDoorbell: {4}, failpoint.RegisterWindow: {1, 3}, failpoint.Watch: {3, 6}, failpoint.Buffer: {1, 4},
		failpoint.Import: {1}, failpoint.RegisterBuffer: {1, 4}, failpoint.RegisterRegion: {1, 2}, failpoint.Adopted: {1},
	}
)

// TestUpgradeFails makes every acquisition and every step of a successor fail, then has the
// successor killed there. The old daemon must say why and go on, and nobody may notice anything.
// The upgrade after that must succeed, and its daemon must have no more than the first one had.
func TestUpgradeFails(t *testing.T) {
	for _, kill := range []bool{false, true} {
		t.Run(map[bool]string{false: "fails", true: "killed"}[kill], func(t *testing.T) {
			isolated(t, func(t *testing.T) { testUpgradeFails(t, kill) })
		})
	}
}

func testUpgradeFails(t *testing.T, kill bool) {
	here, there := newFailing(t), newHost(t)
	importer := here.open()
	if _, err := importer.Import(ownMemory(t), 0, 1<<20); err != nil {
		t.Fatal(err)
	}
	b := startBystanders(t, here.host, there)
	before := here.holdings()
	for _, name := range failpoint.Names() {
		if atOpening[name] == nil && atAdoption[name] == nil && name != failpoint.QueuePair && name != failpoint.Process && !slices.Contains(inPredecessor, name) {
			t.Errorf("no test makes %q fail in a successor", name)
		}
		here.failIn(name, atOpening[name], kill, "hand-over: the new daemon's start: ")
		here.failIn(name, atAdoption[name], kill, "hand-over: adoption: ")
	}
	b.progress()
	after := here.holdings()
	if after.clients != before.clients || after.sockets != before.sockets || after.regions != before.regions ||
		after.registered != before.registered || after.shared != before.shared || after.mappings != before.mappings {
		t.Errorf("%+v, before %+v", after, before)
	}
	if err := before.resources.compare(after.resources, 0); err != nil {
		t.Error(err)
	}
	here.upgrade()
	b.progress()
	importer.Close()
	b.finish()
}

// failIn upgrades to a successor in which a hit of a fail point fails or kills it, for each of
// the hits. The daemon must say in which step that was.
func (f *failing) failIn(name string, hits []int, kill bool, step string) {
	f.t.Helper()
	for _, n := range hits {
		fail, says := fmt.Sprintf("%s:%d", name, n), fmt.Sprintf("fail point %q", name)
		if kill {
			fail, says = fail+"!", "the process ended (killed; its log says why)"
		}
		f.next(fail)
		f.upgradeFails(failingSuccessor(), step, says)
		if f.t.Failed() {
			f.t.Fatalf("%s: see above", fail)
		}
	}
}
