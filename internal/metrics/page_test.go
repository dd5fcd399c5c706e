package metrics

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/stats"
)

func get(h http.Handler, host, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", path, nil)
	r.Host = host
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestPage(t *testing.T) {
	src, b := source(t, func() ([]ctl.PeerInfo, error) {
		return []ctl.PeerInfo{{Remote: netip.MustParseAddr("10.0.0.2"), State: "up", NextTxSeq: 1 << 63}}, nil
	})
	b.C[stats.SendQueued] = 7
	b.Publish(time.Now().UnixNano())
	b.SetState(stats.Running)
	h := Handler(src)
	for path, want := range map[string]string{"/": "text/html", "/page.css": "text/css", "/page.js": "text/javascript", "/uplot.js": "text/javascript", "/uplot.css": "text/css", "/uplot-license.txt": "text/plain", "/page.json": "application/json", "/metrics": "text/plain"} {
		w := get(h, "127.0.0.1:9464", path)
		if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), want) || !strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: status %d, %v", path, w.Code, w.Header())
		}
		if packed := w.Header().Get("Content-Encoding") == "gzip"; packed != (path == "/uplot.js") {
			t.Errorf("%s: compressed %v", path, packed)
		}
		// A page of another site gets nothing, even if that site's name leads here.
		if w := get(h, "evil.example:9464", path); w.Code != 403 {
			t.Errorf("%s in another name: status %d", path, w.Code)
		}
	}
	for host, want := range map[string]int{"localhost:1": 200, "localhost": 200, "[::1]:1": 200, "127.9.9.9": 200, "10.0.0.1:1": 403, "": 403, "localhost.evil.example": 403} {
		if w := get(h, host, "/page.json"); w.Code != want {
			t.Errorf("host %q: status %d, want %d", host, w.Code, want)
		}
	}
	if w := get(h, "localhost", "/else"); w.Code != 404 {
		t.Errorf("another path: %d", w.Code)
	}
	var p page
	if err := json.Unmarshal(get(h, "localhost", "/page.json").Body.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
	if host, _ := os.Hostname(); p.Host != host || host == "" {
		t.Errorf("the page is of %q, this host is %q", p.Host, host)
	}
	if p.Schema != PageSchema || p.Version != "v1" || p.PID != 1 || p.Counters["send_queued"] != 7 || len(p.Peers) != 1 || p.Engine.State != "running" || p.Error != "" {
		t.Errorf("%+v", p)
	}
}

func TestPagePeers(t *testing.T) {
	var peers []ctl.PeerInfo
	var fail error
	src, _ := source(t, func() ([]ctl.PeerInfo, error) { return peers, fail })
	h := Handler(src)
	ask := func() (p page) {
		t.Helper()
		if err := json.Unmarshal(get(h, "localhost", "/page.json").Body.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	peers = make([]ctl.PeerInfo, MaxPeers+3)
	if p := ask(); len(p.Peers) != MaxPeers || p.More != 3 {
		t.Errorf("%d peers, %d more", len(p.Peers), p.More)
	}
	fail = errors.New("boom")
	if p := ask(); p.Peers == nil || len(p.Peers) != 0 || p.Error != "boom" {
		t.Errorf("%+v", p)
	}
}

func TestHealth(t *testing.T) {
	src, b := source(t, noPeers)
	h := Handler(src)
	for _, tc := range []struct {
		ago   time.Duration
		state stats.State
		want  int
	}{{0, stats.Running, 200}, {time.Hour, stats.Running, 503}, {0, stats.Sleeping, 200}, {stats.SleepMost, stats.Sleeping, 200}, {time.Hour, stats.Sleeping, 503}, {0, stats.Stopped, 503}, {0, stats.Starting, 503}} {
		b.Publish(time.Now().Add(-tc.ago).UnixNano())
		b.SetState(tc.state)
		for _, path := range []string{"/livez", "/readyz", "/healthz"} {
			w := get(h, "a-name-is-fine-here", path)
			var v struct {
				OK    bool   `json:"ok"`
				State string `json:"engine_state"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil || w.Code != tc.want || v.OK != (tc.want == 200) || v.State != tc.state.String() {
				t.Errorf("%s, %v since %v: status %d, %+v, %v", path, tc.state, tc.ago, w.Code, v, err)
			}
		}
	}
}

// A daemon that serves no new process is not healthy, even if its engine turns. Admits may
// say so or not return.
func TestHealthOfControl(t *testing.T) {
	src, b := source(t, noPeers)
	b.Publish(time.Now().UnixNano())
	b.SetState(stats.Running)
	var stuck sync.Mutex
	var why error
	src.Admits = func() error { stuck.Lock(); defer stuck.Unlock(); return why }
	h := Handler(src)
	look := func(want int, says string) {
		t.Helper()
		b.Publish(time.Now().UnixNano())
		if w := get(h, "localhost", "/livez"); w.Code != want || !strings.Contains(w.Body.String(), `"control_error":"`+says+`"`) {
			t.Errorf("status %d, %s; want %d, %q", w.Code, w.Body, want, says)
		}
	}
	look(200, "")
	stuck.Lock()
	look(503, errLate.Error())
	look(503, errLate.Error())
	stuck.Unlock()
	look(200, "")
	why = errors.New("full")
	look(503, "full")
}

// TestPageNames: each counter, series and field that the page shows exists.
func TestPageNames(t *testing.T) {
	counters := map[string]bool{}
	for c := range stats.NumCounters {
		counters[c.String()] = true
	}
	js := string(pageJS)
	n := 0
	for _, m := range regexp.MustCompile(`\bc => \w+\(c\.([a-z_]+)\)`).FindAllStringSubmatch(js, -1) {
		n++
		if !counters[m[1]] {
			t.Errorf("no counter %s", m[1])
		}
	}
	if n < 15 {
		t.Errorf("only %d counters found", n)
	}
	found := regexp.MustCompile(`\b[ab]: \["[^"]+", "([a-z0-9_]+)"\]`).FindAllStringSubmatch(js, -1)
	for _, m := range found {
		if !slices.Contains(seriesNames[:], m[1]) {
			t.Errorf("no series %s", m[1])
		}
	}
	if len(found) < 15 {
		t.Errorf("only %d lines found", len(found))
	}
	for what, v := range map[string]any{`\bp\.([a-z_0-9]+)`: []any{page{}, pagePeer{}}, `\bengine\.([a-z0-9_]+)`: ctl.EngineInfo{}, `\bs\.([a-z_]+_[a-z]+)`: ctl.StallInfo{}, `\be\.(time|event|level|peer|error)\b`: ctl.EventInfo{Peer: netip.IPv6Loopback()}, `\bh\.(level|text|do|who|fix|error)\b`: ctl.Finding{}} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(what).FindAllStringSubmatch(js, -1)
		for _, m := range found {
			if !strings.Contains(string(b), `"`+m[1]+`":`) && !slices.Contains([]string{"since", "last_error_at"}, m[1]) { // left out while there is none
				t.Errorf("no field %s", m[1])
			}
		}
		if len(found) < 3 {
			t.Errorf("%s: %d found", what, len(found))
		}
	}
	for _, who := range []string{ctl.WaitsForNobody, ctl.WaitsForReader, ctl.WaitsForReceiver, ctl.WaitsForConnection, ctl.WaitsForCredits, ctl.WaitsForAck, ctl.WaitsForTurn, ctl.WaitsForCopy,
		ctl.WaitsForQuota, ctl.WaitsForRoom, ctl.WaitsForOperator} {
		if !regexp.MustCompile(`["\s]` + regexp.QuoteMeta(who) + `"?: "`).MatchString(js) {
			t.Errorf("the page does not say who %q is", who)
		}
	}
	if m := regexp.MustCompile(`(?i)https?://[^"' ]*`).FindString(strings.ReplaceAll(string(pageHTML)+string(pageCSS)+js+string(plotCSS), "http://www.w3.org/2000/svg", "")); m != "" {
		t.Errorf("an asset from elsewhere: %s", m)
	}
	z, err := gzip.NewReader(bytes.NewReader(plotJS))
	if err != nil {
		t.Fatal(err)
	}
	plot, err := io.ReadAll(z)
	if err != nil || !strings.Contains(string(plotLicense), "MIT License") || !bytes.HasPrefix(plot, []byte("/*! https://github.com/leeoniya/uPlot (v")) {
		t.Errorf("uPlot has lost its licence or its version: %v", err)
	}
}

// The page says what is wrong, what waits and what happened, and nothing about one user.
func TestPageTroubles(t *testing.T) {
	src, b := source(t, func() ([]ctl.PeerInfo, error) {
		return []ctl.PeerInfo{{Remote: netip.MustParseAddr("10.0.0.2"), State: "down", QueuedMessages: 3}}, nil
	})
	asked := 0
	src.Stalls = func() ([]ctl.StallInfo, error) {
		asked++
		return make([]ctl.StallInfo, pageStalls+1), nil
	}
	src.Events = func(v ctl.View, _ uint64) (out []ctl.EventInfo, more bool, err error) {
		if v.May(0) || v.Limit > pageEvents {
			t.Errorf("%d events are asked for, of users: %v", v.Limit, v.May(0))
		}
		for i := range v.Limit {
			out = append(out, ctl.EventInfo{Seq: uint64(i + 1)})
		}
		return out, false, nil
	}
	src.Warnings = func() []string { return []string{"drained"} }
	h := Handler(src)
	ask := func() (p page) {
		t.Helper()
		b.Publish(time.Now().UnixNano())
		if err := json.Unmarshal(get(h, "localhost", "/page.json?after=5").Body.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := ask()
	if len(p.Health) != 2 || p.Health[0].Level != "error" || p.Health[1].Text != "drained" {
		t.Errorf("health: %+v", p.Health)
	}
	metrics := get(h, "localhost", "/metrics").Body.String()
	for _, f := range p.Health { // in the same words
		if !strings.Contains(metrics, `level="`+f.Level+`",text="`+f.Text+`",who="`+f.Who+`"`) {
			t.Errorf("no metric of %+v", f)
		}
	}
	if len(p.Events) != pageEvents || p.Events[0].Seq != pageEvents || p.Stalls == nil || asked != 0 {
		t.Errorf("%d events, stalls %v, asked %d times while nothing waits", len(p.Events), p.Stalls, asked)
	}
	b.C[stats.QueuedMessages] = 1
	if p = ask(); len(p.Stalls) != pageStalls || asked != 1 {
		t.Errorf("%d stalls, asked %d times", len(p.Stalls), asked)
	}
	if w := get(h, "localhost", "/page.json?after=x"); w.Code != 400 {
		t.Errorf("after=x: status %d", w.Code)
	}
}
