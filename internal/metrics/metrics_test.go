package metrics

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/stats"
)

func source(t *testing.T, peers func() ([]ctl.PeerInfo, error)) (Source, *stats.Block) {
	t.Helper()
	mem := make([]uint64, stats.Size/8)
	b, err := stats.NewBlock(mem, stats.Info{PID: 1, Start: 1_500_000_000})
	if err != nil {
		t.Fatal(err)
	}
	r, err := stats.NewReader(mem)
	if err != nil {
		t.Fatal(err)
	}
	return Source{Stats: r, Peers: peers, Users: noUsers, Version: "v1"}, b
}

// listen returns a Server at an address of its own.
func listen(t *testing.T) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return NewServer(l)
}

// scrape serves src on a real listener and returns what a scrape gets.
func scrape(t *testing.T, src Source) string {
	t.Helper()
	s := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, Handler(src), nil, slog.New(slog.DiscardHandler)) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	resp, err := http.Get("http://" + s.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v:\n%s", resp.Status, err, body)
	}
	return string(body)
}

func noPeers() ([]ctl.PeerInfo, error) { return nil, nil }
func noUsers() ([]ctl.User, error)     { return nil, nil }

func expect(t *testing.T, body string, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if !strings.Contains("\n"+body, "\n"+l+"\n") {
			t.Errorf("no line %q in\n%s", l, body)
		}
	}
}

func TestScrape(t *testing.T) {
	src, b := source(t, func() ([]ctl.PeerInfo, error) {
		return []ctl.PeerInfo{{Local: netip.MustParseAddr("127.0.0.1"), Remote: netip.MustParseAddr("127.0.0.2"), Lane: 3, Path: 1, State: "up",
			QueuedMessages: 1, QueuedBytes: 2, UnackedMessages: 3, UnackedBytes: 4, SendCredits: 5,
			Resets: 6, Retransmitted: 7, DroppedOps: 8, UnknownOps: 9, Lost: 10}}, nil
	})
	b.C[stats.SendQueued] = 12
	b.C[stats.SendBytes] = 13
	b.C[stats.Sockets] = 14
	b.C[stats.EngineLookNs] = 25_000
	b.Turn(100)
	b.Turn(1000)
	b.Turn(2_000_000)
	b.SetState(stats.Sleeping)
	b.Publish(time.Now().UnixNano())
	labels := `{lane="3",local="127.0.0.1",path="1",peer="127.0.0.2"} `
	body := scrape(t, src)
	expect(t, body,
		"rdsd_send_queued_total 12",
		"# HELP rdsd_send_queued_total Messages queued by clients.",
		"# TYPE rdsd_send_queued_total counter",
		"rdsd_send_bytes_total 13",
		"# TYPE rdsd_sockets gauge",
		"rdsd_sockets 14",
		"rdsd_start_time_seconds 1.5",
		`rdsd_engine_state{state="sleeping"} 1`,
		`rdsd_engine_state{state="running"} 0`,
		"rdsd_engine_late_seconds 0",
		"rdsd_engine_look_seconds 2.5e-05",
		"rdsd_engine_turn_max_seconds 0.002",
		`rdsd_engine_turn_seconds_bucket{le="2.56e-07"} 1`,
		`rdsd_engine_turn_seconds_bucket{le="1.024e-06"} 2`,
		`rdsd_engine_turn_seconds_bucket{le="+Inf"} 3`,
		"rdsd_engine_turn_seconds_count 3",
		"rdsd_peer_up"+labels+"1",
		"rdsd_peer_queued_messages"+labels+"1",
		"rdsd_peer_queued_bytes"+labels+"2",
		"rdsd_peer_unacked_messages"+labels+"3",
		"rdsd_peer_unacked_bytes"+labels+"4",
		"rdsd_peer_send_credits"+labels+"5",
		"rdsd_peer_resets_total"+labels+"6",
		"rdsd_peer_retransmitted_messages_total"+labels+"7",
		"rdsd_peer_dropped_ops_total"+labels+"8",
		"rdsd_peer_unknown_ops_total"+labels+"9",
		"rdsd_peer_lost_messages_total"+labels+"10",
		"rdsd_metrics_truncated_peers 0",
		`rdsd_collector_errors_total{collector="peers"} 0`,
	)
	if !strings.Contains(body, `rdsd_build_info{go="go`) || !strings.Contains(body, "go_goroutines ") || !strings.Contains(body, "process_open_fds ") {
		t.Error("no build info, no Go or no process metrics")
	}
	if n := len(regexp.MustCompile(`(?m)^[^#]`).FindAllString(body, -1)); n > 400 {
		t.Errorf("%d series, at most 400 are meant to be", n)
	}
}

func TestPeersAreCapped(t *testing.T) {
	const n = MaxPeers + 44
	src, _ := source(t, func() ([]ctl.PeerInfo, error) {
		var peers []ctl.PeerInfo
		for i := n - 1; i >= 0; i-- {
			peers = append(peers, ctl.PeerInfo{Remote: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}),
				Local: netip.AddrFrom4([4]byte{10, 1, 0, 1}), State: "up", Resets: 2})
		}
		return peers, nil
	})
	body := scrape(t, src)
	if got := strings.Count(body, "\nrdsd_peer_up{"); got != MaxPeers+1 {
		t.Errorf("%d peers, want %d and the others", got, MaxPeers)
	}
	expect(t, body,
		`rdsd_peer_up{lane="0",local="10.1.0.1",path="0",peer="10.0.0.0"} 1`,
		`rdsd_peer_up{lane="0",local="10.1.0.1",path="0",peer="10.0.0.255"} 1`,
		`rdsd_peer_up{lane="",local="",path="",peer="other"} 44`,
		`rdsd_peer_resets_total{lane="",local="",path="",peer="other"} 88`,
		"rdsd_metrics_truncated_peers 44")
	if strings.Contains(body, `peer="10.0.1.0"`) {
		t.Error("a peer beyond the cap has series of its own")
	}
}

func TestUsers(t *testing.T) {
	quota := uint64(7)
	src, _ := source(t, noPeers)
	src.Users = func() ([]ctl.User, error) {
		users := []ctl.User{{UID: new(uint32(0)), Sockets: ctl.Usage{Used: 3}}}
		for uid := uint32(MaxUsers + 2); uid > 0; uid-- {
			users = append(users, ctl.User{UID: new(uid), Sockets: ctl.Usage{Used: 5, Quota: &quota}, QueuedBytes: ctl.Usage{Used: 6}})
		}
		return users, nil
	}
	body := scrape(t, src)
	expect(t, body,
		`rdsd_user_used{account="",resource="sockets",uid="0"} 3`,
		`rdsd_user_quota{account="",resource="sockets",uid="0"} +Inf`,
		`rdsd_user_used{account="",resource="sockets",uid="1"} 5`,
		`rdsd_user_quota{account="",resource="sockets",uid="1"} 7`,
		`rdsd_user_used{account="",resource="queued_bytes",uid="31"} 6`,
		`rdsd_user_used{account="",resource="sockets",uid="other"} 15`,
		"rdsd_metrics_truncated_users 3",
		`rdsd_collector_errors_total{collector="users"} 0`)
	if n := strings.Count(body, "\nrdsd_user_used{"); n != (MaxUsers+1)*len(userResources) {
		t.Errorf("%d series of usage", n)
	}
	if strings.Contains(body, `uid="32"`) {
		t.Error("a user beyond the cap has series of its own")
	}
	src.Users = func() ([]ctl.User, error) {
		return []ctl.User{{Account: "pod7", Sockets: ctl.Usage{Used: 2, Quota: &quota}}, {UID: new(uint32(0))}}, nil
	}
	expect(t, scrape(t, src), `rdsd_user_used{account="pod7",resource="sockets",uid=""} 2`, `rdsd_user_quota{account="pod7",resource="sockets",uid=""} 7`,
		`rdsd_user_used{account="",resource="sockets",uid="0"} 0`, "rdsd_metrics_truncated_users 0")
	src.Users = func() ([]ctl.User, error) { return nil, errors.New("no") }
	expect(t, scrape(t, src), `rdsd_collector_errors_total{collector="users"} 1`, `rdsd_collector_errors_total{collector="peers"} 0`)
}

// TestTLS: the scrape has the refused handshakes by reason, and the certificate's end if
// there is a certificate.
func TestTLS(t *testing.T) {
	src, _ := source(t, noPeers)
	state := ctl.TLS{Secured: 5, Failed: 6, Plain: 7, Limited: 8}
	src.TLS = func() ctl.TLS { return state }
	body := scrape(t, src)
	expect(t, body,
		"rdsd_tls_handshakes_total 5",
		`rdsd_tls_handshakes_refused_total{reason="certificate"} 6`,
		`rdsd_tls_handshakes_refused_total{reason="plain"} 7`,
		`rdsd_tls_handshakes_refused_total{reason="limited"} 8`)
	if strings.Contains(body, "\nrdsd_tls_certificate") {
		t.Error("a certificate that is not there expires")
	}
	state.Expires = time.Unix(1<<31, 0)
	expect(t, scrape(t, src), "rdsd_tls_certificate_expiry_time_seconds 2.147483648e+09")
}

func TestPeersFail(t *testing.T) {
	src, _ := source(t, func() ([]ctl.PeerInfo, error) { return nil, errors.New("no") })
	expect(t, scrape(t, src), `rdsd_collector_errors_total{collector="peers"} 1`, "rdsd_sockets 0")
}

// While the engine is stuck, the mapping's figures are served and calls do not pile up.
func TestPeersStuck(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	calls := make(chan struct{}, 10)
	src, _ := source(t, func() ([]ctl.PeerInfo, error) { calls <- struct{}{}; <-release; return nil, nil })
	c := newCollector(src)
	for range 2 {
		if _, err := c.askPeers.ask(); !errors.Is(err, errLate) {
			t.Fatalf("stuck: %v", err)
		}
	}
	if len(calls) != 1 {
		t.Errorf("%d calls under way, want 1", len(calls))
	}
	release <- struct{}{}
	if _, err := c.askPeers.ask(); err != nil {
		t.Errorf("the late answer: %v", err)
	}
}

// Each word of the mapping has help, and all series have names and units that Prometheus wants.
func TestNames(t *testing.T) {
	src, _ := source(t, noPeers)
	body := scrape(t, src)
	for c := range stats.NumCounters {
		name := "rdsd_" + strings.TrimPrefix(c.String(), "rdsd_")
		if n, ok := strings.CutSuffix(name, "_ns"); ok {
			name = n + "_seconds"
		}
		if !c.Gauge() {
			name += "_total"
		}
		expect(t, body, name+" 0", "# HELP "+name+" "+c.Help())
	}
	problems, err := promlint.New(strings.NewReader(body)).Lint() // as promtool check metrics
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
