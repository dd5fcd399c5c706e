package kubernetes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rdsd/rdsd/internal/config"
)

// TestLint: Helm's linter finds nothing but that an icon is missing, which is for catalogues.
func TestLint(t *testing.T) {
	for what, text := range good {
		values, err := chartutil.ReadValues([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range lint.All("chart", values, "rdsd", true).Messages {
			if m.Severity > support.InfoSev || !strings.Contains(m.Error(), "icon is recommended") {
				t.Errorf("%s: %s", what, m)
			}
		}
	}
	broken := filepath.Join(t.TempDir(), "rdsd")
	if err := os.CopyFS(broken, os.DirFS("chart")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(broken, "templates", "broken.yaml"), []byte("a: {{ .Values.none.such }}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if highest := lint.All(broken, nil, "rdsd", true).HighestSeverity; highest != support.ErrorSev {
		t.Errorf("a chart with a broken template has severity %d", highest)
	}
}

// TestValues: values reach the objects, and rdsd takes the configuration.
func TestValues(t *testing.T) {
	for what, want := range map[string]string{
		"no TLS":  "",
		"secret":  "secretName: rdsd-tls",
		"csi":     "csi.cert-manager.io/issuer-name: ca",
		"quotas":  "path: rdsd.toml.d/values.toml",
		"pods":    "hostPID: true",
		"monitor": "$(RDSD_LISTEN):9000",
		"placed":  "image: \"example.org/rdsd:v9\"\n          imagePullPolicy: Always",
	} {
		docs, err := render("pool2", good[what])
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if all := strings.Join(docs, "\n"); !strings.Contains(all, want) {
			t.Errorf("%s: no %q in\n%s", what, want, all)
		}
		all := objects(t, docs)
		l, err := load(t, all["ConfigMap"].(*corev1.ConfigMap))
		if err != nil {
			t.Errorf("%s: %v", what, err)
		} else if what == "quotas" && l.Quota.User[config.Sockets] != 7 {
			t.Errorf("the quota of sockets is %d", l.Quota.User[config.Sockets])
		} else if len(l.Quota.Accounts) > 0 != (what == "pods") {
			t.Errorf("%s: accounts %v", what, l.Quota.Accounts)
		}
		d := all["DaemonSet"].(*appsv1.DaemonSet)
		if d.Name != "pool2" || d.Spec.Selector.MatchLabels["app"] != "pool2" || d.Spec.Template.Labels["app"] != "pool2" {
			t.Errorf("%s: the release's name is not that of its pods: %v", what, d.Spec.Selector)
		}
		if d.Spec.Template.Spec.HostPID != (what == "pods") {
			t.Errorf("%s: hostPID: %v", what, d.Spec.Template.Spec.HostPID)
		}
		if _, ok := all["serviceMonitor"]; ok != (what == "monitor") {
			t.Errorf("%s: a ServiceMonitor: %v", what, ok)
		}
	}
}

// TestWrongValues: a wrong value is refused by an error that names it.
func TestWrongValues(t *testing.T) {
	for values, want := range map[string]string{
		"peersAllow: 10.0.0.0/24":                        "peersAllow",
		"peersAllow: []":                                 "peersAllow",
		"peerAllow: [10.0.0.0/24]":                       "peerAllow",
		"image: {repository: \"\"}":                      "repository",
		"image: rdsd:v9":                                 "image",
		"metrics: {port: 70000}":                         "port",
		"metrics: {port: \"9464\"}":                      "port",
		"tls: {mode: off}":                               "mode",
		"tls: {hostPath: etc/tls}":                       "hostPath",
		"resources: {limits: {memory: 512MiB}}":          "memory",
		"config: {quota: {sockets: 1}}":                  "config",
		"config: \"[quota\"":                             "config is not TOML",
		"tls: {secret: a}":                               "tls.names",
		"tls: {secret: a, names: [a], csi: {driver: b}}": "tls.secret and tls.csi",
		"metrics: {serviceMonitor: {enabled: true}}":     "tlsConfig",
		"{tls: {enabled: false}, metrics: {serviceMonitor: {enabled: true, tlsConfig: {ca: {}}}}}": "tls.enabled",
	} {
		docs, err := render("rdsd", values)
		if err == nil {
			t.Errorf("%s is taken: %d objects", values, len(docs))
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, which does not name %s", values, err, want)
		} else {
			t.Logf("%s: %v", values, err)
		}
	}
}
