package page

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/daemon"
	"github.com/rdsd/rdsd/internal/test/loopback"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

// browse loads url, lets the page's clock run, and returns the document as it is then.
func browse(t *testing.T, chromium, url string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	all := append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--hide-scrollbars", "--user-data-dir=" + t.TempDir(), "--window-size=1280,1000"}, args...)
	cmd := exec.CommandContext(ctx, chromium, append(all, url)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, &errs)
	}
	return out.String()
}

// watchedDaemon runs a daemon with a status page, and returns its URL and a
// socket.
func watchedDaemon(t *testing.T) (string, *rds.Socket) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // the port is free now, and nobody else is likely to take it
	dir, err := os.MkdirTemp("", "rdsd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := config.Default()
	c.Socket, c.Stats, c.Metrics.Listen = dir+"/s", dir+"/s.stats", l.Addr().(*net.TCPAddr).AddrPort()
	addrs, err := loopback.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { addrs.Close() })
	c.Listen = []netip.Addr{addrs.At(1)}
	d, err := daemon.New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	client, err := rds.Open(t.Context(), rds.Options{Socket: c.Socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	s, err := client.Bind(netip.AddrPortFrom(c.Listen[0], 4000))
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + c.Metrics.Listen.String() + "/", s
}

// traffic sends messages back and forth until the test ends.
func traffic(t *testing.T, a, b *rds.Socket) {
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() { stop(); wg.Wait() })
	for _, s := range []*rds.Socket{a, b} {
		wg.Go(func() {
			buf := make([]byte, 4096)
			for ctx.Err() == nil {
				_ = s.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
				if n, from, err := s.RecvFrom(buf); err == nil {
					_, _ = s.SendTo(buf[:n], from)
				}
			}
		})
	}
	for range 8 {
		if _, err := a.SendTo(make([]byte, 1000), b.LocalAddrPort()); err != nil {
			t.Fatal(err)
		}
	}
}

// drawable waits until there is enough to draw: the browser's clock runs ahead of the daemon's.
func drawable(t *testing.T, url string) {
	t.Helper()
	for {
		var p struct{ History [][]float64 }
		r, err := http.Get(url + "page.json")
		if err == nil {
			err = json.NewDecoder(r.Body).Decode(&p)
			r.Body.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(p.History) > 2 {
			return
		}
		time.Sleep(100 * time.Millisecond) // the history goes by the clock
	}
}

func TestPage(t *testing.T) {
	chromium := os.Getenv("RDSD_CHROMIUM")
	if chromium == "" {
		t.Skip("no browser: make page")
	}
	url, watched := watchedDaemon(t)
	other := rdstest.StartDaemons(t, 1)[0]
	traffic(t, watched, other.Bind(t, other.Open(t), 0))

	drawable(t, url)
	doc := browse(t, chromium, url, "--virtual-time-budget=12000", "--dump-dom")
	host, _ := os.Hostname()
	for _, want := range []string{"<title>rdsd on " + host + "</title>", `<td class="up">up</td>`, other.Addr().String() + "</td>", "1 of 1 up", `<figure aria-label="Messages">`, `<figure aria-label="Messages acked in">`,
		"<dt>clients</dt><dd>1</dd>", `<li class="ok">all is well</li>`, `<section id="backlog"`, "Nothing in ten minutes: RDMA,"} {
		if !strings.Contains(doc, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if !regexp.MustCompile(`; engine (running|sleeping), turns p99 below [0-9.]+ `).MatchString(doc) {
		t.Error("the page does not say how the engine is")
	}
	if !regexp.MustCompile(`<p id="trouble" role="alert" hidden="">`).MatchString(doc) {
		t.Error("the page sees trouble")
	}
	// uPlot has drawn, the legend has a rate, and the chart of RDMA has collapsed.
	if !regexp.MustCompile(`aria-label="Messages">.*?<b>[0-9.]+[kM]?/s</b>.*?<canvas`).MatchString(doc) {
		t.Error("no chart of messages")
	}
	if !strings.Contains(doc, `<figure aria-label="RDMA" hidden="">`) {
		t.Error("an empty chart is shown")
	}
	if !regexp.MustCompile(`<td class="n">[0-9.]+ (\x{b5}s|ms|s)</td>`).MatchString(doc) {
		t.Error("no round-trip time")
	}
	if strings.Contains(doc, "NaN") || strings.Contains(doc, "undefined") {
		t.Error("the page shows what is no number")
	}

	if shot := os.Getenv("RDSD_SCREENSHOT"); shot != "" {
		browse(t, chromium, url, "--virtual-time-budget=20000", "--screenshot="+shot)
		if fi, err := os.Stat(shot); err != nil || time.Since(fi.ModTime()) > time.Minute {
			t.Errorf("no new screenshot: %v", err)
		}
	}
}
