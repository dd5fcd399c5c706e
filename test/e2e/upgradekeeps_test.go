package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
	"golang.org/x/sys/unix"
)

// TestUpgradeTLS replaces daemons whose connections are encrypted. The new one reads the
// certificate anew.
func TestUpgradeTLS(t *testing.T) {
	isolated(t, func(t *testing.T) {
		ca := tlstest.NewCA(t)
		a, dir := newSecured(t, ca)
		b, _ := newSecured(t, ca)
		before := a.status().TLS
		ca.Write(t, dir, tlstest.IPs(a.addr().String()))
		testUpgrade(t, a, b)
		if now := a.status().TLS; now == before {
			t.Errorf("the certificate is the old one: %+v", now)
		}
		if p := b.peer(a); p.TLS == "" {
			t.Errorf("peer %+v", p)
		}
	})
}

// TestUpgradeRDSTCP replaces daemons that speak RDS/TCP with each other. Two rdsd lose nothing
// between them.
func TestUpgradeRDSTCP(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2, onTCP())
		a, b := hosts[0], hosts[1]
		s, r := a.bind(a.open(), 0), b.bind(b.open(), 0)
		audit, stop := newAudit(), make(chan struct{})
		done, sent := make(chan struct{}, 2), make(chan struct{}, 2)
		for _, x := range [][2]*rds.Socket{{s, r}, {r, s}} {
			go func() { audit.take(x[0]); done <- struct{}{} }()
			go func() { audit.stream(t, x[0], x[1].LocalAddrPort(), stop); sent <- struct{}{} }()
		}
		for i := range 4 {
			at := audit.sums().arrived
			eventually(t, "traffic", func() error {
				if n := audit.sums().arrived; n < at+200 && !t.Failed() {
					return fmt.Errorf("%d arrived after %d", n, at)
				}
				return nil
			})
			hosts[i%2].upgrade()
		}
		close(stop)
		<-sent
		<-sent
		audit.all(t, s, r)
		s.Close()
		r.Close()
		<-done
		<-done
	})
}

// TestUpgradeMemory has regions in memory that the daemon made and in memory of the process's
// own. Both go on under their cookies, can be freed, and are counted once.
func TestUpgradeMemory(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		here, there := hosts[0], hosts[1]
		c, other := here.open(), there.open()
		s, o := here.bind(c, 0), there.bind(other, 0)
		own := newMemfd(t, 1<<20)
		imported, err := c.Import(own, 8192, 65536)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(own) // the daemon has its own
		local := mustAlloc(t, other, 65536)
		var regs []*rds.Region
		for _, b := range []*rds.Buffer{imported, mustAlloc(t, c, 65536)} {
			r, err := s.Register(b, 4096, 8192, rds.AllowRead|rds.AllowWrite)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Expose(t.Context(), o.LocalAddrPort()); err != nil {
				t.Fatal(err)
			}
			regs = append(regs, r)
			fillPattern(b.Bytes()[4096:][:8192], uint64(r.Cookie()))
		}
		granted(t, s, o)
		here.published()
		bytes := here.gauge(stats.RegisteredBytes)
		for range 2 {
			here.upgrade()
			there.upgrade()
			for _, r := range regs {
				op := rds.RDMA{Cookie: r.Cookie(), Local: []rds.Segment{{Buf: local, Len: 8192}}}
				if err := o.RDMARead(t.Context(), s.LocalAddrPort(), &op); err != nil {
					t.Fatal(err)
				}
				if err := checkPattern(local.Bytes()[:8192], uint64(r.Cookie())); err != nil {
					t.Error(err)
				}
			}
		}
		if now := here.gauge(stats.RegisteredBytes); now != bytes {
			t.Errorf("%d bytes are registered, before %d", now, bytes)
		}
		if err := imported.Free(); !errors.Is(err, unix.EBUSY) {
			t.Errorf("a buffer with a region was freed: %v", err)
		}
		for _, r := range regs {
			cookie := r.Cookie()
			if err := r.Release(t.Context()); err != nil {
				t.Errorf("release: %v", err)
			}
			op := rds.RDMA{Cookie: cookie, Local: []rds.Segment{{Buf: local, Len: 8192}}}
			if err := o.RDMARead(t.Context(), s.LocalAddrPort(), &op); !errors.Is(err, rds.RemoteError) {
				t.Errorf("a read of a region that was released: %v", err)
			}
		}
		if err := imported.Free(); err != nil {
			t.Error(err)
		}
	})
}

// newMemfd makes a memory file that a daemon takes.
func newMemfd(t *testing.T, size int64) int {
	t.Helper()
	fd, err := unix.MemfdCreate("own", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err == nil {
		err = unix.Ftruncate(fd, size)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// TestUpgradeDrained: a daemon that is drained stays so. Whoever drained it sees that, and
// ends it at the new daemon.
func TestUpgradeDrained(t *testing.T) {
	isolated(t, func(t *testing.T) {
		h := newHost(t)
		c := h.open()
		s := h.bind(c, 0)
		h.rdsctl("daemon", "drain", "-wait", "0")
		send := waits("a send", func() error { _, err := s.SendTo(nil, s.LocalAddrPort()); return err })
		h.upgrades(2)
		if _, err := c.Bind(h.at(0)); !errors.Is(err, syscall.ESHUTDOWN) {
			t.Errorf("bind while the daemon is drained: %v", err)
		}
		contains(t, "rdsctl status", h.rdsctl("status"), "drained: senders wait")
		if _, err := s.Send(rds.DontWait, &rds.Message{Addr: s.LocalAddrPort()}); !errors.Is(err, rds.ErrCongested) {
			t.Errorf("a send while the daemon is drained: %v", err)
		}
		send.still(t)
		h.rdsctl("daemon", "resume")
		send.ends(t)
		if err := s.Recv(context.Background(), &rds.Received{}); err != nil {
			t.Error(err)
		}
		h.bind(c, 0)
		if out := h.rdsctl("status"); strings.Contains(out, "drained") {
			t.Errorf("after the resume: %s", out)
		}
	})
}

// TestUpgradeConfig: the new daemon reads the configuration anew. It opens the addresses that
// this names now, closes others, and applies what a reload cannot. An address with sockets
// cannot be left out.
func TestUpgradeConfig(t *testing.T) {
	isolated(t, func(t *testing.T) {
		first, second, third := newAddress(t), newAddress(t), newAddress(t)
		file := t.TempDir() + "/rdsd.toml"
		write := func(listen, metrics any, sockets int) {
			doc := fmt.Sprintf("listen = [%v]\nmetrics.listen = \"%v\"\nlimits.max_sockets = %d\n", listen, metrics, sockets)
			if err := os.WriteFile(file, []byte(doc), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		quoted := func(a ...any) string {
			return strings.TrimSuffix(fmt.Sprintf(strings.Repeat("\"%v\", ", len(a)), a...), ", ")
		}
		ports := [2]string{first.String() + ":" + freePort(t, first), second.String() + ":" + freePort(t, second)}
		write(quoted(first, second), ports[0], 100)
		h := newHost(t, withAddress(first), withArgs("-config", file), byFile())
		peer := newHost(t)
		kept, moved := bind(t, h.open(), addrPortOf(second, 0)), h.bind(h.open(), 4002)
		scrape(t, ports[0])

		write(quoted(first, third), ports[1], 100)
		h.expected = append(h.expected, "upgrade failed")
		h.upgradeFails(nil, second.String()+" is in use, and the setting listen does not name it")
		if _, err := kept.SendTo(nil, moved.LocalAddrPort()); err != nil {
			t.Error(err)
		}
		if err := moved.Recv(context.Background(), &rds.Received{}); err != nil {
			t.Error(err)
		}

		write(quoted(first, second, third), ports[1], 100)
		h.upgrade()
		h.base.sockets++ // of the third address
		scrape(t, ports[1])
		if _, err := http.Get("http://" + ports[0] + "/metrics"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("the address for metrics that is named no more: %v", err)
		}
		c := h.open()
		at := bind(t, c, addrPortOf(third, 4001))
		s := peer.bind(peer.open(), 0)
		for _, to := range []*rds.Socket{moved, kept, at} {
			if _, err := s.SendTo(nil, to.LocalAddrPort()); err != nil {
				t.Fatal(err)
			}
			if err := to.Recv(context.Background(), &rds.Received{}); err != nil {
				t.Error(err)
			}
		}
		write(quoted(first, second, third), ports[1], 2)
		h.upgrade()
		if _, err := c.Bind(h.at(0)); !errors.Is(err, syscall.ENOBUFS) {
			t.Errorf("bind with limits.max_sockets below what there is: %v", err)
		}
	})
}

// scrape reads the metrics.
func scrape(t *testing.T, at string) string {
	t.Helper()
	text, err := scraped(at)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// scraped reads the metrics by a connection of its own.
func scraped(at string) (string, error) {
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	r, err := c.Get("http://" + at + "/metrics")
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = errors.New(r.Status)
	}
	return string(b), err
}

// TestUpgradeQuotas: what a user has counts in the new daemon as in the old one, and what it
// gives back is free again.
func TestUpgradeQuotas(t *testing.T) {
	isolatedAsRoot(t, func(t *testing.T) {
		h := openToAll(t, withArgs("-quota-sockets", "2", "-quota-clients", "2", "-quota-registered-bytes", "1MiB"))
		a, b := h.startUser("attached"), h.startUser("attached")
		at := func(port uint16) string { return "bind " + h.at(port).String() }
		a.do(at(4000), "bound")
		b.do(at(4001), "bound")
		a.do("alloc 1000000", "done")
		user := func() ctl.User {
			users := h.status().Users
			i := slices.IndexFunc(users, func(u ctl.User) bool { return u.UID != nil && *u.UID == nobody })
			return users[i]
		}
		before := user()
		for range 2 {
			h.upgrade()
			if now := user(); !reflect.DeepEqual(now, before) {
				t.Errorf("the user has\n%+v, before\n%+v", now, before)
			}
			a.do(at(0), "ENOBUFS")
			b.do("alloc 100000", "ENOBUFS")
			contains(t, "a third process", h.startUser("").stdout(), "quota.clients")
		}
		a.Kill()
		eventually(t, "the end of a process", func() error {
			if n := user().Clients.Used; n != 1 {
				return fmt.Errorf("%d clients", n)
			}
			return nil
		})
		b.do(at(4000), "bound")
		b.do("alloc 1000000", "done")
		b.Kill()
	})
}
