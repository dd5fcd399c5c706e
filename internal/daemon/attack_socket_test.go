package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/test/loopback"
	"golang.org/x/sys/unix"
)

// startDaemon runs a whole daemon until the test ends.
func startDaemon(t testing.TB, edit func(*config.Config)) *Daemon {
	t.Helper()
	return startDaemonOf(t, edit, (*ipc.Conn).Peer)
}

// startDaemonOf is startDaemon with something else than the kernel's word on
// whose a connection is.
func startDaemonOf(t testing.TB, edit func(*config.Config), credOf func(*ipc.Conn) ipc.Cred) *Daemon {
	t.Helper()
	return startDaemonWith(t, edit, func(d *Daemon) { d.credOf = credOf })
}

// startDaemonWith is startDaemon with a daemon that set changes before it runs.
func startDaemonWith(t testing.TB, edit func(*config.Config), set func(*Daemon)) *Daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "rds")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cfg := config.Default()
	cfg.Socket, cfg.Stats = filepath.Join(dir, "s"), filepath.Join(dir, "s.stats")
	if edit != nil {
		edit(&cfg)
	}
	net, err := loopback.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { net.Close() })
	cfg.Listen = []netip.Addr{net.At(1)}
	d, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	set(d)
	runDaemon(t, d)
	return d
}

// runDaemon runs d until the test ends.
func runDaemon(t testing.TB, d *Daemon) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("does not shut down")
		}
	})
}

func dial(t *testing.T, d *Daemon) *ipc.Client {
	t.Helper()
	c, err := ipc.Dial(context.Background(), d.config().Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestSilentConnections: connections that say nothing, and more rdsctl than
// anybody needs, keep no process out.
func TestSilentConnections(t *testing.T) {
	d := startDaemon(t, func(c *config.Config) { c.Limits.MaxClients = 2 })
	for range 3 * maxSilent {
		dial(t, d)
	}
	refused := 0
	for range maxCtlers + 10 {
		if _, _, err := dial(t, d).Call(&ipc.Hello{Role: ipc.RoleCtl}, nil); errors.Is(err, unix.EUSERS) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if refused != 10 {
		t.Errorf("%d rdsctl refused, want 10", refused)
	}
	hello := func() error {
		_, fds, err := dial(t, d).Call(&ipc.Hello{Role: ipc.RoleClient, Params: fewParams}, nil)
		for _, fd := range fds {
			unix.Close(fd)
		}
		return err
	}
	for i := range 3 {
		if err := hello(); (i < 2) != (err == nil) || i == 2 && !errors.Is(err, unix.EUSERS) {
			t.Errorf("process %d: %v", i, err)
		}
	}
}

// TestKillWhileGrowing: the engine ends clients in the middle of calls that
// hand over descriptors, again and again; what is given back is what was taken.
func TestKillWhileGrowing(t *testing.T) {
	d := startDaemon(t, nil)
	for range 30 {
		c := dial(t, d)
		resp, fds, err := c.Call(&ipc.Hello{Role: ipc.RoleClient, Params: fewParams}, nil)
		if err != nil {
			t.Fatal(err)
		}
		m, err := shm.MapFD(fds[0], shm.SegmentSize(resp.(*ipc.HelloOK).Params), true)
		if err != nil {
			t.Fatal(err)
		}
		seg, err := shm.OpenSegment(m.Mem)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
			*seg.SubProducer().Reserve() = shm.Entry{} // no such kind
			seg.SubProducer().Publish()
			shm.Ring(fds[2])
		}()
		for {
			_, got, err := c.Call([]ipc.Request{&ipc.GrowSend{}, &ipc.Alloc{Size: 1 << 20}}[rand.IntN(2)], nil)
			for _, fd := range got {
				unix.Close(fd)
			}
			if errors.Is(err, unix.ENOBUFS) {
				continue
			}
			if err != nil {
				if !errors.Is(err, unix.ECONNABORTED) {
					t.Error(err)
				}
				break
			}
		}
		<-c.Gone()
		for _, fd := range fds {
			unix.Close(fd)
		}
		m.Close()
	}
	eventually(t, "all is given back", func() error {
		if left := d.engine.Memory().Sum(); left.Maps != 0 {
			return fmt.Errorf("%d mappings, %d, %d bytes are left", left.Maps, left.Shared, left.Registered)
		}
		return nil
	})
}

// TestPassedDescriptors: descriptors that a client passes are closed.
func TestPassedDescriptors(t *testing.T) {
	d := startDaemon(t, nil)
	count := func() int {
		e, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(e)
	}
	before := count()
	for range 50 {
		c := dial(t, d)
		_, _, err := c.Call(&ipc.Hello{Role: ipc.RoleCtl}, []int{0, 1, 2, 0, 1, 2})
		if err == nil {
			t.Fatal("accepted")
		}
		c.Close()
	}
	eventually(t, "the descriptors are closed", func() error {
		if n := count(); n > before {
			return fmt.Errorf("%d descriptors before, %d after", before, n)
		}
		return nil
	})
}
