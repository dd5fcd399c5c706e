package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// narrowPath has host h drop what arrives in packets of more than 1,300 bytes, without a word. TCP hands the wire segments
// and not bursts, which would be dropped whatever their segments are.
const narrowPath = `ip link set wire gso_max_segs 1
nft -f - <<'END'
add table ip hole
add chain ip hole in { type filter hook input priority 0; }
add rule ip hole in iifname wire ip length > 1300 drop
END`

// twoNarrow are two hosts with a wire and their daemons. flags returns flags of the daemon at an address.
func twoNarrow(t *testing.T, flags func(addr string) string) (a, b *netHost) {
	t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("nft is not installed: apt-get install -y --no-install-recommends nftables")
	}
	a, b = twoHosts(t)
	for h, addr := range map[*netHost]string{a: "10.0.0.1", b: "10.0.0.2"} {
		h.run("export RDSD_SOCKET=/run/rdsd.sock\n" + fmt.Sprintf("cp bin/* /usr/local/bin/; rdsd -socket /run/rdsd.sock -listen %s -peers-allow 10.0.0.0/24 -peers-silence 3s %s >/run/rdsd.log 2>&1 &\n", addr, flags(addr)) + ready)
	}
	return a, b
}

// found fails unless the host has found out that large packets do not pass.
func (h *netHost) found() {
	h.t.Helper()
	if out := h.run("bin/rdsctl events"); !strings.Contains(out, "large packets do not pass") {
		h.t.Errorf("%s: events:\n%s\n%s", h.name, out, h.run("cat /run/rdsd.log"))
	}
	if out := h.run("bin/rdsctl doctor || true"); !strings.Contains(out, "large packets do not pass on the way to 10.0.0.") {
		h.t.Errorf("%s: doctor:\n%s", h.name, out)
	}
}

// TestBlackHole has two hosts between which large packets vanish without a word. The side that sends large ones finds it out, whichever
// has dialled: their connection goes on with smaller segments, and the operator is told.
func TestBlackHole(t *testing.T) {
	for _, sender := range []string{"10.0.0.1", "10.0.0.2"} {
		t.Run("from "+sender, func(t *testing.T) {
			a, b := twoNarrow(t, func(string) string { return "-tls-mode off" })
			from, to, other := a, "10.0.0.2", b
			if sender == "10.0.0.2" {
				from, to, other = b, "10.0.0.1", a
			}
			a.run("bin/rdsctl ping 10.0.0.2 -c 1") // A dials
			a.run(narrowPath)
			b.run(narrowPath)
			if out := from.run("bin/rdsctl ping " + to + " -size 8000 -c 1 -timeout 2500ms 2>&1 || true"); !strings.Contains(out, "large packets do not pass") {
				t.Errorf("a large ping: %s", out)
			}
			other.run("bin/rdsctl stress -p 4000 >/run/stress.log 2>&1 & true")
			out := from.run("timeout 100 bin/rdsctl stress -s " + to + " --connect-retries 20 -p 4000 -q 16384 -o -T 6 -z; bin/rdsctl peers -o json-v2")
			if !strings.Contains(out, `"max_segment": 1220`) {
				t.Errorf("the peers: %s", out)
			}
			from.found()
		})
	}
}

// TestBlackHoleTLS has a path that not even the handshake of TLS passes: certificates are large.
func TestBlackHoleTLS(t *testing.T) {
	ca := tlstest.NewCA(t)
	a, b := twoNarrow(t, func(addr string) string {
		dir, addrs := t.TempDir(), []string{addr}
		for i := range 200 { // what makes the certificate large
			addrs = append(addrs, fmt.Sprintf("192.0.2.%d", i))
		}
		ca.Write(t, dir, tlstest.IPs(addrs...))
		return fmt.Sprintf("-tls-cert %s/cert.pem -tls-key %[1]s/key.pem -tls-ca %[1]s/ca.pem", dir)
	})
	a.run(narrowPath)
	b.run(narrowPath)
	a.run("bin/rdsctl ping 10.0.0.2 -c 1 -timeout 60s || { cat /run/rdsd.log; bin/rdsctl events; exit 1; }")
	a.found()
	if out := a.run("bin/rdsctl ping 10.0.0.2 -c 1 -size 65536"); !strings.Contains(out, "1 received") {
		t.Errorf("a large ping, in smaller segments: %s", out)
	}
}

// TestBlackHoleRDSTCP has RDS/TCP on such a path. Its peer may be a kernel, which asks for no smaller
// segments. The host's TCP finds a size that passes, if the host lets it look.
func TestBlackHoleRDSTCP(t *testing.T) {
	for _, sender := range []string{"10.0.0.1", "10.0.0.2"} {
		t.Run("from "+sender, func(t *testing.T) {
			a, b := twoNarrow(t, func(string) string { return "-tls-mode off -tcp-peers 10.0.0.0/24" })
			from, to := a, "10.0.0.2"
			if sender == "10.0.0.2" {
				from, to = b, "10.0.0.1"
			}
			a.run("bin/rdsctl ping 10.0.0.2 -c 1")
			for _, h := range []*netHost{a, b} {
				h.run("sysctl -q -w net.ipv4.tcp_mtu_probing=1")
				h.run(narrowPath)
			}
			if out := from.run("bin/rdsctl ping " + to + " -size 65536 -c 1 -timeout 60s"); !strings.Contains(out, "1 received") {
				t.Errorf("a large ping: %s\n%s", out, from.run("cat /run/rdsd.log"))
			}
		})
	}
}
