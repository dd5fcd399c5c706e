package metrics

import (
	_ "embed"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/stats"
)

// The status page: three files, no other assets.
var (
	//go:embed page.html
	pageHTML []byte
	//go:embed page.css
	pageCSS []byte
	//go:embed page.js
	pageJS []byte
)

// PageSchema names the format of /page.json, which only grows within v1.
const PageSchema = "rdsd.page/v1"

// page is what the status page fetches every second.
type page struct {
	Schema   string            `json:"schema"`
	Time     time.Time         `json:"time"`
	Version  string            `json:"version"`
	PID      int               `json:"pid"`
	Instance ctl.ID            `json:"instance"`
	Uptime   time.Duration     `json:"uptime_ns"`
	Engine   ctl.EngineInfo    `json:"engine"`
	Counters map[string]uint64 `json:"counters"` // by their names in the mapping
	Peers    []ctl.PeerInfo    `json:"peers"`    // at most MaxPeers
	More     int               `json:"more_peers"`
	Error    string            `json:"error"` // why Peers are missing, "" = they are not
}

// pages serves the status page from src.
type pages struct {
	src   Source
	peers *asker[[]ctl.PeerInfo]
	admit asker[struct{}]
}

func (p *pages) register(mux *http.ServeMux) {
	p.admit.f = func() (struct{}, error) { return struct{}{}, p.src.Admits() }
	file := func(kind string, b []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind+"; charset=utf-8")
			_, _ = w.Write(b) // fails if the browser has gone
		}
	}
	mux.Handle("GET /{$}", local(file("text/html", pageHTML)))
	mux.Handle("GET /page.css", local(file("text/css", pageCSS)))
	mux.Handle("GET /page.js", local(file("text/javascript", pageJS)))
	mux.Handle("GET /page.json", local(p.data))
	mux.HandleFunc("GET /livez", p.health)
	mux.HandleFunc("GET /readyz", p.health)
	mux.HandleFunc("GET /healthz", p.health)
}

// local refuses a request that a browser makes in the name of another site, because that
// site's name may lead to this host. It also forbids the page to load anything from
// elsewhere.
func local(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		a, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if host != "localhost" && (err != nil || !a.IsLoopback()) {
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

func (p *pages) data(w http.ResponseWriter, _ *http.Request) {
	now := time.Now()
	snap := p.src.Stats.Snapshot()
	var s ctl.Status
	s.Fill(&snap, now)
	out := page{Schema: PageSchema, Time: now, Version: p.src.Version, PID: s.PID, Instance: s.Instance, Uptime: s.Uptime,
		Engine: s.Engine, Counters: make(map[string]uint64, len(snap.Values)), Peers: []ctl.PeerInfo{}}
	for _, v := range snap.Values {
		out.Counters[v.Name] = v.Value
	}
	if peers, err := p.peers.ask(); err != nil {
		out.Error = err.Error()
	} else if out.Peers = append(out.Peers, peers...); len(out.Peers) > MaxPeers {
		out.More = len(out.Peers) - MaxPeers
		out.Peers = out.Peers[:MaxPeers]
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(&out)
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
