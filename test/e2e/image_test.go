package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/internal/test/child"
	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// object is an object of JSON.
type object = map[string]any

// An image is a container image of a release, unpacked: umoci's bundle with the root folder, which
// all containers share, and the image's part of the configuration.
type image struct{ bundle string }

// newImage builds the programs as make artifacts does, with more tags of the build, and has
// contrib/container/image.sh make the archive of them.
func newImage(t *testing.T, version, tags string) *image {
	t.Helper()
	dir := t.TempDir()
	i := &image{filepath.Join(dir, "bundle")}
	for _, c := range [][]string{
		{"make", "-s", "BIN=" + dir + "/bin", "STRIP=-s -w", "VERSION=v" + version, "TAGS=nethttpomithttp2 " + tags, "programs"},
		{"contrib/container/image.sh", dir + "/bin", runtime.GOARCH, version, dir + "/image.oci.tar"},
		{"tar", "-C", dir, "--one-top-level=layout", "-xf", dir + "/image.oci.tar"},
		{"umoci", "unpack", "--image", dir + "/layout:rdsd:" + version, i.bundle},
	} {
		cmd := exec.Command(c[0], c[1:]...)
		cmd.Dir, cmd.Env = "../..", append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000", "CGO_ENABLED=0", "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
	index, err := os.ReadFile(dir + "/layout/index.json")
	if name := `"io.containerd.image.name":"docker.io/library/rdsd:` + version + `"`; err != nil || !bytes.Contains(index, []byte(name)) {
		t.Errorf("the archive has not %s, the name that it is to be loaded by: %s, %v", name, index, err)
	}
	return i
}

// manifest is a pod of contrib/kubernetes with one container, as far as a runtime has to know it.
type manifest struct {
	HostNetwork     bool
	SecurityContext struct {
		RunAsUser          int
		SupplementalGroups []int
	}
	Containers []struct {
		Command, Args []string
		Env           []struct {
			Name, Value string
			ValueFrom   struct{ FieldRef struct{ FieldPath string } }
		}
		SecurityContext struct {
			RunAsUser, RunAsGroup    int
			AllowPrivilegeEscalation *bool
			ReadOnlyRootFilesystem   bool
			Capabilities             struct{ Drop []string }
			SeccompProfile           struct{ Type string }
		}
		VolumeMounts []struct {
			Name, MountPath string
			ReadOnly        bool
		}
	}
	Volumes []struct {
		Name     string
		HostPath struct{ Path string }
	}
}

// manifests returns the daemon's and the client's pod, and the daemon's configuration.
func manifests(t *testing.T) (daemon, client manifest, toml string) {
	t.Helper()
	for _, name := range []string{"rdsd.yaml", "client.yaml"} {
		b, err := os.ReadFile("../../contrib/kubernetes/" + name)
		if err != nil {
			t.Fatal(err)
		}
		all, err := objects(b)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			switch o["kind"] {
			case "ConfigMap":
				toml = o["data"].(object)["rdsd.toml"].(string)
			case "DaemonSet":
				b, err = json.Marshal(o["spec"].(object)["template"].(object)["spec"])
				err = errors.Join(err, json.Unmarshal(b, &daemon))
			case "Pod":
				b, err = json.Marshal(o["spec"])
				err = errors.Join(err, json.Unmarshal(b, &client))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(daemon.Containers) != 1 || len(client.Containers) != 1 || toml == "" {
		t.Fatal("contrib/kubernetes has not one daemon, one client, and a ConfigMap")
	}
	return daemon, client, toml
}

// config returns the runtime's configuration of a container: what the image says, and what the pod
// of it says.
func (i *image) config(t *testing.T, m manifest, node netip.Addr) object {
	t.Helper()
	b, err := os.ReadFile(i.bundle + "/config.json")
	c := object{}
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	of := m.Containers[0]
	process, linux := c["process"].(object), c["linux"].(object)
	process["terminal"] = false
	uid := max(m.SecurityContext.RunAsUser, of.SecurityContext.RunAsUser) // one of them is not set
	process["user"] = object{"uid": uid, "gid": of.SecurityContext.RunAsGroup, "additionalGids": m.SecurityContext.SupplementalGroups}
	if d := of.SecurityContext.Capabilities.Drop; slices.Equal(d, []string{"ALL"}) || uid != 0 {
		process["capabilities"] = object{}
	}
	process["noNewPrivileges"] = of.SecurityContext.AllowPrivilegeEscalation != nil && !*of.SecurityContext.AllowPrivilegeEscalation
	program := process["args"].([]any)
	if of.Command != nil {
		program = nil
	}
	for _, a := range append(slices.Clone(of.Command), of.Args...) {
		program = append(program, a)
	}
	process["args"] = program
	for _, e := range of.Env {
		if e.ValueFrom.FieldRef.FieldPath == "status.hostIP" {
			e.Value = node.String()
		}
		process["env"] = append(process["env"].([]any), e.Name+"="+e.Value)
	}
	if of.SecurityContext.SeccompProfile.Type == "RuntimeDefault" {
		linux["seccomp"] = seccompProfile(t)
	}
	c["root"] = object{"path": i.bundle + "/rootfs", "readonly": of.SecurityContext.ReadOnlyRootFilesystem}
	delete(linux, "resources") // no cgroup is made for the container, so there is nothing to mount or to limit
	c["mounts"] = append(slices.DeleteFunc(c["mounts"].([]any), func(m any) bool { return m.(object)["type"] == "cgroup" }), m.mounts()...)
	if m.HostNetwork {
		linux["namespaces"] = slices.DeleteFunc(linux["namespaces"].([]any), func(n any) bool { return n.(object)["type"] == "network" })
	}
	return c
}

// mounts returns the volumes. The node has the ConfigMap in /etc/rdsd.
func (m *manifest) mounts() (all []any) {
	for _, at := range m.Containers[0].VolumeMounts {
		from, mode := "/etc/rdsd", "rw"
		for _, v := range m.Volumes {
			if v.Name == at.Name && v.HostPath.Path != "" {
				from = v.HostPath.Path
			}
		}
		if at.ReadOnly {
			mode = "ro"
		}
		all = append(all, object{"destination": at.MountPath, "source": from, "type": "bind", "options": []string{"rbind", mode}})
	}
	return all
}

// seccompProfile is the part of the profile that Podman and CRI-O give containers without
// capabilities (seccompProfile: {type: RuntimeDefault}); none where it is not installed.
func seccompProfile(t *testing.T) object {
	t.Helper()
	b, err := os.ReadFile("/usr/share/containers/seccomp.json")
	if errors.Is(err, os.ErrNotExist) {
		t.Log("without a seccomp profile: apt-get install -y --no-install-recommends golang-github-containers-common")
		return object{"defaultAction": "SCMP_ACT_ALLOW"}
	}
	type when struct{ Caps, Arches []string }
	var all struct {
		DefaultAction   string
		DefaultErrnoRet uint
		Syscalls        []object
	}
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	var calls []object
	for _, s := range all.Syscalls {
		var rule struct{ Includes, Excludes when }
		b, _ := json.Marshal(s)
		if err := json.Unmarshal(b, &rule); err != nil {
			t.Fatal(err)
		}
		in, not := rule.Includes, rule.Excludes
		if len(in.Caps) > 0 || len(in.Arches) > 0 && !slices.Contains(in.Arches, runtime.GOARCH) || slices.Contains(not.Arches, runtime.GOARCH) {
			continue
		}
		maps.DeleteFunc(s, func(k string, v any) bool {
			return v == nil || !slices.Contains([]string{"names", "action", "args", "errnoRet"}, k)
		})
		calls = append(calls, s)
	}
	return object{"defaultAction": all.DefaultAction, "defaultErrnoRet": all.DefaultErrnoRet, "syscalls": calls}
}

// An ociNode is a node, in namespaces of its own, that an OCI runtime has containers on.
type ociNode struct {
	*node
	net     *netHost
	pods    [2]manifest // the daemon's and the client's
	runtime []string
	ids     []string // of its containers
}

// ociRuntimes are the runtimes, with their flags. crun does without cgroups, so the node has none:
// crun refuses two hierarchies at once, and this machine's may not be writable. runc has to make a cgroup.
var ociRuntimes = map[string]struct {
	flags []string
	node  string
}{
	"crun": {[]string{"--cgroup-manager=disabled"}, "mount -t tmpfs -o ro tmpfs /sys/fs/cgroup"},
	"runc": {nil, "true"},
}

// newOCINodes returns two nodes that are connected by one wire, as a cluster has them: with the ConfigMap of
// contrib/kubernetes/rdsd.yaml, certificates, and an empty /run/rdsd.
func newOCINodes(t *testing.T, name string) (nodes [2]*ociNode) {
	t.Helper()
	a, b := wiredHosts(t, t.TempDir())
	daemon, client, toml := manifests(t)
	ca := tlstest.NewCA(t)
	for i, net := range []*netHost{a, b} {
		r := ociRuntimes[name]
		net.run(r.node + "\nmkdir /run/rdsd /etc/rdsd/tls")
		addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})
		root := "/proc/" + net.pid() + "/root"
		h := &host{t: t, dir: root + "/run/rdsd", sock: root + "/run/rdsd/rdsd.sock", addrs: []netip.Addr{addr}}
		n := &ociNode{node: &node{host: h}, net: net, pods: [2]manifest{daemon, client}, runtime: append([]string{name, "--root", "/run/oci"}, r.flags...)}
		if err := os.WriteFile(root+"/etc/rdsd/rdsd.toml", []byte(toml), 0o644); err != nil {
			t.Fatal(err)
		}
		ca.Write(t, root+"/etc/rdsd/tls", tlstest.IPs(addr.String()))
		net.run("cd /etc/rdsd/tls && mv cert.pem tls.crt && mv key.pem tls.key && mv ca.pem ca.crt; cd - >/dev/null")
		t.Cleanup(func() {
			for _, id := range n.ids { // of a test that failed: they have cgroups, which do not end with the node
				_ = n.command("delete", "--force", id).Run()
			}
		})
		nodes[i] = n
	}
	return nodes
}

// start starts a container.
func (n *ociNode) start(i *image, m manifest) *container {
	n.t.Helper()
	id := fmt.Sprintf("rdsd-%d-%s-%d", os.Getpid(), n.addr(), len(n.ids))
	n.ids = append(n.ids, id)
	bundle := n.t.TempDir()
	c, err := json.Marshal(i.config(n.t, m, n.addr()))
	if err == nil {
		err = os.WriteFile(bundle+"/config.json", c, 0o644)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	cmd := n.command("run", "--bundle", bundle, id)
	cmd.Env = child.Env()
	run, err := child.Start(cmd)
	if err != nil {
		n.t.Fatal(err)
	}
	n.all = append(n.all, run)
	return &container{n.t, run, func(signal string) {
		if out, err := n.command("kill", id, signal).CombinedOutput(); err != nil {
			n.t.Errorf("kill %s: %v: %s", id, err, out)
		}
	}}
}

// command is the runtime with a command, on the node.
func (n *ociNode) command(args ...string) *exec.Cmd {
	in := []string{"--target", n.net.pid(), "--net", "--mount", "--pid", "--"}
	return exec.Command("nsenter", slices.Concat(in, n.runtime, args)...)
}

// daemon starts the daemon's container. edit changes what the manifest says.
func (n *ociNode) daemon(i *image, edit ...func(*manifest)) *container {
	n.t.Helper()
	m := n.pods[0].changed()
	for _, e := range edit {
		e(&m)
	}
	return n.start(i, m)
}

// without removes an argument of the container.
func without(arg string) func(*manifest) {
	return func(m *manifest) {
		c := &m.Containers[0]
		c.Args = slices.DeleteFunc(c.Args, func(a string) bool { return a == arg })
	}
}

// stopping makes the program stop at a fail point.
func stopping(point string) func(*manifest) {
	return func(m *manifest) {
		c := &m.Containers[0]
		add := c.Env[0]
		add.Name, add.Value, add.ValueFrom.FieldRef.FieldPath = "RDSD_FAIL", point+":1~", ""
		c.Env = append(c.Env, add)
	}
}

// client starts the client's container, in a network namespace in which nothing is up, with another verb of rdsctl.
func (n *ociNode) client(i *image, args ...string) *container {
	n.t.Helper()
	m := n.pods[1].changed()
	m.Containers[0].Command = append([]string{m.Containers[0].Command[0]}, args...)
	return n.start(i, m)
}

// changed returns a copy whose container can be changed.
func (m manifest) changed() manifest {
	m.Containers = slices.Clone(m.Containers)
	c := &m.Containers[0]
	c.Args, c.Env = slices.Clone(c.Args), slices.Clone(c.Env)
	return m
}
