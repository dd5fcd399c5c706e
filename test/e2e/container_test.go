package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/test/child"
	"github.com/rdsd/rdsd/internal/test/loopback"
)

// TestContainerfile builds as the Containerfile does. It runs the result in an empty root and a
// pid namespace of its own, with /proc as every runtime mounts it, and a client outside.
func TestContainerfile(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("chroot and pid namespaces need root")
	}
	b, err := os.ReadFile("../../contrib/container/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^RUN (CGO_ENABLED=0 go build .*)$`).FindSubmatch(b)
	if m == nil {
		t.Fatal("the Containerfile does not build")
	}
	root := t.TempDir()
	for _, dir := range []string{"usr/bin", "run/rdsd", "proc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("bash", "-ec", strings.ReplaceAll(string(m[1]), "-o /out/", "-o "+root+"/usr/bin/"))
	build.Dir, build.Env = "../..", append(os.Environ(), "VERSION=v9.9.9")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	net, err := loopback.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer net.Close()
	bare := exec.Command("/usr/bin/rdsd", "-listen", net.At(1).String(), "-socket", "/run/rdsd/rdsd.sock")
	bare.Dir, bare.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: root}
	if out, err := bare.CombinedOutput(); err == nil || !strings.Contains(string(out), "/proc has to be mounted") {
		t.Errorf("without /proc: %v\n%s", err, out)
	}
	cmd := exec.Command("sh", "-c", `mount -t proc proc "$0/proc" && exec chroot "$0" /usr/bin/rdsd -listen "$1"`, root, net.At(1).String())
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "RDSD_SOCKET=/run/rdsd/rdsd.sock"}
	// Unshareflags, because Go then keeps the mount from the other namespaces.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
	d, err := child.Start(cmd)
	if err != nil {
		t.Skipf("pid namespaces are not permitted here: %v", err)
	}
	defer d.Kill()
	ctl := func(args ...string) (string, error) {
		cmd := exec.Command(root+"/usr/bin/rdsctl", append(args, "-socket", root+"/run/rdsd/rdsd.sock")...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	eventually(t, "status", func() error {
		out, err := ctl("status")
		if err == nil && !strings.Contains(out, "v9.9.9") {
			t.Errorf("status: %s", out)
		}
		return err
	})
	if out, err := ctl("bench", "-mode", "rtt", "-d", "100ms", "-warmup", "0s"); err != nil {
		t.Errorf("a client outside: %v\n%s", err, out)
	}
	d.Signal(syscall.SIGTERM)
	if !d.Wait(patience) {
		t.Error("the daemon does not end")
	} else if d.Err() != nil {
		t.Errorf("the daemon ended: %v", d.Err())
	}
	if t.Failed() {
		t.Logf("the daemon said:\n%s", &d.Stderr)
	}
}

// TestManifests checks the lines of the manifests that are about rdsd. TestManifestShapes checks
// their shapes.
func TestManifests(t *testing.T) {
	vars, flags, keys := map[string]bool{"RDSD_CONFIG": true}, map[string]bool{"-config": true, "-take-over": true, "-stay": true}, map[string]config.Key{}
	for _, k := range config.Keys() {
		keys[k.Name] = k
		vars["RDSD_"+strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_"))] = true
		flags["-"+strings.NewReplacer(".", "-", "_", "-").Replace(k.Name)] = true
	}
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	all := map[string]string{}
	for _, name := range []string{"container/Containerfile", "kubernetes/rdsd.yaml", "kubernetes/client.yaml"} {
		all[name] = read("../../contrib/" + name)
	}
	all["docs/containers.md"] = read("../../docs/containers.md")
	for name, text := range all {
		for _, v := range regexp.MustCompile(`\bRDSD_[A-Z_]+`).FindAllString(text, -1) {
			if !vars[v] {
				t.Errorf("%s: rdsd reads no variable %s", name, v)
			}
		}
		for _, p := range regexp.MustCompile(`(?m)(?:containerPort|hostPort|EXPOSE)[: ]+(\d+)`).FindAllStringSubmatch(text, -1) {
			if p[1] != keys["port"].Default {
				t.Errorf("%s: port %s, rdsd's is %s", name, p[1], keys["port"].Default)
			}
		}
		if strings.Contains(text, "\t") {
			t.Errorf("%s: a tab", name)
		}
		for _, p := range regexp.MustCompile(`/run/rdsd/[a-z.]+`).FindAllString(text, -1) {
			if p != "/run/rdsd/rdsd.sock" {
				t.Errorf("%s: %s, the control socket is /run/rdsd/rdsd.sock", name, p)
			}
		}
	}
	y := all["kubernetes/rdsd.yaml"]
	for _, f := range regexp.MustCompile(`(?m)args: \[(.*)\]`).FindAllStringSubmatch(y, -1) {
		for _, a := range regexp.MustCompile(`"(-[a-z-]+)"`).FindAllStringSubmatch(f[1], -1) {
			if !flags[a[1]] {
				t.Errorf("rdsd has no flag %s", a[1])
			}
		}
	}
	_, toml, _ := strings.Cut(y, "rdsd.toml: |\n")
	toml, _, _ = strings.Cut(toml, "\n---")
	section := ""
	for line := range strings.Lines(toml) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "["); ok {
			section, _, _ = strings.Cut(name, "]")
		} else if k, _, ok := strings.Cut(line, " = "); ok {
			if _, ok := keys[section+"."+k]; !ok {
				t.Errorf("the ConfigMap has a key %s.%s, rdsd has not", section, k)
			}
		}
	}
	probes := regexp.MustCompile(`httpGet: \{host: (\S+), port: (\d+), path: (\S+)\}`).FindAllStringSubmatch(y, -1)
	for _, p := range probes {
		if !strings.Contains(y, "value: "+p[1]+":"+p[2]) || !strings.Contains(read("../../internal/metrics/page.go"), `"GET `+p[3]+`"`) {
			t.Errorf("the probe %s is answered by nobody", p[0])
		}
	}
	if len(probes) != 3 {
		t.Errorf("%d probes, want 3", len(probes))
	}
	for _, want := range []string{"hostNetwork: true", "capabilities: {drop: [ALL]}", "kind: DaemonSet", "kind: ConfigMap"} {
		if !strings.Contains(y, want) {
			t.Errorf("rdsd.yaml has no %q", want)
		}
	}
}
