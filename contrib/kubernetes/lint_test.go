// Package kubernetes has no code: its test judges the manifests, the kustomization and the
// chart in this folder by the linters and types of Helm, kustomize and Kubernetes. It is a
// module of its own, because rdsd needs none of them.
package kubernetes

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/rdsd/rdsd/internal/config"
)

// good are values that the chart takes, beside its defaults.
var good = map[string]string{
	"defaults": "",
	"no TLS":   "tls: {enabled: false}",
	"secret":   `tls: {secret: rdsd-tls, names: ["10.0.0.0/24 spiffe://example.org/rdsd"]}`,
	"csi":      "tls: {csi: {driver: csi.cert-manager.io, readOnly: true, volumeAttributes: {csi.cert-manager.io/issuer-name: ca}}}",
	"quotas":   "config: |\n  [quota]\n  sockets = 7\n  overrides = [\"uid=1000 sockets=100\"]\n",
	"pods":     "config: |\n  [quota]\n  sockets = 7\n  accounts = [\"kubernetes\"]\n",
	"monitor": "metrics: {port: 9000, serviceMonitor: {enabled: true, labels: {release: prometheus}, " +
		"tlsConfig: {ca: {secret: {name: s, key: ca.crt}}, cert: {secret: {name: s, key: tls.crt}}, keySecret: {name: s, key: tls.key}}}}",
	"placed": `{image: {repository: example.org/rdsd, tag: v9, pullPolicy: Always}, imagePullSecrets: [pull], nodeSelector: {rds: "yes"}, tolerations: [], ` +
		`priorityClassName: "", podAnnotations: {a: b}, resources: {requests: {cpu: 2}, limits: {memory: 4Gi}}, peersAllow: ["fd00::/64", hostb]}`,
}

// render returns the objects of the chart with these values, as `helm template` does.
func render(release, values string) ([]string, error) {
	c, err := loader.Load("chart")
	if err != nil {
		return nil, err
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	all, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: release, Namespace: "rdsd", IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	var docs []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") {
			d, err := documents([]byte(files[name]))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			docs = append(docs, d...)
		}
	}
	return docs, nil
}

// documents divides a YAML stream, and leaves out what is empty.
func documents(text []byte) (docs []string, err error) {
	for r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return docs, nil
		} else if err != nil {
			return nil, err
		}
		var any map[string]any
		if err := yaml.Unmarshal(doc, &any); err != nil {
			return nil, err
		}
		if len(any) > 0 {
			docs = append(docs, string(doc))
		}
	}
}

// serviceMonitor has those fields of the Prometheus operator's type that the chart writes.
type serviceMonitor struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Spec       struct {
		Selector  struct{ MatchLabels map[string]string }
		Endpoints []struct {
			Port, Scheme, Interval string
			TLSConfig              map[string]any `json:"tlsConfig"`
		}
	}
}

// strict decodes an object into its type. It refuses fields that the type does not have,
// values of other types and fields that are there twice.
func strict(doc string) (any, error) {
	var head struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
		return nil, err
	}
	var o any
	switch name := head.APIVersion + " " + head.Kind; name {
	case "v1 Namespace":
		o = &corev1.Namespace{}
	case "v1 ConfigMap":
		o = &corev1.ConfigMap{}
	case "v1 Pod":
		o = &corev1.Pod{}
	case "v1 Service":
		o = &corev1.Service{}
	case "apps/v1 DaemonSet":
		o = &appsv1.DaemonSet{}
	case "monitoring.coreos.com/v1 ServiceMonitor":
		o = &serviceMonitor{}
	default:
		return nil, fmt.Errorf("%s is no kind that rdsd's manifests have", name)
	}
	if err := yaml.UnmarshalStrict([]byte(doc), o); err != nil {
		return nil, fmt.Errorf("%s: %w", head.Kind, err)
	}
	return o, nil
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestStrict: Kubernetes' types have every field of the manifests and of the chart's objects.
func TestStrict(t *testing.T) {
	for _, name := range []string{"rdsd.yaml", "client.yaml"} {
		docs, err := documents([]byte(read(t, name)))
		if err != nil || len(docs) == 0 {
			t.Fatalf("%s: %d objects, %v", name, len(docs), err)
		}
		for _, doc := range docs {
			if _, err := strict(doc); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for what, values := range good {
		docs, err := render("rdsd", values)
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		for _, doc := range docs {
			o, err := strict(doc)
			if err != nil {
				t.Errorf("%s: %v\n%s", what, err, doc)
			} else if d, ok := o.(*appsv1.DaemonSet); ok {
				checkVolumes(t, what, d)
			}
		}
	}
	for from, to := range map[string]string{"hostPath:": "hostpaths:", "port: 9464": "port: {}", "runAsUser: 0": "runAsUser: root", "memory: 512Mi": "memory: 512MiB"} {
		text := read(t, "rdsd.yaml")
		docs, _ := documents([]byte(strings.Replace(text, from, to, 1)))
		if !strings.Contains(text, from) || !slices.ContainsFunc(docs, func(doc string) bool { _, err := strict(doc); return err != nil }) {
			t.Errorf("rdsd.yaml with %q for %q is found good", to, from)
		}
	}
}

// checkVolumes: what is mounted is a volume, and each volume has one source.
func checkVolumes(t *testing.T, what string, d *appsv1.DaemonSet) {
	volumes := map[string]bool{}
	for _, v := range d.Spec.Template.Spec.Volumes {
		sources, n := reflect.ValueOf(v.VolumeSource), 0
		for i := range sources.NumField() {
			if !sources.Field(i).IsNil() {
				n++
			}
		}
		if volumes[v.Name] = true; n != 1 {
			t.Errorf("%s: volume %s has %d sources", what, v.Name, n)
		}
	}
	for _, m := range d.Spec.Template.Spec.Containers[0].VolumeMounts {
		if !volumes[m.Name] {
			t.Errorf("%s: there is no volume %q to mount", what, m.Name)
		}
	}
}

// TestKustomization: kustomize builds the objects of rdsd.yaml, and an overlay replaces the image.
func TestKustomization(t *testing.T) {
	built := func(dir string) (docs []string) {
		m, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
		if err != nil {
			t.Fatal(err)
		}
		text, err := m.AsYaml()
		if err == nil {
			docs, err = documents(text)
		}
		if err != nil {
			t.Fatal(err)
		}
		return docs
	}
	want, err := documents([]byte(read(t, "rdsd.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	compare(t, objects(t, built(".")), objects(t, want))
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	base, err := filepath.Rel(dir, here)
	if err != nil {
		t.Fatal(err)
	}
	overlay := "resources: [" + base + "]\nimages: [{name: rdsd, newName: example.org/rdsd, newTag: v9}]\n"
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600); err != nil {
		t.Fatal(err)
	}
	d := objects(t, built(dir))["DaemonSet"].(*appsv1.DaemonSet)
	if got := d.Spec.Template.Spec.Containers[0].Image; got != "example.org/rdsd:v9" {
		t.Errorf("the overlay's image is %s", got)
	}
}

// objects decodes documents, by their kinds.
func objects(t *testing.T, docs []string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, doc := range docs {
		o, err := strict(doc)
		if err != nil {
			t.Fatal(err)
		}
		all[reflect.TypeOf(o).Elem().Name()] = o
	}
	return all
}

func compare(t *testing.T, got, want map[string]any) {
	t.Helper()
	for kind := range maps.Keys(want) {
		g, _ := yaml.Marshal(got[kind])
		w, _ := yaml.Marshal(want[kind])
		if !bytes.Equal(g, w) {
			t.Errorf("%s:\n%s\nwant\n%s", kind, g, w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d objects, want %d", len(got), len(want))
	}
}

// load writes a ConfigMap as its volume shows it to the daemon, and reads it as rdsd does.
func load(t *testing.T, m *corev1.ConfigMap) (*config.Loaded, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rdsd.toml")
	if err := os.Mkdir(file+".d", 0o700); err != nil {
		t.Fatal(err)
	}
	for key, text := range m.Data {
		name := file
		if key != "rdsd.toml" {
			name = filepath.Join(file+".d", key)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := config.Sources{File: file, Environ: []string{"RDSD_LISTEN=10.0.0.7", "RDSD_METRICS_LISTEN=127.0.0.1:9464", "RDSD_SOCKET=/run/rdsd/rdsd.sock"}}
	return s.Load()
}

// TestChartIsManifest: the chart's defaults give the objects of rdsd.yaml. These differ:
//   - Helm makes the namespace (--create-namespace).
//   - The pods have a checksum of the configuration, so that another one makes new pods. kubectl's
//     users restart the DaemonSet, and kustomize's may generate the ConfigMap.
//   - rdsd.toml has other comments. What rdsd reads from it is the same.
func TestChartIsManifest(t *testing.T) {
	docs, err := render("rdsd", "")
	if err != nil {
		t.Fatal(err)
	}
	got := objects(t, docs)
	if docs, err = documents([]byte(read(t, "rdsd.yaml"))); err != nil {
		t.Fatal(err)
	}
	want := objects(t, docs)
	delete(want, "Namespace")
	annotations := got["DaemonSet"].(*appsv1.DaemonSet).Spec.Template.Annotations
	if len(annotations["checksum/config"]) != 64 || len(annotations) != 1 {
		t.Errorf("annotations: %v", annotations)
	}
	got["DaemonSet"].(*appsv1.DaemonSet).Spec.Template.Annotations = nil
	var read [2]config.Config
	for i, all := range []map[string]any{got, want} {
		l, err := load(t, all["ConfigMap"].(*corev1.ConfigMap))
		if err != nil {
			t.Fatal(err)
		}
		read[i] = l.Config
		all["ConfigMap"].(*corev1.ConfigMap).Data = nil
	}
	if !reflect.DeepEqual(read[0], read[1]) {
		t.Errorf("the chart's configuration:\n%+v\nthat of rdsd.yaml:\n%+v", read[0], read[1])
	}
	compare(t, got, want)
}
