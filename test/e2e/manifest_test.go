package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/rdsd/rdsd/internal/config"
)

// shape says what an object of Kubernetes' API may have: the names of its fields and what they
// may be. A name with ! must be there. A field may be a shape, a list{shape or pattern}, or a
// scalar, given as a pattern of its text. The shapes have only what our manifests use. Another
// field is a mistake, or has to be added here from the API's reference.
type (
	shape map[string]any
	list  struct{ of any }
	// texts is a map of text, such as labels.
	texts struct{}
)

const (
	aText     = `(?s).+`
	aName     = `[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?`
	aNumber   = `[0-9]+`
	aBool     = `true|false`
	aPath     = `/.*`
	aQuantity = `[0-9]+(\.[0-9]+)?(m|k|M|G|Ki|Mi|Gi)?`
)

var (
	metadata = shape{"name!": aName, "namespace": aName, "labels": texts{}}
	httpGet  = shape{"host": aText, "port!": aNumber, "path!": aPath}
	probe    = shape{"httpGet!": httpGet, "periodSeconds": aNumber, "failureThreshold": aNumber}
	pod      = shape{
		"hostNetwork": aBool, "dnsPolicy": "ClusterFirst|ClusterFirstWithHostNet|Default|None", "automountServiceAccountToken": aBool, "enableServiceLinks": aBool,
		"priorityClassName": "system-node-critical|system-cluster-critical", "terminationGracePeriodSeconds": aNumber,
		"tolerations":     list{shape{"operator": "Exists|Equal", "key": aText, "effect": "NoSchedule|PreferNoSchedule|NoExecute"}},
		"securityContext": shape{"runAsUser": aNumber, "runAsNonRoot": aBool, "supplementalGroups": list{aNumber}},
		"containers!": list{shape{
			"name!": aName, "image!": aText, "args": list{aText}, "command": list{aText},
			"env": list{shape{"name!": `[A-Z_]+`, "value": aText,
				"valueFrom": shape{"fieldRef!": shape{"fieldPath!": `status\.hostIP|status\.podIP|spec\.nodeName`}}}},
			"ports":        list{shape{"name": aName, "containerPort!": aNumber, "hostPort": aNumber}},
			"startupProbe": probe, "livenessProbe": probe, "readinessProbe": probe,
			"lifecycle": shape{"preStop": shape{"exec!": shape{"command!": list{aText}}}},
			"securityContext": shape{"runAsUser": aNumber, "runAsGroup": aNumber, "allowPrivilegeEscalation": aBool, "readOnlyRootFilesystem": aBool,
				"capabilities": shape{"drop": list{"ALL|[A-Z_]+"}, "add": list{"[A-Z_]+"}}, "seccompProfile": shape{"type!": "RuntimeDefault|Unconfined"}},
			"resources":    shape{"requests": shape{"cpu": aQuantity, "memory": aQuantity}, "limits": shape{"memory": aQuantity}},
			"volumeMounts": list{shape{"name!": aName, "mountPath!": aPath, "readOnly": aBool}},
		}},
		"volumes": list{shape{"name!": aName, "hostPath": shape{"path!": aPath, "type": "Directory|DirectoryOrCreate|Socket|File|CharDevice"}, "configMap": shape{"name!": aName}}},
	}
	kinds = map[string]shape{
		"v1 Namespace": {"metadata!": metadata},
		"v1 ConfigMap": {"metadata!": metadata, "data!": texts{}},
		"v1 Pod":       {"metadata!": metadata, "spec!": pod},
		"apps/v1 DaemonSet": {"metadata!": metadata, "spec!": shape{
			"selector!":       shape{"matchLabels!": texts{}},
			"minReadySeconds": aNumber,
			"updateStrategy":  shape{"type": "RollingUpdate|OnDelete", "rollingUpdate": shape{"maxSurge": aNumber, "maxUnavailable": aNumber}},
			"template!":       shape{"metadata!": shape{"labels!": texts{}}, "spec!": pod},
		}},
	}
)

// misfits returns what of v, at path, is not as want says.
func misfits(path string, v, want any) (bad []string) {
	switch want := want.(type) {
	case string:
		text := fmt.Sprint(v)
		switch v.(type) {
		case map[string]any, []any, nil:
			return []string{path + ": want a scalar"}
		}
		if !regexp.MustCompile(`^(` + want + `)$`).MatchString(text) {
			bad = append(bad, fmt.Sprintf("%s: %q is not %s", path, text, want))
		}
		if _, isText := v.(string); isText == (want == aNumber || want == aBool) {
			bad = append(bad, fmt.Sprintf("%s: %q has quotes too many or too few", path, text))
		}
	case texts:
		m, ok := v.(map[string]any)
		if !ok {
			return []string{path + ": want names and texts"}
		}
		for k, x := range m {
			if _, ok := x.(string); !ok {
				bad = append(bad, fmt.Sprintf("%s.%s: %v is not text", path, k, x))
			}
		}
	case list:
		l, ok := v.([]any)
		if !ok || len(l) == 0 {
			return []string{path + ": want a list"}
		}
		for i, x := range l {
			bad = append(bad, misfits(fmt.Sprintf("%s[%d]", path, i), x, want.of)...)
		}
	case shape:
		m, ok := v.(map[string]any)
		if !ok {
			return []string{path + ": want an object"}
		}
		for name, x := range m {
			w, ok := want[name]
			if !ok {
				w, ok = want[name+"!"]
			}
			if !ok {
				bad = append(bad, fmt.Sprintf("%s: no field %q", path, name))
				continue
			}
			bad = append(bad, misfits(path+"."+name, x, w)...)
		}
		for name := range want {
			if n, must := strings.CutSuffix(name, "!"); must && m[n] == nil {
				bad = append(bad, fmt.Sprintf("%s: %s is missing", path, n))
			}
		}
	}
	return bad
}

// objects returns the documents of a file.
func objects(text []byte) (all []map[string]any, err error) {
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var o map[string]any // a name that is there twice is an error
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
}

// named returns the values of field name in a list of objects.
func named(v any, field string) (names []string) {
	l, _ := v.([]any)
	for _, x := range l {
		m, _ := x.(map[string]any)
		names = append(names, fmt.Sprint(m[field]))
	}
	return names
}

// wrong returns what Kubernetes would refuse in a manifest, and parts that do not fit together.
func wrong(o map[string]any) []string {
	kind := fmt.Sprintf("%v %v", o["apiVersion"], o["kind"])
	want, ok := kinds[kind]
	if !ok {
		return []string{"kind " + kind + " is none of " + strings.Join(slices.Sorted(maps.Keys(kinds)), ", ")}
	}
	body := maps.Clone(o)
	delete(body, "apiVersion")
	delete(body, "kind")
	bad := misfits(kind, body, want)
	if len(bad) > 0 {
		return bad
	}
	spec, _ := o["spec"].(map[string]any)
	if t, ok := spec["template"].(map[string]any); ok {
		labels := t["metadata"].(map[string]any)["labels"].(map[string]any)
		for k, v := range spec["selector"].(map[string]any)["matchLabels"].(map[string]any) {
			if labels[k] != v {
				bad = append(bad, fmt.Sprintf("the selector's %s is not a label of its pods", k))
			}
		}
		spec = t["spec"].(map[string]any)
	}
	volumes := named(spec["volumes"], "name")
	if containers, ok := spec["containers"].([]any); ok {
		for _, c := range containers {
			for _, m := range named(c.(map[string]any)["volumeMounts"], "name") {
				if !slices.Contains(volumes, m) {
					bad = append(bad, fmt.Sprintf("there is no volume %q to mount", m))
				}
			}
		}
	}
	return bad
}

// TestManifestShapes checks that Kubernetes' API takes the manifests, and that rdsd takes the
// configuration in them.
func TestManifestShapes(t *testing.T) {
	maps := map[string]map[string]any{}
	for _, name := range []string{"rdsd.yaml", "client.yaml"} {
		text, err := os.ReadFile("../../contrib/kubernetes/" + name)
		if err != nil {
			t.Fatal(err)
		}
		all, err := objects(text)
		if err != nil || len(all) == 0 {
			t.Fatalf("%s: %d objects, %v", name, len(all), err)
		}
		for _, o := range all {
			for _, bad := range wrong(o) {
				t.Errorf("%s: %s", name, bad)
			}
			if o["kind"] == "ConfigMap" {
				maps[fmt.Sprint(o["metadata"].(map[string]any)["name"])] = o["data"].(map[string]any)
			}
		}
		for _, slip := range []struct{ from, to string }{
			{"hostPath:", "hostpath:"}, {"image:", "images:"}, {"supplementalGroups: [64000]", "supplementalGroups: 64000"}, {"containerPort: 18634", `containerPort: "18634"`},
			{"matchLabels: {app: rdsd}", "matchLabels: {app: rds}"}, {"name: run, mountPath", "name: runs, mountPath"}, {"apps/v1", "apps/v2"},
			{"kind: Pod\n", "kind: Pod\nkind: Pod\n"}, {"memory: 512Mi", "memory: 512MiB"}, {"runAsUser: 10001", "runAsUser: root"}, {"          image: rdsd", "        image: rdsd"},
		} {
			if !bytes.Contains(text, []byte(slip.from)) {
				continue // it is for the other file
			}
			broken, err := objects(bytes.Replace(text, []byte(slip.from), []byte(slip.to), 1))
			n := 0
			for _, o := range broken {
				n += len(wrong(o))
			}
			if err == nil && n == 0 {
				t.Errorf("%s with %q for %q is found good", name, slip.to, slip.from)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "rdsd.toml")
	if err := os.WriteFile(file, []byte(maps["rdsd"]["rdsd.toml"].(string)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := config.Sources{File: file, Environ: []string{"RDSD_LISTEN=10.0.0.7", "RDSD_METRICS_LISTEN=127.0.0.1:9464", "RDSD_SOCKET=/run/rdsd/rdsd.sock"}}
	if c, err := s.Load(); err != nil || c.TLS.Cert == "" {
		t.Errorf("the ConfigMap: %+v, %v", c, err)
	}
}
