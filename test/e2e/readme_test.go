package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// netHost is a shell in namespaces of its own. It has a network with the address, and an empty
// /etc/rdsd, /run and /usr/local/bin.
type netHost struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	in   io.Writer
	out  *bufio.Reader
	n    int
}

// newNetHost starts a host. root is the tree, with the programs in bin/.
func newNetHost(t *testing.T, name, root string) *netHost {
	t.Helper()
	h := &netHost{t: t, name: name, cmd: exec.Command("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "bash", "-s")}
	h.cmd.Dir = root
	h.cmd.Env = append(os.Environ(), "PATH=/usr/local/bin:"+os.Getenv("PATH"), "RDSD_SOCKET=")
	in, err := h.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.cmd.Stderr = h.cmd.Stdout
	h.in, h.out = in, bufio.NewReader(out)
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = h.cmd.Process.Kill() // unshare's child dies with it, and so does its pid namespace
		_ = h.cmd.Wait()
	})
	if os.Mkdir("/etc/rdsd", 0o755) == nil { // something must be there to mount over
		t.Cleanup(func() { _ = os.Remove("/etc/rdsd") })
	}
	h.run(`mount -t proc proc /proc
for d in /etc/rdsd /run /usr/local/bin; do mount -t tmpfs tmpfs $d; done
unset RDSD_SOCKET
ip link set lo up`)
	return h
}

// run has the shell execute a block. It returns the output of the block and of its background
// jobs until the block is done. A command that fails fails the test.
func (h *netHost) run(block string) string {
	h.t.Helper()
	h.n++
	end := fmt.Sprintf("-- end of block %d: ", h.n)
	// A command that fails must not end the shell, because later blocks need its jobs.
	fmt.Fprintf(h.in, "trap 's=$?; [ $s_seen ] || { s_seen=1; first=$s; }' ERR\nunset s_seen; first=0\n%s\necho \"%s$first\"\n", block, end)
	var all strings.Builder
	for {
		line, err := h.out.ReadString('\n')
		if before, status, ok := strings.Cut(line, end); ok {
			all.WriteString(before)
			if strings.TrimSpace(status) != "0" {
				h.t.Fatalf("%s: status %s of\n%s\n%s", h.name, strings.TrimSpace(status), block, &all)
			}
			h.t.Logf("%s:\n%s\n%s", h.name, block, &all)
			return all.String()
		}
		all.WriteString(line)
		if err != nil {
			h.t.Fatalf("%s: %v\n%s\n%s", h.name, err, block, &all)
		}
	}
}

// pid returns the pid of the host's shell in this namespace.
func (h *netHost) pid() string {
	h.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", h.cmd.Process.Pid, h.cmd.Process.Pid))
	pids := strings.Fields(string(b))
	if err != nil || len(pids) != 1 {
		h.t.Fatalf("children of unshare: %q, %v", b, err)
	}
	return pids[0]
}

// twoHosts returns two hosts that are connected by one wire, in a folder that has the programs in bin/.
func twoHosts(t *testing.T) (a, b *netHost) {
	t.Helper()
	needNetHosts(t)
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"rdsd", "rdsctl"} {
		cmd := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(root, "bin", p), "../../cmd/"+p)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
	return wiredHosts(t, root)
}

// needNetHosts skips the test where there cannot be hosts in namespaces.
func needNetHosts(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root")
	}
	for _, tool := range []string{"unshare", "ip", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed: apt-get install -y --no-install-recommends util-linux iproute2 bash", tool)
		}
	}
	if out, err := exec.Command("unshare", "--net", "--mount", "--pid", "--fork", "true").CombinedOutput(); err != nil {
		t.Skipf("network namespaces are not permitted here: %s", out)
	}
}

// wiredHosts returns two hosts that are connected by one wire.
func wiredHosts(t *testing.T, root string) (a, b *netHost) {
	t.Helper()
	a, b = newNetHost(t, "host A", root), newNetHost(t, "host B", root)
	out, err := exec.Command("nsenter", "--net=/proc/"+a.pid()+"/ns/net", "ip", "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", b.pid()).CombinedOutput()
	if err != nil {
		t.Fatalf("a wire between the hosts: %v: %s", err, out)
	}
	for h, addr := range map[*netHost]string{a: "10.0.0.1", b: "10.0.0.2"} {
		h.run("ip addr add " + addr + "/24 dev wire && ip link set wire up")
	}
	return a, b
}

var fence = regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```$")

// blocks returns the fenced blocks of a section of a document.
func blocks(t *testing.T, doc, section string) (all []string) {
	t.Helper()
	b, err := os.ReadFile("../../" + doc)
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(b), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("%s has no section %q", doc, section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// ready is a command that waits until the daemon answers.
const ready = "for i in $(seq 200); do rdsctl status >/dev/null 2>&1 && break; sleep 0.05; done; rdsctl status >/dev/null"

// TestReadmeTwoHosts runs the commands of the README as they are written.
func TestReadmeTwoHosts(t *testing.T) {
	a, b := twoHosts(t)
	did := map[string]int{}
	for _, block := range blocks(t, "README.md", "Two hosts") {
		who, _, _ := strings.Cut(block, "\n")
		did[who]++
		var out string
		switch who {
		case "# both hosts":
			a.run(block)
			b.run(block)
		case "# host A":
			out = a.run(block)
		case "# host B":
			out = b.run(block)
		default:
			t.Fatalf("a block is for nobody: %q", who)
		}
		switch { // what the README leaves to the reader
		case strings.Contains(block, "rdsd -listen"):
			map[string]*netHost{"# host A": a, "# host B": b}[who].run(ready)
		case strings.Contains(block, "rdsctl ping"):
			if !strings.Contains(out, "3 received") && !strings.Contains(out, "usec") {
				t.Errorf("ping said:\n%s", out)
			}
			b.run("for i in $(seq 200); do ss -ltn 2>/dev/null | grep -q :4000 && break; sleep 0.05; done")
		case strings.Contains(block, "rdsctl peers"):
			if !strings.Contains(out, "10.0.0.2") || !strings.Contains(out, "up") {
				t.Errorf("peers said:\n%s", out)
			}
		}
	}
	if did["# both hosts"] != 1 || did["# host A"] != 2 || did["# host B"] != 2 {
		t.Errorf("blocks: %v", did)
	}
}

// TestOperationsTwoHostsSafely makes certificates as docs/operations.md says, and connects with
// them.
func TestOperationsTwoHostsSafely(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed: apt-get install -y --no-install-recommends openssl")
	}
	a, b := twoHosts(t)
	all := blocks(t, "docs/operations.md", "Two hosts safely")
	if len(all) != 3 {
		t.Fatalf("%d blocks, want the authority, a certificate, a configuration", len(all))
	}
	ca := t.TempDir()
	a.run("cd " + ca + "\n" + all[0])
	for h, addr := range map[*netHost]string{a: "10.0.0.1", b: "10.0.0.2"} {
		h.run("cd " + ca + "\n" + strings.ReplaceAll(all[1], "10.0.0.1", addr))
		h.run("mkdir -p /etc/rdsd/tls && cp cert.pem key.pem ca.pem /etc/rdsd/tls/ && chmod 600 /etc/rdsd/tls/key.pem\n" +
			"cp " + h.cmd.Dir + "/bin/* /usr/local/bin/; mkdir -p /run/rdsd\n" +
			"cat >/etc/rdsd/rdsd.toml <<EOF\n" + strings.ReplaceAll(all[2], `listen = ["10.0.0.1"]`, `listen = ["`+addr+`"]`) + "EOF\n" +
			"rdsd -config /etc/rdsd/rdsd.toml &\n" + ready)
	}
	b.run("rdsctl ping 10.0.0.1 -c 2")
	if out := a.run("rdsctl peers -o wide"); !strings.Contains(out, "TLS_AES") && !strings.Contains(out, "AES") && !strings.Contains(out, "CHACHA") {
		t.Errorf("peers shows no cipher suite:\n%s", out)
	}
}
