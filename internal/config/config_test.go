package config

import (
	"errors"
	"log/slog"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

func noEnv(string) string { return "" }

func TestParse(t *testing.T) {
	const file = `
# every key
socket = "/tmp/x.sock"
socket_mode = "0600"
listen = ["10.0.0.1", "::ffff:127.0.0.2",
  "fd00::1", # a comment inside
]
port = 1_234
crc = "on"
spin = "1ms"
recv_hard_cap = 2097152
ping = "ignore"
congestion = "system"
transport = "verbs"
transport_rules = ["soft local=127.0.0.2 peer=127.0.0.0/8", "auto"]
sandbox = "off"
stats = "/tmp/x.stats"
metrics.listen = "[::1]:9464"
log = { level = "debug", format = "json" }

[peers]
allow = ["10.0.0.0/24", "fd00::/64", "HostB"]
control_per_s = 5000
messages_per_s = 0
bytes_per_s = "100MiB"
silence = "45s"
paths = 4
kernel = ["10.0.0.9/32"]

[tls]
mode = "off"
cert = "/c"
key = "/k"
ca = "/a"
names = ["10.0.0.2 host2"]
warn = "off"

[tcp]
peers = ["10.0.0.7/32"]
port = 99
lanes = 2
timeout = "1m"

[limits]
max_clients = 1
max_sockets = 2
max_registered_bytes = "3GiB"
max_held_bytes = "8MiB"

[quota]
clients = 1
sockets = 2
destinations = 3
operations = 0
grants = 4
registered_bytes = "5MiB"
queued_bytes = 6
overrides = ["uid=7 sockets=8", "gid=9 registered_bytes=1GiB operations=10"]

[bind]
default = "deny"
rules = ["allow uid=7 gid=9 address=127.0.0.0/8 port=4000-4999", "deny address=::1 port=5", "allow"]
`
	want := Config{
		Socket: "/tmp/x.sock", SocketMode: 0o600,
		Listen: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("fd00::1")},
		Port:   1234, CRC: CRCOn, IOThreads: AutoThreads, Spin: time.Millisecond, RecvHardCap: 2 << 20, Ping: PingIgnore, Congestion: CongestionSystem, Sandbox: SandboxOff, Transport: TransportVerbs,
		TransportRules: []TransportRule{{Transport: TransportSoft, Local: netip.MustParsePrefix("127.0.0.2/32"), Peer: netip.MustParsePrefix("127.0.0.0/8")}, {Transport: TransportAuto}},
		Stats:          "/tmp/x.stats",
		Peers:          Peers{Allow: []Allowed{{Net: netip.MustParsePrefix("10.0.0.0/24")}, {Net: netip.MustParsePrefix("fd00::/64")}, {Name: "hostb"}}, Control: 5000, Messages: 0, Bytes: 100 << 20, Silence: 45 * time.Second, Paths: 4, Explain: ExplainOn, Kernel: []netip.Prefix{netip.MustParsePrefix("10.0.0.9/32")}},
		TLS:            TLS{Mode: TLSOff, Warn: WarnOff, Cert: "/c", Key: "/k", CA: "/a", Names: []PeerName{{netip.MustParsePrefix("10.0.0.2/32"), "host2"}}},
		TCP:            TCP{Peers: []netip.Prefix{netip.MustParsePrefix("10.0.0.7/32")}, Port: 99, Lanes: 2, Timeout: time.Minute},
		Limits:         Limits{MaxClients: 1, MaxSockets: 2, MaxRegisteredBytes: 3 << 30, MaxHeldBytes: 8 << 20},
		Quota: Quotas{
			User: Quota{Clients: 1, Sockets: 2, Destinations: 3, Operations: 0, Grants: 4, RegisteredBytes: 5 << 20, QueuedBytes: 6},
			Overrides: []Override{
				{Who: UID(7), Set: [NumResources]bool{Sockets: true}, Quota: Quota{Sockets: 8}},
				{Who: GID(9), Set: [NumResources]bool{RegisteredBytes: true, Operations: true}, Quota: Quota{RegisteredBytes: 1 << 30, Operations: 10}},
			}},
		Bind: Bind{Default: Deny, Rules: []Rule{
			{Verdict: Allow, Who: Who{id{7, true}, id{9, true}}, Addr: netip.MustParsePrefix("127.0.0.0/8"), Lo: 4000, Hi: 4999},
			{Verdict: Deny, Addr: netip.MustParsePrefix("::1/128"), Lo: 5, Hi: 5},
			{Verdict: Allow, Hi: 65535},
		}},
		Metrics: Metrics{Listen: netip.MustParseAddrPort("[::1]:9464")},
		Log:     Log{Level: slog.LevelDebug, Format: "json"},
	}
	got := Default()
	if err := got.parse("f", []byte(file), Origins{}); err != nil {
		t.Fatal(err)
	}
	if err := got.Finish(0, noEnv); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// Any process of this host can connect from its addresses. So an address of this host, of
// which loopback is known to be one, is permitted only if peers.allow names it literally, or
// if no other host reaches the daemon.
func TestPeersAllowed(t *testing.T) {
	const no, yes, elsewhere = Forbidden, Permitted, Elsewhere
	for _, tc := range []struct {
		name, listen, allow string
		want                map[string]Permission
	}{
		{"loopback alone", "127.0.0.1,::1", "", map[string]Permission{"127.0.0.9": yes, "::1": yes, "::ffff:127.0.0.2": yes, "10.1.2.200": no}},
		{"loopback alone, with others allowed", "127.0.0.1", "10.1.2.0/24", map[string]Permission{"127.0.0.9": yes, "10.1.2.200": elsewhere}},
		{"a network", "10.1.2.3", "10.1.2.0/24, fd00::/64", map[string]Permission{
			"127.0.0.9": no, "::1": no, "::ffff:127.0.0.9": no, "10.1.2.200": elsewhere, "::ffff:10.1.2.200": elsewhere, "10.1.3.1": no,
			"fd00::7": elsewhere, "fd00:0:0:1::7": no, "0.0.0.0": no}},
		{"a network and loopback", "10.1.2.3,127.0.0.1", "10.1.2.0/24", map[string]Permission{"127.0.0.9": no, "::1": no, "10.1.2.200": elsewhere}},
		{"loopback allowed", "10.1.2.3,127.0.0.1", "10.1.2.0/24, 127.0.0.8/31", map[string]Permission{"127.0.0.9": yes, "127.0.0.10": no, "::1": no}},
		{"all of loopback", "10.1.2.3", "127.0.0.0/8,::1", map[string]Permission{"127.3.2.1": yes, "::1": yes, "10.1.2.200": no}},
		{"everything", "10.1.2.3", "0.0.0.0/0,::/0", map[string]Permission{
			"127.0.0.9": no, "::1": no, "0.0.0.0": no, "::": no, "224.0.0.1": no, "ff02::1": no, "10.1.2.200": elsewhere, "fd00::1": elsewhere}},
		{"addresses", "10.1.2.3", "10.1.2.4,fd00::4,10.1.2.0/24,10.1.2.6/31", map[string]Permission{
			"10.1.2.4": yes, "::ffff:10.1.2.4": yes, "fd00::4": yes, "10.1.2.5": elsewhere, "10.1.2.6": elsewhere}},
	} {
		c := Default()
		for _, kv := range [][2]string{{"listen", tc.listen}, {"tls.mode", "off"}, {"peers.allow", tc.allow}} {
			if err := c.Set(kv[0], kv[1]); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Finish(0, noEnv); err != nil {
			t.Fatal(err)
		}
		c.Peers.Allow = append(c.Peers.Allow, Allowed{Name: "self", Addrs: []netip.Addr{netip.MustParseAddr("127.0.1.1"), netip.MustParseAddr("0.0.0.0")}})
		for addr, want := range tc.want {
			if got := c.Peer(netip.MustParseAddr(addr)); got != want {
				t.Errorf("%s: %s: %v, want %v", tc.name, addr, got, want)
			}
		}
		if want := c.Peer(netip.MustParseAddr("127.0.1.2")); c.Peer(netip.MustParseAddr("127.0.1.1")) != want || c.Peer(netip.MustParseAddr("0.0.0.0")) != no {
			t.Errorf("%s: a name makes a loopback address a peer", tc.name)
		}
	}
}

func TestDefaultSocket(t *testing.T) {
	for _, tc := range []struct {
		uid  int
		xdg  string
		want string
	}{
		{0, "/run/user/0", "/run/rdsd/rdsd.sock"},
		{7, "/run/user/7", "/run/user/7/rdsd.sock"},
		{7, "", ""},
	} {
		c := Default()
		err := c.Finish(tc.uid, func(k string) string { return map[string]string{"XDG_RUNTIME_DIR": tc.xdg}[k] })
		if tc.want == "" {
			if !errors.Is(err, ErrNoSocketPath) || !strings.Contains(err.Error(), "use --socket PATH or RDSD_SOCKET") {
				t.Errorf("uid %d: %v", tc.uid, err)
			}
		} else if err != nil || c.Socket != tc.want || c.Stats != tc.want+".stats" {
			t.Errorf("uid %d: socket %q, stats %q, %v", tc.uid, c.Socket, c.Stats, err)
		}
	}
}

// Each field has a key. Each key has a default that can be written back, a sentence of
// documentation, and a list of allowed values.
func TestKeysAreComplete(t *testing.T) {
	keys := Keys()
	var fields func(reflect.Type) int
	fields = func(typ reflect.Type) (n int) {
		for f := range typ.Fields() {
			switch f.Type {
			case reflect.TypeFor[Peers](), reflect.TypeFor[TCP](), reflect.TypeFor[TLS](), reflect.TypeFor[Limits](), reflect.TypeFor[Quotas](), reflect.TypeFor[Bind](), reflect.TypeFor[Metrics](), reflect.TypeFor[Log]():
				n += fields(f.Type)
			case reflect.TypeFor[Quota]():
				n += f.Type.Len()
			default:
				n++
			}
		}
		return n
	}
	if n := fields(reflect.TypeFor[Config]()); n != len(keys) {
		t.Errorf("%d fields, %d keys", n, len(keys))
	}
	for _, k := range keys {
		if !strings.HasSuffix(k.Doc, ".") || k.Allowed == "" {
			t.Errorf("%s: doc %q, allowed %q", k.Name, k.Doc, k.Allowed)
		}
		c := Default()
		if err := c.Set(k.Name, k.Default); err != nil {
			t.Errorf("its own default is refused: %v", err)
		}
		if got := c; !reflect.DeepEqual(normal(got), normal(Default())) {
			t.Errorf("%s: setting the default changed the configuration: %+v", k.Name, got)
		}
	}
	c := Default()
	if err := c.Set("nonsense", "1"); err == nil || err.Error() != `unknown key "nonsense"` {
		t.Errorf("unknown key: %v", err)
	}
}

func normal(c Config) Config {
	if len(c.Peers.Allow) == 0 {
		c.Peers.Allow = nil
	}
	if len(c.TLS.Names) == 0 {
		c.TLS.Names = nil
	}
	if len(c.Peers.Kernel) == 0 {
		c.Peers.Kernel = nil
	}
	if len(c.TCP.Peers) == 0 {
		c.TCP.Peers = nil
	}
	if len(c.TransportRules) == 0 {
		c.TransportRules = nil
	}
	if len(c.CPUs) == 0 {
		c.CPUs = nil
	}
	if len(c.Quota.Overrides) == 0 {
		c.Quota.Overrides = nil
	}
	if len(c.Quota.Accounts) == 0 {
		c.Quota.Accounts = nil
	}
	if len(c.Keys.Strict) == 0 {
		c.Keys.Strict = nil
	}
	if len(c.Bind.Rules) == 0 {
		c.Bind.Rules = nil
	}
	return c
}

func FuzzParse(f *testing.F) {
	f.Add("port = 1\n[log]\nlevel = \"debug\"\n")
	f.Add("listen = [\"127.0.0.1\", # x\n]\nlog = {format = \"json\"}")
	f.Add("[[a]]\nb.c.d = [{e = 1}]\n")
	f.Add("\"\" = 1\n'a.b' = 0x10")
	f.Fuzz(func(t *testing.T, doc string) {
		c := Default()
		if err := c.parse("f", []byte(doc), Origins{}); err != nil {
			if !strings.HasPrefix(err.Error(), "f:") {
				t.Fatalf("an error without its file: %v", err)
			}
		}
	})
}

// A certificate also secures loopback. Without a certificate only a listen address on
// loopback needs no TLS.
func TestSecured(t *testing.T) {
	for _, tc := range []struct {
		mode      TLSMode
		cert      string
		secured   bool
		far, near bool // WantsTLS of an address elsewhere, and on loopback
	}{{TLSAuto, "", false, true, false}, {TLSAuto, "/c", true, true, true}, {TLSOn, "/c", true, true, true}, {TLSOff, "/c", false, false, false}} {
		c := Config{TLS: TLS{Mode: tc.mode, Cert: tc.cert}}
		if got := c.Secured(); got != tc.secured {
			t.Errorf("%s, certificate %q: secured %v", tc.mode, tc.cert, got)
		}
		for addr, want := range map[string]bool{"10.0.0.1": tc.far, "fd00::1": tc.far, "127.0.0.1": tc.near, "::1": tc.near} {
			if got := c.WantsTLS(netip.MustParseAddr(addr)); got != want {
				t.Errorf("%s, certificate %q: %s wants TLS: %v", tc.mode, tc.cert, addr, got)
			}
		}
	}
}

// Without a number there are threads for the CPUs beyond two, which only help.
func TestThreads(t *testing.T) {
	for cpus, want := range map[int]int{1: 0, 2: 0, 3: 1, 6: 4, 64: 4} {
		c := Default()
		if n, spill := c.Threads(cpus); n != want || !spill {
			t.Errorf("%d CPUs: %d threads, spill %v", cpus, n, spill)
		}
		if err := c.parse("f", []byte("io.threads = 3"), Origins{}); err != nil {
			t.Fatal(err)
		}
		if n, spill := c.Threads(cpus); n != 3 || spill {
			t.Errorf("%d CPUs, 3 threads wanted: %d threads, spill %v", cpus, n, spill)
		}
		if err := c.parse("f", []byte(`io.threads = "auto"`), Origins{}); err != nil || c.IOThreads != AutoThreads {
			t.Errorf("auto: %d, %v", c.IOThreads, err)
		}
	}
	for _, bad := range []string{"17", "-1", `"many"`} {
		c := Default()
		if err := c.parse("f", []byte("io.threads = "+bad), Origins{}); err == nil || !strings.Contains(err.Error(), `allowed: "auto" or a number from 0 to 16`) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
