package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/failpoint"
)

// TestImageUpgrade runs the image of a release with OCI runtimes, on two nodes, as the manifests say, and
// replaces the daemons' containers under traffic. Clients in containers and outside lose nothing and get
// nothing twice. A new container that is killed, or an old one that has no part any more, is noticed by nobody.
func TestImageUpgrade(t *testing.T) {
	needNetHosts(t)
	for _, tool := range []string{"make", "umoci"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed: apt-get install -y --no-install-recommends %[1]s", tool)
		}
	}
	// The later release can be stopped while it takes over.
	earlier, later := newImage(t, "9.9.8", ""), newImage(t, "9.9.9", "failpoints")
	for _, name := range []string{"crun", "runc"} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(name); err != nil {
				t.Skipf("%s is not installed: apt-get install -y --no-install-recommends %[1]s", name)
			}
			testImageUpgrade(t, newOCINodes(t, name), earlier, later)
		})
	}
}

func testImageUpgrade(t *testing.T, nodes [2]*ociNode, earlier, later *image) {
	first := nodes[0].client(earlier, true, "version")
	if !first.Wait(patience) || first.Code() != 0 {
		for _, of := range []string{"cgroup", "not permitted", "ermission denied"} {
			if first.Stderr.Has(of) {
				t.Skipf("containers of %s are not permitted here: %s", nodes[0].runtime[0], &first.Stderr)
			}
		}
		t.Fatalf("rdsctl version in a container: %s", &first.Stderr)
	}
	// One daemon ends when it is replaced, the other one stays, as in a cluster.
	stays, ends := func(*manifest) {}, without("-stay")
	for i, edit := range []func(*manifest){ends, stays} {
		n := nodes[i]
		n.now = n.daemon(earlier, edit)
		n.now.saw("starts as usual")
		n.now.saw("msg=serving")
		t.Cleanup(n.finish)
	}
	a, b := nodes[0], nodes[1]
	s := startStress(t, a, b, earlier)
	l := startLoad(t, a.host, b.host, 20000)
	progress := func() {
		t.Helper()
		l.progress(50)
		s.progress(500)
	}
	progress()

	next := a.daemon(later, ends, stopping(failpoint.Taking))
	eventually(t, "an attempt", func() error {
		if !a.status().Upgrade.Running {
			return errors.New("none")
		}
		return nil
	})
	progress() // the daemon serves while the other one takes over
	next.kill("KILL")
	next.ends(137)
	eventually(t, "the daemon goes on", func() error {
		if u := a.status().Upgrade; u.Running || u.Generation != 1 || u.Error == "" || !a.now.Alive() {
			return fmt.Errorf("%+v", u)
		}
		return nil
	})
	progress()

	a.refuses(a.daemon(later, without("-take-over")), "a daemon (outside this pid namespace) is running there; stop it, replace it with -take-over")
	a.refuses(a.daemon(later, func(m *manifest) { as := &m.Containers[0].SecurityContext; as.RunAsUser, as.RunAsGroup = 10001, 10001 }),
		"run the new daemon as the user and group of the daemon there")

	a.takenBy(a.daemon(later, ends)) // the container before ends with status 0
	progress()
	next = b.daemon(later, stays)
	next.saw(`msg="upgrade done"`)
	b.now.saw("does nothing any more and waits for SIGTERM")
	progress()
	b.now.kill("KILL")
	b.now.ends(137)
	b.now = next
	progress()

	s.finish()
	l.finish()
	l.audit.all(t, l.socks[0], l.socks[1])
	for i, n := range nodes {
		st := n.status()
		if st.Version != "v9.9.9" || st.Upgrade.Generation != 2 || st.Upgrade.From != "v9.9.8" {
			t.Errorf("node %d: %s, %+v", i, st.Version, st.Upgrade)
		}
	}
	server := b.client(later, true, "bench", "-serve")
	server.saw("serving at")
	bench := a.client(earlier, true, "bench", "-mode", "rtt", "-verify", "-d", "50ms", "-warmup", "0s", b.addr().String())
	bench.ends(0)
	server.kill("INT")
	server.ends(0)
}

// stress is rdsctl stress in two containers.
type stress struct {
	t       *testing.T
	on      *ociNode
	active  *container
	passive *container
}

func startStress(t *testing.T, a, b *ociNode, i *image) *stress {
	t.Helper()
	s := &stress{t: t, on: a}
	s.passive = b.client(i, false, "stress", "-r", b.addr().String())
	s.passive.saw("waiting for incoming connection")
	s.active = a.client(i, false, "stress", "-s", b.addr().String(), "-r", a.addr().String(), "-t", "2", "-d", "2", "-q", "8192", "-D", "16k", "-v", "--async")
	return s
}

// received counts what the clients' sockets on a node have received.
func (s *stress) received() (n uint64) {
	s.t.Helper()
	r, err := s.on.ask(ctl.Request{Kind: ctl.KindSockets})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, k := range r.Sockets {
		if k.Owner.UID == 10001 {
			n += k.Received
		}
	}
	return n
}

// progress waits until n more messages have got through.
func (s *stress) progress(n uint64) {
	s.t.Helper()
	at := s.received()
	eventually(s.t, "progress of rdsctl stress", func() error {
		if !s.active.Alive() || !s.passive.Alive() {
			s.t.Fatalf("rdsctl stress has ended:\n%s%s\n%s%s", &s.active.Stdout, &s.active.Stderr, &s.passive.Stdout, &s.passive.Stderr)
		}
		if got := s.received() - at; got < n {
			return fmt.Errorf("%d messages of %d", got, n)
		}
		return nil
	})
}

// finish ends the test as Ctrl-C does.
func (s *stress) finish() {
	s.t.Helper()
	s.active.kill("INT")
	for _, c := range []*container{s.active, s.passive} {
		c.ends(0)
		if out := c.Stdout.String(); !strings.Contains(out, "(average)") {
			s.t.Errorf("rdsctl stress:\n%s", out)
		}
	}
}
