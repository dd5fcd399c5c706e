package daemon

import (
	"context"
	"fmt"
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
	// fed counts what is heard, until atMost notices came or the time is up.
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
	to := service.NewNotifier(slog.New(slog.DiscardHandler))
	to.Watchdog = 300 * time.Millisecond
	// report begins to report. It returns what ends that.
	report := func() func() {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); d.reportTo(ctx, to) }()
		return func() { stop(); <-done }
	}
	stop := report()
	if n := fed(3, patience); n != 3 {
		t.Fatalf("fed %d times", n)
	}
	stuck, goOn := make(chan struct{}), make(chan struct{})
	d.engine.Do(func() { close(stuck); <-goOn })
	<-stuck
	eventually(t, "it shows that the engine is stuck", func() error {
		snap := d.statistics.Snapshot()
		if late := snap.Late(time.Now()); late <= to.Watchdog {
			return fmt.Errorf("late by %v", late)
		}
		return nil
	})
	// A report that was decided before may be sent after the engine is late. None is once
	// its reporter has ended.
	stop()
	for fed(1, time.Millisecond) > 0 {
	}
	stop = report()
	if n := fed(1, 5*to.Watchdog); n != 0 {
		t.Error("fed for an engine that does not turn")
	}
	close(goOn)
	if n := fed(1, patience); n != 1 {
		t.Error("not fed for an engine that turns again")
	}
	stop()
}
