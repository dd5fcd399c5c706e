package metrics

import (
	"encoding/json"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/rdsd/rdsd/internal/ctl"
)

// TestContrib: each name that the dashboard and the alert rules use is in a live scrape,
// with the labels that they use.
func TestContrib(t *testing.T) {
	quota := uint64(10)
	src, _ := source(t, func() ([]ctl.PeerInfo, error) {
		return []ctl.PeerInfo{{Local: netip.MustParseAddr("10.0.0.1"), Remote: netip.MustParseAddr("10.0.0.2"), State: "up", UnackedMessages: 1, OldestUnacked: time.Minute}}, nil
	})
	src.Users = func() ([]ctl.User, error) {
		return []ctl.User{{UID: new(uint32(1)), Sockets: ctl.Usage{Used: 1, Quota: &quota}}}, nil
	}
	src.TLS = func() ctl.TLS { return ctl.TLS{Expires: time.Unix(1<<31, 0)} }
	labels := map[string]string{}  // by name: the labels of its first sample
	bounds := map[string]float64{} // of buckets by name: the highest but +Inf
	sample := regexp.MustCompile(`(?m)^(rdsd_[a-z0-9_]+)(\{[^}]*?(?:le="([0-9.e+-]+)")?\})? `)
	for _, m := range sample.FindAllStringSubmatch(scrape(t, src), -1) {
		if _, ok := labels[m[1]]; !ok {
			labels[m[1]] = m[2]
		}
		if m[3] != "" {
			le, err := strconv.ParseFloat(m[3], 64)
			if err != nil {
				t.Fatal(err)
			}
			bounds[m[1]] = max(bounds[m[1]], le)
		}
	}
	quantile := regexp.MustCompile(`^histogram_quantile\(.*\b(rdsd_[a-z0-9_]+_bucket)\b.* (>=?) ([0-9.]+)$`)
	name := regexp.MustCompile(`\brdsd_[a-z0-9_]+\b`)
	label := regexp.MustCompile(`\{\{ ?(?:\$labels\.)?([a-z]+) ?\}\}`)
	check := func(where, expr, text string) {
		t.Helper()
		names := name.FindAllString(expr, -1)
		if len(names) == 0 && !strings.HasPrefix(expr, "up{") {
			t.Errorf("%s: no metric in %q", where, expr)
		}
		for _, n := range names {
			l, ok := labels[n]
			if !ok {
				t.Errorf("%s: there is no metric %s", where, n)
			}
			for _, m := range label.FindAllStringSubmatch(text, -1) {
				if m[1] != "instance" && !strings.Contains(l, m[1]+"=") {
					t.Errorf("%s: %s has no label %s", where, n, m[1])
				}
			}
		}
	}

	var board struct {
		Panels []struct {
			Title   string
			Type    string
			Targets []struct{ Expr, LegendFormat string }
		}
		Templating struct{ List []struct{ Query string } }
	}
	b, err := os.ReadFile("../../contrib/grafana/rdsd.json")
	if err == nil {
		err = json.Unmarshal(b, &board)
	}
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range board.Panels {
		for _, q := range p.Targets {
			n++
			check("panel "+p.Title, q.Expr, q.LegendFormat)
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %s shows nothing", p.Title)
		}
	}
	for _, v := range board.Templating.List[1:] {
		check("variable", v.Query, "")
	}
	if n < 30 {
		t.Errorf("only %d queries in the dashboard", n)
	}

	if b, err = os.ReadFile("../../contrib/prometheus/rdsd.rules.yml"); err != nil {
		t.Fatal(err)
	}
	// The fields of Prometheus' rule files. An unknown field is an error, as it is for
	// Prometheus.
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.UnmarshalWithOptions(b, &rules, yaml.Strict()); err != nil || len(rules.Groups) != 1 || rules.Groups[0].Name == "" {
		t.Fatalf("rules: %+v, %v", rules, err)
	}
	alerts := map[string]bool{}
	quantiles := 0
	for _, a := range rules.Groups[0].Rules {
		check("alert "+a.Alert, a.Expr, a.Annotations["summary"]+a.Annotations["cure"])
		if a.Alert == "" || alerts[a.Alert] || a.Annotations["summary"] == "" || a.Annotations["cure"] == "" {
			t.Errorf("alert %q: name, summary or cure is missing or there twice", a.Alert)
		}
		// histogram_quantile is the highest finite bound at most.
		if m := quantile.FindStringSubmatch(a.Expr); m != nil {
			most, err := strconv.ParseFloat(m[3], 64)
			if err != nil || bounds[m[1]] < most || bounds[m[1]] == most && m[2] == ">" {
				t.Errorf("alert %s: %s has no bound above %s, so that it never fires (%v)", a.Alert, m[1], m[3], err)
			}
			quantiles++
		} else if strings.Contains(a.Expr, "histogram_quantile") {
			t.Errorf("alert %s: this test does not read its threshold", a.Alert)
		}
		if s := a.Labels["severity"]; s != "info" && s != "warning" && s != "critical" {
			t.Errorf("alert %s is of severity %q", a.Alert, s)
		}
		if a.For != "" && !regexp.MustCompile(`^[0-9]+[smh]$`).MatchString(a.For) {
			t.Errorf("alert %s: for %q", a.Alert, a.For)
		}
		alerts[a.Alert] = true
	}
	if len(alerts) < 10 || quantiles < 2 {
		t.Errorf("only %d alerts, %d of them of quantiles", len(alerts), quantiles)
	}
}
