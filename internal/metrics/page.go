package metrics

import (
	_ "embed"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/stats"
)

// The status page: its own files, and uPlot, which draws the charts. It loads nothing else.
var (
	//go:embed page.html
	pageHTML []byte
	//go:embed page.css
	pageCSS []byte
	//go:embed page.js
	pageJS []byte
	//go:embed uplot/uPlot.iife.min.js.gz
	plotJS []byte // compressed, as every browser takes it
	//go:embed uplot/uPlot.min.css
	plotCSS []byte
	//go:embed uplot/LICENSE
	plotLicense []byte
)

// PageSchema names the format of /page.json, which only grows within v1.
const PageSchema = "rdsd.page/v1"

// page is what the status page fetches every second.
type page struct {
	Schema   string            `json:"schema"`
	Time     time.Time         `json:"time"`
	Version  string            `json:"version"`
	Host     string            `json:"host"` // as uname -n has it, "" = not known
	PID      int               `json:"pid"`
	Instance ctl.ID            `json:"instance"`
	Uptime   time.Duration     `json:"uptime_ns"`
	Engine   ctl.EngineInfo    `json:"engine"`
	Counters map[string]uint64 `json:"counters"` // by their names in the mapping
	Peers    []pagePeer        `json:"peers"`    // at most MaxPeers
	More     int               `json:"more_peers"`
	Error    string            `json:"error"` // why Peers are missing, "" = they are not

	Health []ctl.Finding `json:"health"` // the worst first; empty if all is well
	// History has a row for each sample after the moment that the request names with after, in
	// unix milliseconds: its moment, then the values that Series names.
	Series  []string        `json:"series"`
	History [][]float64     `json:"history"`
	Stalls  []ctl.StallInfo `json:"stalls"` // connections with something that waits, the oldest first
	Events  []ctl.EventInfo `json:"events"` // the latest about peers, the latest first
}

const (
	pageStalls = 50
	pageEvents = 30
)

// pages serves the status page from src.
type pages struct {
	src   Source
	c     *collector
	admit asker[struct{}]

	stalls asker[[]ctl.StallInfo]
}

func (p *pages) register(mux *http.ServeMux) {
	p.admit.f = func() (struct{}, error) { return struct{}{}, p.src.Admits() }
	p.stalls.f = p.src.Stalls
	file := func(kind string, b []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind+"; charset=utf-8")
			_, _ = w.Write(b) // fails if the browser has gone
		}
	}
	mux.Handle("GET /{$}", local(file("text/html", pageHTML)))
	mux.Handle("GET /page.css", local(file("text/css", pageCSS)))
	mux.Handle("GET /page.js", local(file("text/javascript", pageJS)))
	mux.Handle("GET /uplot.js", local(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		file("text/javascript", plotJS)(w, r)
	}))
	mux.Handle("GET /uplot.css", local(file("text/css", plotCSS)))
	mux.Handle("GET /uplot-license.txt", local(file("text/plain", plotLicense)))
	mux.Handle("GET /page.json", local(p.data))
	mux.HandleFunc("GET /livez", p.health)
	mux.HandleFunc("GET /readyz", p.health)
	mux.HandleFunc("GET /healthz", p.health)
}

// local refuses a request that a browser makes in the name of another site, because that
// site's name may lead to this host. Over HTTPS a client's certificate says who asks. local
// also forbids the page to load anything from elsewhere.
func local(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		a, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if r.TLS == nil && host != "localhost" && (err != nil || !a.IsLoopback()) {
			http.Error(w, "this page is served under a loopback address or localhost only", http.StatusForbidden)
			return
		}
		s := w.Header()
		s.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		s.Set("X-Content-Type-Options", "nosniff")
		s.Set("Referrer-Policy", "no-referrer")
		s.Set("Cache-Control", "no-store")
		h(w, r)
	})
}

func (p *pages) data(w http.ResponseWriter, r *http.Request) {
	after := int64(0)
	if text := r.FormValue("after"); text != "" {
		var err error
		if after, err = strconv.ParseInt(text, 10, 64); err != nil {
			http.Error(w, "page.json: after is no number of milliseconds", http.StatusBadRequest)
			return
		}
	}
	now := time.Now()
	snap := p.src.Stats.Snapshot()
	peers, err := p.c.askPeers.ask()
	var users []ctl.User
	if err == nil {
		users, _ = p.c.askUsers.ask()
	}
	s, found := p.c.judge(now, &snap, peers, users)
	host, _ := os.Hostname()
	out := page{Schema: PageSchema, Time: now, Version: p.src.Version, Host: host, PID: s.PID, Instance: s.Instance, Uptime: s.Uptime,
		Engine: s.Engine, Counters: make(map[string]uint64, len(snap.Values)), Health: found, Peers: []pagePeer{},
		Series: seriesNames[:], History: [][]float64{}, Stalls: []ctl.StallInfo{}, Events: []ctl.EventInfo{}}
	for _, v := range snap.Values {
		out.Counters[v.Name] = v.Value
	}
	if err != nil {
		out.Error, peers = err.Error(), nil
	}
	if len(peers) > MaxPeers {
		out.More = len(peers) - MaxPeers
		peers = peers[:MaxPeers]
	}
	for i := range peers {
		out.Peers = append(out.Peers, p.src.History.of(peers[i]))
	}
	out.History = p.src.History.after(after)
	p.waiting(&out, s.Counters)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(&out)
}

// waiting adds what waits and what happened. Every process of the host can read the page, so
// nothing in it is about one user.
func (p *pages) waiting(out *page, counters ctl.CounterList) {
	nobody := ctl.View{Limit: pageEvents, May: func(uint32) bool { return false }}
	if p.src.Events != nil {
		if list, _, err := p.src.Events(nobody, 0); err == nil {
			out.Events = append(out.Events, list[max(0, len(list)-pageEvents):]...)
			slices.Reverse(out.Events)
		}
	}
	if n, _ := counters.Get(stats.QueuedMessages.String()); n == 0 || p.src.Stalls == nil {
		return // to look at all messages costs the engine time
	}
	if list, err := p.stalls.ask(); err == nil {
		out.Stalls = append(out.Stalls, list[:min(len(list), pageStalls)]...)
	}
}

// health answers whether the engine turns and processes are admitted: 200 or 503, and the
// reason in a line of JSON. A daemon that answers here has finished its start, so ready and
// alive are the same.
func (p *pages) health(w http.ResponseWriter, _ *http.Request) {
	snap := p.src.Stats.Snapshot()
	late := snap.Late(time.Now())
	h := struct {
		OK      bool          `json:"ok"`
		State   string        `json:"engine_state"`
		Late    time.Duration `json:"engine_late_ns"`
		Control string        `json:"control_error"` // "" if processes are admitted
	}{late < ctl.StallAfter && (snap.State == stats.Running || snap.State == stats.Sleeping), snap.State.String(), late, ""}
	if p.src.Admits != nil {
		if _, err := p.admit.ask(); err != nil {
			h.OK, h.Control = false, err.Error()
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !h.OK {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(h)
}
