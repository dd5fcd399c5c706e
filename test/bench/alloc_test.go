package main

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/daemon"
	"github.com/rdsd/rdsd/rds"
)

// startEmbedded runs a daemon in this process until the test ends.
func startEmbedded(t *testing.T, socket, addr string, port int) {
	t.Helper()
	cfg := config.Default()
	for k, v := range map[string]string{"socket": socket, "listen": addr, "port": strconv.Itoa(port)} {
		if err := cfg.Set(k, v); err != nil {
			t.Fatal(err)
		}
	}
	if err := cfg.Finish(os.Getuid(), os.Getenv); err != nil {
		t.Fatal(err)
	}
	d, err := daemon.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

func bind(t *testing.T, socket, addr string) *rds.Socket {
	t.Helper()
	c, err := rds.Open(context.Background(), rds.Options{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s, err := c.Bind(netip.MustParseAddrPort(addr))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestMallocsPerMessage runs two daemons and two clients in one process, so that it counts the
// allocations of everything that a message passes through. None of that may allocate. The bound
// leaves room for structures of the runtime (goroutines, timers) and for queues that reach a new
// length.
func TestMallocsPerMessage(t *testing.T) {
	dir, err := os.MkdirTemp("", "rdsd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	sockets := [2]string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	startEmbedded(t, sockets[0], "127.0.0.1", port)
	startEmbedded(t, sockets[1], "127.0.0.2", port)
	from, to := bind(t, sockets[0], "127.0.0.1:4000"), bind(t, sockets[1], "127.0.0.2:4000")
	out, in := messages(sendBatch, smallMessage, to.LocalAddrPort()), room(sendBatch, smallMessage)
	transfer := func(total int) {
		failed := make(chan error, 1)
		go func() {
			for n := 0; n < total; n += len(out) {
				if _, err := from.SendBatch(context.Background(), out); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
		for n := 0; n < total; {
			k, err := to.RecvBatch(context.Background(), in)
			if err != nil {
				t.Fatal(err)
			}
			n += k
		}
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	count := 1 << 21
	if testing.Short() || raceEnabled {
		count = 1 << 17
	}
	transfer(count / 8) // so that the pools are full
	before := mallocs()
	transfer(count)
	per := float64(mallocs()-before) / float64(count)
	t.Logf("%.5f allocations per message", per)
	if per > 0.001 && !raceEnabled { // the race detector allocates
		t.Errorf("%.5f allocations per message, want nearly 0", per)
	}
}
