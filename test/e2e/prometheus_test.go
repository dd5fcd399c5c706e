package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// TestPrometheus has Prometheus scrape the metrics of another host over HTTPS, as
// docs/operations.md configures it, with the alert rules of this project; without a
// certificate of its own it gets nothing.
func TestPrometheus(t *testing.T) {
	for _, p := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed: apt-get install -y --no-install-recommends prometheus", p)
		}
	}
	a, b := twoHosts(t)
	ca := tlstest.NewCA(t)
	certs, scraper := t.TempDir(), t.TempDir()
	ca.Write(t, certs, tlstest.IPs("10.0.0.1"))
	ca.Write(t, scraper, tlstest.IPs("10.0.0.2"))
	rules, err := filepath.Abs("../../contrib/prometheus/rdsd.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(scraper, "prometheus.yml"), []byte(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: ["`+rules+`"]
scrape_configs:
  - job_name: rdsd
    scheme: https
    tls_config: {ca_file: ca.pem, cert_file: cert.pem, key_file: key.pem}
    static_configs: [{targets: ["10.0.0.1:9464"]}]
  - job_name: stranger
    scheme: https
    tls_config: {ca_file: ca.pem}
    static_configs: [{targets: ["10.0.0.1:9464"]}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	a.run("cp bin/* /usr/local/bin/; mkdir -p /run/rdsd; rdsd -listen 10.0.0.1 -peers-allow 10.0.0.2 -tls-cert " + certs + "/cert.pem -tls-key " + certs + "/key.pem -tls-ca " + certs +
		"/ca.pem -metrics-listen 10.0.0.1:9464 >/run/rdsd.log 2>&1 &\n" + ready)
	b.run("promtool check rules " + rules + "\npromtool check config " + scraper + "/prometheus.yml")
	b.run("prometheus --config.file=" + scraper + "/prometheus.yml --storage.tsdb.path=" + scraper + "/data --web.listen-address=10.0.0.2:9090 >/run/prometheus.log 2>&1 & echo $! >/run/prometheus.pid")
	ask := func(query, want string) {
		t.Helper()
		q := "promtool query instant http://10.0.0.2:9090 '" + query + "' 2>/dev/null | grep -q '" + want + "'"
		b.run("for i in $(seq 600); do " + q + " && break; sleep 0.1; done; " + q + " || { cat /run/prometheus.log; false; }")
	}
	ask(`up{job="rdsd"}`, "=> 1 @")
	ask(`rdsd_engine_turns_total > bool 0`, "=> 1 @")
	ask(`count({job="rdsd",__name__=~"rdsd_.*"}) > bool 50`, "=> 1 @")
	ask(`up{job="stranger"}`, "=> 0 @")
	b.run("kill $(cat /run/prometheus.pid); while kill -0 $(cat /run/prometheus.pid) 2>/dev/null; do sleep 0.1; done")
}
