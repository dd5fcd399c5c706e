package e2e

import (
	"errors"
	"fmt"
	"os/exec"
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
	first := nodes[0].client(earlier, "version")
	if !first.Wait(patience) || first.Code() != 0 {
		for _, of := range []string{"cgroup", "not permitted"} {
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
	c := startBenches(t, a, b, earlier)
	l := startLoad(t, a.host, b.host, 20000)
	progress := func() {
		t.Helper()
		l.progress(50)
		c.progress(500)
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

	c.finish()
	l.finish()
	l.audit.all(t, l.socks[0], l.socks[1])
	for i, n := range nodes {
		st := n.status()
		if st.Version != "v9.9.9" || st.Upgrade.Generation != 2 || st.Upgrade.From != "v9.9.8" {
			t.Errorf("node %d: %s, %+v", i, st.Version, st.Upgrade)
		}
	}
}

// benches are rdsctl bench in containers: a server on one node, and clients on the other one that check every byte.
type benches struct {
	t       *testing.T
	on      *ociNode
	server  *container
	clients []*container
}

func startBenches(t *testing.T, on, to *ociNode, i *image) *benches {
	t.Helper()
	b := &benches{t: t, on: on, server: to.client(i, "bench", "-serve")}
	b.server.saw("serving at")
	for _, mode := range []string{"rate", "rtt"} {
		b.clients = append(b.clients, on.client(i, "bench", "-mode", mode, "-size", "8192", "-rate", "2000", "-verify", "-d", "0", "-warmup", "0", to.addr().String()))
	}
	return b
}

// progress waits until each client has sent n more messages.
func (b *benches) progress(n uint64) {
	b.t.Helper()
	at := b.sent()
	eventually(b.t, "progress of rdsctl bench", func() error {
		for _, c := range b.clients {
			if !c.Alive() {
				b.t.Fatalf("rdsctl bench has ended:\n%s%s", &c.Stdout, &c.Stderr)
			}
		}
		now, count := b.sent(), 0
		for port, sent := range now {
			if sent >= at[port]+n {
				count++
			}
		}
		if count < len(b.clients) {
			return fmt.Errorf("sent by port: %v, before: %v", now, at)
		}
		return nil
	})
}

// sent counts what the clients' sockets have sent, by port.
func (b *benches) sent() map[uint16]uint64 {
	b.t.Helper()
	r, err := b.on.ask(ctl.Request{Kind: ctl.KindSockets})
	if err != nil {
		b.t.Fatal(err)
	}
	all := map[uint16]uint64{}
	for _, s := range r.Sockets {
		if s.Owner.UID == 10001 {
			all[s.Port] = s.Sent
		}
	}
	return all
}

// finish ends the clients as Ctrl-C does.
func (b *benches) finish() {
	b.t.Helper()
	for _, c := range b.clients {
		c.kill("INT")
		c.ends(0)
		if !c.Stdout.Has("none lost, twice, out of order or corrupt") {
			b.t.Errorf("rdsctl bench:\n%s%s", &c.Stdout, &c.Stderr)
		}
	}
	b.server.kill("INT")
	b.server.ends(0)
}
