package e2e

import (
	"strings"
	"testing"
)

// TestLocalPeer: a process without rights starts a daemon of its own at another address of the
// host. The host's daemon, whose peers.allow has the network of both, takes nothing from it and
// connects to nothing there, until peers.allow names that address. Other hosts of the network
// are peers all the time, also where processes may bind addresses that are not the host's.
func TestLocalPeer(t *testing.T) {
	a, b := twoHosts(t)
	a.run("ip addr add 10.0.0.5/24 dev wire; for i in 1 5; do ip addr add fd00::$i/64 dev wire nodad; done; sysctl -qw net.ipv4.ip_nonlocal_bind=1")
	b.run("ip addr add fd00::2/64 dev wire nodad")
	for _, h := range []*netHost{a, b} {
		h.run("cp bin/* /usr/local/bin/; mkdir -p /run/rdsd /run/other; chmod 777 /run/other; touch /run/other/c")
	}
	a.run(`cat >/etc/rdsd/rdsd.toml <<E
listen = ["10.0.0.1", "fd00::1"]
peers.allow = ["10.0.0.0/24", "fd00::/64"]
tls.mode = "off"
E
rdsd -config /etc/rdsd/rdsd.toml 2>/run/rdsd.log &
` + ready)
	b.run("rdsd -tls-mode off -listen 10.0.0.2,fd00::2 -peers-allow 10.0.0.0/24,fd00::/64 2>/run/rdsd.log &\n" + ready)
	a.run(`setpriv --reuid 65534 --regid 65534 --clear-groups rdsd -config /run/other/c -tls-mode off -peers-allow 10.0.0.1,fd00::1 -socket /run/other/s -listen 10.0.0.5,fd00::5 2>/run/other/log &
for i in $(seq 600); do [ -S /run/other/s ] && break; sleep 0.05; done; [ -S /run/other/s ] || cat /run/other/log`)

	for _, to := range []string{"10.0.0.2", "fd00::2"} {
		a.run("rdsctl ping -c 1 -timeout 20s " + to)
	}
	for _, to := range []string{"10.0.0.1", "fd00::1"} {
		a.run("! rdsctl -socket /run/other/s ping -c 1 -timeout 2s " + to)
		b.run("rdsctl ping -c 1 -timeout 20s " + to)
	}
	for _, own := range []string{"10.0.0.5", "fd00::5"} {
		out := a.run("rdsctl ping -c 1 -timeout 2s " + own + " 2>&1 && echo it answers || true")
		if want := own + " to peers.allow"; !strings.Contains(out, "is an address of this host") || !strings.Contains(out, want) {
			t.Errorf("a ping to %s: %q, want %q", own, out, want)
		}
		if log := a.run("cat /run/rdsd.log"); !strings.Contains(log, own+" to peers.allow") {
			t.Errorf("the log does not say why %s was refused:\n%s", own, log)
		}
	}

	a.run("sed -i 's|.10.0.0.0/24.|\"10.0.0.5\", \"fd00::5\", &|' /etc/rdsd/rdsd.toml; rdsctl config reload")
	for _, to := range []string{"10.0.0.1", "fd00::1"} {
		a.run("rdsctl -socket /run/other/s ping -c 1 -timeout 20s " + to)
	}
}
