package daemon

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/service"
)

// TestWatchdogStops: an engine that does not turn is not fed for, and is again
// when it goes on.
func TestWatchdogStops(t *testing.T) {
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "n"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", l.LocalAddr().String())
	d := startDaemonOf(t, nil, (*ipc.Conn).Peer)
	// fed counts what is heard, until count notices came or the time is up.
	fed := func(atMost int, within time.Duration) (n int) {
		l.SetReadDeadline(time.Now().Add(within))
		b := make([]byte, 1000)
		for n < atMost {
			k, err := l.Read(b)
			if err != nil {
				return n
			}
			if strings.HasPrefix(string(b[:k]), "WATCHDOG=1") {
				n++
			}
		}
		return n
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	to := service.NewNotifier(slog.New(slog.DiscardHandler))
	to.Watchdog = 300 * time.Millisecond
	done := make(chan struct{})
	go func() { defer close(done); d.reportTo(ctx, to) }()
	if n := fed(3, 30*time.Second); n != 3 {
		t.Fatalf("fed %d times", n)
	}
	stuck, goOn := make(chan struct{}), make(chan struct{})
	d.engine.Do(func() { close(stuck); <-goOn })
	<-stuck
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		snap := d.statistics.Snapshot()
		if snap.Late(time.Now()) > to.Watchdog {
			break
		}
		if time.Since(start) > 30*time.Second {
			t.Fatal("nobody notices that the engine is stuck")
		}
	}
	fed(1000, time.Millisecond) // what was said before
	if n := fed(1, 5*to.Watchdog); n != 0 {
		t.Error("fed for an engine that does not turn")
	}
	close(goOn)
	if n := fed(1, 30*time.Second); n != 1 {
		t.Error("not fed for an engine that turns again")
	}
	stop()
	<-done
}
