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

// TestPauseIsNoHang: a machine or process that stood still is not an engine that hangs, and an engine that hangs is found
// as long afterwards as ever.
func TestPauseIsNoHang(t *testing.T) {
	const every, gap = time.Second, 3 * time.Second
	for _, tc := range []struct {
		name  string
		ticks []time.Duration // since the start
		want  time.Duration   // since the last gap at the last tick
	}{
		{"on time", []time.Duration{1 * every, 2 * every, 3 * every}, ever},
		{"a tick is late", []time.Duration{1 * every, 1*every + gap - 1, 4 * every}, ever},
		{"a pause", []time.Duration{1 * every, 400 * every}, 0},
		{"after a pause", []time.Duration{1 * every, 400 * every, 401 * every, 402 * every}, 2 * every},
	} {
		start := time.Unix(1000, 0)
		ran, got := awake{at: start}, time.Duration(0)
		for _, at := range tc.ticks {
			got = ran.tick(start.Add(at), gap)
		}
		if got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// ever is the longest Duration.
const ever time.Duration = 1<<63 - 1

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
