package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func write(t *testing.T, name, doc string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestLoad: each source overrides those before it, and is named as the origin.
func TestLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rdsd.toml")
	write(t, file, "port = 1\nspin = \"1us\"\n\n[limits]\nmax_clients = 5\nmax_sockets = 5\n")
	write(t, file+".d/20-b.toml", "port = 3\n")
	write(t, file+".d/10-a.toml", "port = 2\nspin = \"2us\"\n")
	write(t, file+".d/README", "not read")
	write(t, file+".d/.hidden.toml", "not read")
	s := Sources{File: file, UID: 0,
		Environ: []string{"HOME=/x", "RDSD_SPIN=3us", "RDSD_LIMITS_MAX_CLIENTS=6", "RDSD_LISTEN=127.0.0.2,127.0.0.3", "RDSD_PORT=",
			"RDSD_CONFIG=x", "RDSD_LIMITS_MAX_SOCKET=1", "RDSD_TEST_FULL=1"},
		Flags: []Assignment{{"limits.max_clients", "7"}}}
	l, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, v := range l.Values(l.Origins) {
		if v.Origin != "default" {
			got[v.Name] = v.Value + " " + strings.ReplaceAll(v.Origin, file, "F")
		}
	}
	want := map[string]string{
		"port": "3 F.d/20-b.toml:1", "spin": "3µs RDSD_SPIN", "limits.max_clients": "7 -limits-max-clients",
		"limits.max_sockets": "5 F:6", "listen": "127.0.0.2,127.0.0.3 RDSD_LISTEN",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	warnings := []string{`environment: RDSD_LIMITS_MAX_SOCKET is the variable of no key, meant is perhaps "LIMITS_MAX_SOCKETS" (behind RDSD_)`}
	if !reflect.DeepEqual(l.Warnings, warnings) {
		t.Errorf("warnings %q", l.Warnings)
	}
}

// TestServiceLinks: the variables that Kubernetes sets for a Service called rdsd, and for one called rdsd-tcp, are
// warned of and set nothing. Any other wrong port is an error.
func TestServiceLinks(t *testing.T) {
	s := Sources{UID: 0, Environ: []string{"RDSD_PORT=tcp://10.96.0.7:18634", "RDSD_SERVICE_HOST=10.96.0.7", "RDSD_SERVICE_PORT=18634",
		"RDSD_PORT_18634_TCP=tcp://10.96.0.7:18634", "RDSD_PORT_18634_TCP_PROTO=tcp", "RDSD_PORT_18634_TCP_PORT=18634", "RDSD_PORT_18634_TCP_ADDR=10.96.0.7",
		"RDSD_TCP_PORT=udp://[fd00::7]:16385"}}
	l, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	d := Default()
	if l.Port != d.Port || l.TCP.Port != d.TCP.Port || l.Origins["port"] != "default" || l.Origins["tcp.port"] != "default" {
		t.Errorf("port %d from %s, tcp.port %d from %s", l.Port, l.Origins["port"], l.TCP.Port, l.Origins["tcp.port"])
	}
	want := []string{
		"environment: RDSD_PORT=tcp://10.96.0.7:18634 is ignored: Kubernetes sets it for a Service of that name (enableServiceLinks: false in the pod ends that); the key is port",
		"environment: RDSD_TCP_PORT=udp://[fd00::7]:16385 is ignored: Kubernetes sets it for a Service of that name (enableServiceLinks: false in the pod ends that); the key is tcp.port",
	}
	if !reflect.DeepEqual(l.Warnings, want) {
		t.Errorf("warnings %q", l.Warnings)
	}
	for _, v := range []string{"RDSD_PORT=10.96.0.7:18634", "RDSD_PORT=http://x", "RDSD_CRC=tcp://10.96.0.7:1"} {
		if _, err := (&Sources{Environ: []string{v}}).Load(); err == nil {
			t.Errorf("%s is taken", v)
		}
	}
}

// TestLoadErrors: all mistakes are reported at once.
func TestLoadErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rdsd.toml")
	write(t, file, "prot = 1\n")
	write(t, file+".d/a.toml", "port = 0\n")
	s := Sources{File: file, Environ: []string{"RDSD_CRC=no"}, Flags: []Assignment{{"spin", "x"}}}
	_, err := s.Load()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{file + `:1:1: unknown key "prot", meant is perhaps "port"`, file + ".d/a.toml:1:1: port: 0 is out of range",
		`RDSD_CRC: crc: "no" is none of these`, `-spin: spin: "x" is not a duration`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("does not say %s:\n%v", want, err)
		}
	}
	if _, err := (&Sources{File: file + "x"}).Load(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	write(t, file+"2", "")
	write(t, file+"2.d", "a file where drop-ins should be")
	if _, err := (&Sources{File: file + "2"}).Load(); err == nil || !strings.Contains(err.Error(), "drop-ins") {
		t.Errorf("no folder: %v", err)
	}
}

// TestLoadPlaces: an error about several keys together names the place in the file that set
// its key.
func TestLoadPlaces(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rdsd.toml")
	write(t, file, "# hosts\n  listen = [\"10.0.0.1\"]\n[tcp]\nlanes = 3\n")
	write(t, file+".d/a.toml", "\n[metrics]\nlisten = \"0.0.0.0:1\"\n")
	_, err := (&Sources{File: file}).Load()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		file + ":2:3: listen: 10.0.0.1 is not a loopback address and peers.allow is empty; set peers.allow to the networks of the peers, as in [\"10.0.0.0/24\"]\n    2 |   listen = [\"10.0.0.1\"]\n      |   ^",
		file + ":4:1: tcp.lanes: 3 is no power of two",
		file + ".d/a.toml:3:1: metrics.listen: 0.0.0.0:1 is not a loopback address",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("does not say %s:\n%v", want, err)
		}
	}
	_, err = (&Sources{Environ: []string{"RDSD_LISTEN=10.0.0.1"}}).Load()
	if err == nil || !strings.HasPrefix(err.Error(), "listen: 10.0.0.1 is not") {
		t.Errorf("of a variable: %v", err)
	}
}

func TestCaret(t *testing.T) {
	for _, tc := range []struct{ doc, want string }{
		{"[log]\n\tlevel = 5", "f:2:2: log.level: want a string; allowed: \"debug\", \"info\", \"warn\" or \"error\"\n    2 | \tlevel = 5\n      | \t^"},
		{"port = \"x\"\r\n", "f:1:1: port: want a number; allowed: a number from 1 to 65535, the same on all hosts\n    1 | port = \"x\"\n      | ^"},
		{"log = {level = 5}", "f:1:8: log.level: want a string; allowed: \"debug\", \"info\", \"warn\" or \"error\"\n    1 | log = {level = 5}\n      |        ^"},
		{"port = 0 #" + strings.Repeat("x", 200), "f:1:1: port: 0 is out of range; allowed: a number from 1 to 65535, the same on all hosts"},
	} {
		c := Default()
		err := c.parse("f", []byte(tc.doc), Origins{})
		if err == nil || err.Error() != tc.want {
			t.Errorf("got  %v\nwant %s", err, tc.want)
		}
		if fe, ok := errors.AsType[*FileError](err); !ok || fe.File != "f" {
			t.Errorf("%v is no FileError", err)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"port", "port", 0}, {"prot", "port", 1}, {"por", "port", 1}, {"portt", "port", 1}, {"pxrt", "port", 1}, {"", "abc", 3}, {"abc", "xyz", 3}} {
		if got := distance(tc.a, tc.b); got != tc.want {
			t.Errorf("%q to %q: %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}

// other is a valid value of each key that is not its default.
var other = map[string]string{
	"socket": "/s", "socket_mode": "0600", "listen": "127.0.0.9,::1", "port": "7", "peers.allow": "10.0.0.0/8,fd00::/8,10.1.1.1,hostb.example.org", "crc": "on", "spin": "1ms", "wait": "block", "cpus": "0,2-3",
	"recv_hard_cap": "2MiB", "ping": "ignore", "sandbox": "off", "congestion": "system", "stats": "/st", "metrics.listen": "127.0.0.1:1",
	"keys.strict": "uid=1,everybody", "quota.overrides": "uid=1 sockets=2,gid=3 queued_bytes=4MiB,account=pod7 grants=5", "quota.accounts": "kubernetes,/system.slice/*.service,/batch.slice batch", "bind.rules": "allow uid=1 port=4-5,deny address=10.0.0.0/8", "bind.default": "deny", "upgrade.token": "/t",
	"tcp.peers": "10.0.0.7/32,fd00::/8", "transport": "verbs", "transport_rules": "verbs local=10.0.0.1,tcp local=10.0.0.2 peer=10.0.0.0/24,soft", "tls.mode": "on", "tls.cert": "/c", "tls.key": "/k", "tls.ca": "/a", "tls.names": "10.0.0.2 host2.example.org,fd00::/8 other", "tls.warn": "off", "tcp.lanes": "4", "tcp.timeout": "1m0s",
	"log.level": "debug", "log.format": "json", "peers.control_per_s": "5000", "peers.messages_per_s": "5000", "peers.silence": "45s", "peers.paths": "4", "peers.explain": "off", "peers.kernel": "10.0.0.9/32",
}

// TestValuesRoundTrip: every key accepts the form in which it is shown, so that a reload
// can copy values, and Diff finds what differs.
func TestValuesRoundTrip(t *testing.T) {
	for i, k := range Keys() {
		a, b := Default(), Default()
		v, ok := other[k.Name]
		if !ok {
			v = "5MiB"
			if !strings.Contains(k.Allowed, "bytes") {
				v = "5"
			}
		}
		if err := b.Set(k.Name, v); err != nil {
			t.Errorf("%s has no other value in this test: %v", k.Name, err)
			continue
		}
		ch := a.Diff(&b)
		if len(ch) != 1 || ch[0].Name != k.Name || ch[0].New != v {
			t.Errorf("%s: differences %+v", k.Name, ch)
		}
		if err := a.Set(k.Name, b.Values(nil)[i].Value); err != nil || len(a.Diff(&b)) != 0 {
			t.Errorf("%s does not take %q: %v", k.Name, v, err)
		}
		c := Default()
		c.ApplyLive(&b)
		if got := len(c.Diff(&b)) == 0; got != k.Live {
			t.Errorf("%s: applied live: %v, want %v", k.Name, got, k.Live)
		}
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range Keys() {
		seen[EnvName(k.Name)], seen[FlagName(k.Name)] = true, true
	}
	if len(seen) != 2*len(Keys()) || seen[FileEnv] || !seen["RDSD_PEERS_ALLOW"] || !seen["peers-allow"] {
		t.Errorf("names of variables and flags: %s", fmt.Sprint(slices.Sorted(func(yield func(string) bool) {
			for s := range seen {
				if !yield(s) {
					return
				}
			}
		})))
	}
}

// TestDocs: the documentation is a valid file, and sets only defaults.
func TestDocs(t *testing.T) {
	doc := Docs()
	c := Default()
	if err := c.parse("docs", []byte(doc), Origins{}); err != nil {
		t.Fatal(err)
	}
	if len(c.Diff(new(Default()))) != 0 {
		t.Error("the comments set something")
	}
	set := strings.Builder{}
	n := 0
	for line := range strings.Lines(doc) {
		if strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "# ") {
			set.WriteString(line[1:])
			n++
		}
	}
	if err := c.parse("docs", []byte(set.String()), Origins{}); err != nil {
		t.Fatal(err)
	}
	if d := c.Diff(new(Default())); len(d) != 0 || n != len(Keys()) {
		t.Errorf("%d keys of %d, and these differ: %+v", n, len(Keys()), d)
	}
}
