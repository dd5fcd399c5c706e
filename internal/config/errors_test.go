package config

import (
	"slices"
	"strings"
	"testing"
)

func TestParseErrors(t *testing.T) {
	const top = "socket, socket_mode, listen, port, peers.allow, peers.control_per_s, peers.messages_per_s, peers.bytes_per_s, peers.kernel, peers.silence, peers.paths, peers.explain, tls.mode, tls.cert, tls.key, tls.ca, tls.names, tls.warn, tcp.peers, tcp.port, tcp.lanes, tcp.timeout, crc, spin, wait, cpus, io.threads, recv_hard_cap, ping, congestion, transport, transport_rules, stats, upgrade.token, limits.max_clients, limits.max_sockets, limits.max_registered_bytes, limits.max_held_bytes, quota.overrides, quota.accounts, keys.strict, bind.rules, bind.default, metrics.listen, sandbox, log.level, log.format, quota.clients, quota.sockets, quota.destinations, quota.operations, quota.grants, quota.registered_bytes, quota.queued_bytes"
	for _, tc := range []struct {
		name, file string
		want       []string // one a line
	}{
		{"unknown key", "\nlisten_on = 1", []string{`f:2:1: unknown key "listen_on", meant is perhaps "listen"; allowed here: ` + top}},
		{"unknown key in a table", "[peers]\n  alow = []", []string{`f:2:3: unknown key "peers.alow", meant is perhaps "peers.allow"; allowed here: allow, control_per_s, messages_per_s, bytes_per_s`}},
		{"unknown dotted key", `log.lvl = "x"`, []string{`f:1:1: unknown key "log.lvl", meant is perhaps "log.level"; allowed here: level, format`}},
		{"unknown in inline table", `log = {lvl = 1}`, []string{`f:1:8: unknown key "log.lvl", meant is perhaps "log.level"; allowed here: level, format`}},
		{"below a key", `port.x = 1`, []string{`f:1:1: unknown key "port.x", meant is perhaps "port"; allowed here: ` + top}},
		{"unknown table, reported once", "[tsl]\ncert = 1\nkey = 2", []string{`f:1:2: unknown table "tsl"; allowed here: ` + top}},
		{"array of tables", "[[log]]", []string{`f:1:3: "log" is a table, write [log]`}},
		{"table given a value", "log = 3", []string{`f:1:1: "log" is a table; allowed in it: level, format`}},
		{"several", "port = 0\nspim = 1\ncrc = true", []string{
			"f:1:1: port: 0 is out of range; allowed: a number from 1 to 65535, the same on all hosts",
			`f:2:1: unknown key "spim", meant is perhaps "spin"; allowed here: ` + top,
			`f:3:1: crc: want a string; allowed: "auto", "on" or "off"`,
		}},
		{"BOM", "\xef\xbb\xbfport = 1\n", []string{"f: not TOML: the file begins with the byte order mark of UTF-8 (EF BB BF); save it as UTF-8 without a byte order mark (BOM)"}},
		{"UTF-16", "\xff\xfep\x00", []string{"f: not TOML: the file begins with the byte order mark of UTF-16 (FF FE); save it as UTF-8"}},
		{"UTF-16, big-endian", "\xfe\xff\x00p", []string{"f: not TOML: the file begins with the byte order mark of UTF-16 (FE FF); save it as UTF-8"}},
		{"syntax", "port = \n", []string{"f:1:8: not TOML: "}},
		{"twice", "port = 1\nport = 2", []string{"f:2:1: not TOML: key port is already defined"}},
		{"twice in a table", "[tls]\n mode = 'on'\n # mode\n mode = 'on'", []string{"f:4:2: not TOML: key mode is already defined"}},
		{"table twice", "[tls]\n[log]\n[tls]\n", []string{"f:3:2: not TOML: table tls already exists"}},
		{"table of a key", "peers.allow = []\n[peers]\n", []string{"f:2:2: not TOML: table peers already exists"}},
		{"twice in a line", "tls = {mode = 'on', mode = 'on'}", []string{"f:1:1: not TOML: key mode is already defined"}},
		{"number as string", `port = "80"`, []string{"f:1:1: port: want a number; allowed: a number from 1 to 65535, the same on all hosts"}},
		{"negative", "port = -1", []string{`f:1:1: port: "-1" is no such number; allowed: `}},
		{"float", "port = 1.5", []string{`f:1:1: port: want a number; allowed: `}},
		{"large", "port = 70000", []string{"f:1:1: port: 70000 is out of range; allowed: "}},
		{"string as number", "socket = 5", []string{"f:1:1: socket: want a string; allowed: a path of at most 107 bytes"}},
		{"list as string", `listen = "127.0.0.1"`, []string{`f:1:1: listen: want a list of strings; allowed: IP addresses, as in ["127.0.0.1", "fd00::1"]`}},
		{"list of numbers", `listen = [1]`, []string{`f:1:1: listen: want a list of strings; allowed: `}},
		{"name", `listen = ["localhost"]`, []string{`f:1:1: listen: "localhost" is not an IP address; allowed: `}},
		{"zone", `listen = ["fe80::1%eth0"]`, []string{`f:1:1: listen: "fe80::1%eth0" has a zone: link-local addresses are not supported, use a global or a unique local one (fd00::/8); allowed: `}},
		{"a rate too low", "peers.messages_per_s = 999", []string{"f:1:1: peers.messages_per_s: 999 is out of range; allowed: 0, or a number from 1000 to 1000000000"}},
		{"a rate with a unit", `peers.control_per_s = "5k"`, []string{"f:1:1: peers.control_per_s: want a number; allowed: 0, or a number from 1000 to 1000000000"}},
		{"bytes too few", `peers.bytes_per_s = "63KiB"`, []string{`f:1:1: peers.bytes_per_s: 63KiB is out of range; allowed: 0, or bytes from "64KiB" to "1TiB", as in "100MiB"`}},
		{"silence too short", `peers.silence = "10ms"`, []string{`f:1:1: peers.silence: 10ms is out of range; allowed: a duration from "1s" to "1h", as in "30s"`}},
		{"bytes of what", `peers.bytes_per_s = "100Mbit"`, []string{`f:1:1: peers.bytes_per_s: "100Mbit" is not a size; allowed: `}},
		{"link-local network", `peers.allow = ["fe80::/10"]`, []string{"f:1:1: peers.allow: fe80::/10 is a network of link-local addresses, which mean nothing without an interface (zone) and are not supported; use global or unique local addresses (fd00::/8); allowed: "}},
		{"link-local part", `peers.kernel = ["fe80:1::/64"]`, []string{"f:1:1: peers.kernel: fe80:1::/64 is a network of link-local addresses"}},
		{"link-local peer", `peers.allow = ["fe80::1"]`, []string{"f:1:1: peers.allow: fe80::1 is one of the link-local addresses, which mean nothing without an interface (zone) and are not supported; use global"}},
		{"peer with a zone", `peers.allow = ["fe80::1%eth0"]`, []string{`f:1:1: peers.allow: "fe80::1%eth0" has a zone: link-local addresses are not supported`}},
		{"prefix", `peers.allow = ["10.0.0.300"]`, []string{`f:1:1: peers.allow: "10.0.0.300" is not a network in CIDR form, an address or a host's name; allowed: networks, addresses or names of hosts, as in ["10.0.0.0/24", "fd00::7", "hostb"]`}},
		{"host bits", `peers.allow = ["10.0.0.1/24"]`, []string{`f:1:1: peers.allow: "10.0.0.1/24" has bits set beyond its prefix, meant is perhaps "10.0.0.0/24"; allowed: `}},
		{"choice", `crc = "yes"`, []string{`f:1:1: crc: "yes" is none of these; allowed: "auto", "on" or "off"`}},
		{"congestion", `congestion = "bbr"`, []string{`f:1:1: congestion: "bbr" is none of these; allowed: "cubic" or "system"`}},
		{"duration", `spin = "50"`, []string{`f:1:1: spin: "50" is not a duration; allowed: a duration from "0s" to "10ms", as in "50us"`}},
		{"long spin", `spin = "1s"`, []string{`f:1:1: spin: 1s is out of range; allowed: `}},
		{"size", `recv_hard_cap = "4MB"`, []string{`f:1:1: recv_hard_cap: "4MB" is not a size; allowed: bytes, from "1MiB" to "1GiB", as in 4194304 or "4MiB"`}},
		{"size overflow", `recv_hard_cap = "99999999999TiB"`, []string{`f:1:1: recv_hard_cap: "99999999999TiB" is not a size; allowed: `}},
		{"small size", `recv_hard_cap = 1000`, []string{`f:1:1: recv_hard_cap: 1000 is out of range; allowed: `}},
		{"mode", `socket_mode = "rw"`, []string{`f:1:1: socket_mode: "rw" are no permissions; allowed: octal permissions, as in "0660"`}},
		{"setuid mode", `socket_mode = "4777"`, []string{`f:1:1: socket_mode: "4777" are no permissions; allowed: `}},
		{"limit", "limits.max_clients = 0", []string{"f:1:1: limits.max_clients: 0 is out of range; allowed: a number from 1 to 65536"}},
		{"sockets", "[limits]\nmax_sockets = 9999999", []string{"f:2:1: limits.max_sockets: 9999999 is out of range; allowed: a number from 1 to 1048576"}},
		{"bytes", `[limits]` + "\n" + `max_registered_bytes = "1KiB"`, []string{"f:2:1: limits.max_registered_bytes: 1KiB is out of range; allowed: "}},
		{"metrics", `metrics.listen = ":9464"`, []string{`f:1:1: metrics.listen: ":9464" is not an IP address and port; allowed: an address and port, as in "127.0.0.1:9464"; "" is off`}},
		{"level", `log.level = "loud"`, []string{`f:1:1: log.level: "loud" is none of these; allowed: "debug", "info", "warn" or "error"`}},
		{"format", `log.format = "xml"`, []string{`f:1:1: log.format: "xml" is none of these; allowed: "text" or "json"`}},
		{"override without who", `quota.overrides = ["sockets=1"]`, []string{`f:1:1: quota.overrides: "sockets=1": want one of uid=, gid= and account=; allowed: quotas of one user, group or account, as in [`}},
		{"override of both", `quota.overrides = ["uid=1 gid=2 sockets=1"]`, []string{`f:1:1: quota.overrides: "uid=1 gid=2 sockets=1": want one of uid=, gid= and account=; allowed: `}},
		{"override of user and account", `quota.overrides = ["uid=1 account=a sockets=1"]`, []string{`f:1:1: quota.overrides: "uid=1 account=a sockets=1": want one of uid=, gid= and account=; allowed: `}},
		{"override of a long label", `quota.overrides = ["account=` + strings.Repeat("a", 256) + ` sockets=1"]`, []string{`f:1:1: quota.overrides: "account=` + strings.Repeat("a", 256) + ` sockets=1": account=` + strings.Repeat("a", 256) + `: want a label of quota.accounts, at most 255 visible ASCII characters without a comma; allowed: `}},
		{"account of what", `quota.accounts = ["kubernets"]`, []string{`f:1:1: quota.accounts: "kubernets": want kubernetes or a path of a cgroup, as in /system.slice/*.service; allowed: `}},
		{"account relative", `quota.accounts = ["system.slice/a"]`, []string{`f:1:1: quota.accounts: "system.slice/a": want kubernetes or a path`}},
		{"account of all", `quota.accounts = ["/"]`, []string{`f:1:1: quota.accounts: "/": an empty name, . or .. in the path; allowed: `}},
		{"account above", `quota.accounts = ["/a/../b"]`, []string{`f:1:1: quota.accounts: "/a/../b": an empty name, . or .. in the path; allowed: `}},
		{"account at any depth", `quota.accounts = ["/**/pod*"]`, []string{`f:1:1: quota.accounts: "/**/pod*": ** does not stand for several names: give the path from the root, with * for a name or a part of one; allowed: `}},
		{"account with two labels", `quota.accounts = ["/a b c"]`, []string{`f:1:1: quota.accounts: "/a b c": want a path, or a path and a label of at most 255 visible ASCII characters without a comma; allowed: `}},
		{"override of nothing", `quota.overrides = ["uid=1"]`, []string{`f:1:1: quota.overrides: "uid=1": no quota, give at least one of clients, sockets, destinations, operations, grants, registered_bytes, queued_bytes; allowed: `}},
		{"override unknown", `quota.overrides = ["uid=1 socks=1"]`, []string{`f:1:1: quota.overrides: "uid=1 socks=1": socks= is no quota, there are clients, sockets, `}},
		{"override by name", `quota.overrides = ["uid=joe sockets=1"]`, []string{`f:1:1: quota.overrides: "uid=joe sockets=1": uid=joe: want a number (id -u NAME, getent group NAME show it); allowed: `}},
		{"override twice", `quota.overrides = ["uid=1 sockets=1 sockets=2"]`, []string{`f:1:1: quota.overrides: "uid=1 sockets=1 sockets=2": sockets= is given twice; allowed: `}},
		{"override words", `quota.overrides = ["uid=1 sockets"]`, []string{`f:1:1: quota.overrides: "uid=1 sockets": "sockets" is not of the form key=value; allowed: `}},
		{"override number", `quota.overrides = ["uid=1 sockets=1KiB"]`, []string{`f:1:1: quota.overrides: "uid=1 sockets=1KiB": sockets=1KiB: want a number; allowed: `}},
		{"override size", `quota.overrides = ["uid=1 queued_bytes=1KB"]`, []string{`f:1:1: quota.overrides: "uid=1 queued_bytes=1KB": queued_bytes=1KB: want a size, as in 4194304 or 4MiB; allowed: `}},
		{"override range", `quota.overrides = ["uid=1 registered_bytes=2TiB"]`, []string{`f:1:1: quota.overrides: "uid=1 registered_bytes=2TiB": registered_bytes=2TiB: at most 1TiB; allowed: `}},
		{"override table", "[[quota.overrides]]\nuid = 1", []string{`f:1:3: "quota.overrides" is a key, write quota.overrides = with its value behind it, outside of other tables`}},
		{"quota range", "quota.sockets = 9999999", []string{"f:1:1: quota.sockets: 9999999 is out of range; allowed: a number from 0 to 1048576"}},
		{"quota size", `quota.queued_bytes = "2TiB"`, []string{`f:1:1: quota.queued_bytes: 2TiB is out of range; allowed: bytes, up to "1TiB", as in "4GiB"`}},
		{"rule verb", `bind.rules = ["alow port=1"]`, []string{`f:1:1: bind.rules: "alow port=1": a rule begins with allow or deny; allowed: ordered rules, as in [`}},
		{"rule empty", `bind.rules = [" "]`, []string{`f:1:1: bind.rules: an empty rule; allowed: `}},
		{"rule field", `bind.rules = ["allow ports=1"]`, []string{`f:1:1: bind.rules: "allow ports=1": ports= is nothing a rule knows, there are uid, gid, address, port; allowed: `}},
		{"rule ports", `bind.rules = ["allow port=5-4"]`, []string{`f:1:1: bind.rules: "allow port=5-4": port=5-4: want a port or a range, as in 4000-4999; allowed: `}},
		{"rule port", `bind.rules = ["allow port=65536"]`, []string{`f:1:1: bind.rules: "allow port=65536": port=65536: want a port or a range, as in 4000-4999; allowed: `}},
		{"rule address", `bind.rules = ["allow address=here"]`, []string{`f:1:1: bind.rules: "allow address=here": address=here: "here" is not a network in CIDR form, nor an address; allowed: `}},
		{"rule mapped", `bind.rules = ["allow address=::ffff:0:0/96"]`, []string{`f:1:1: bind.rules: "allow address=::ffff:0:0/96": address=::ffff:0:0/96: write a network of IPv4 as such; allowed: `}},
		{"rule group", `bind.rules = ["allow gid=-1"]`, []string{`f:1:1: bind.rules: "allow gid=-1": gid=-1: want a number (id -u NAME, getent group NAME show it); allowed: `}},
		{"bind default", `bind.default = "refuse"`, []string{`f:1:1: bind.default: "refuse" is none of these; allowed: "allow" or "deny"`}},
		{"NUL", `stats = "a\u0000b"`, []string{`f:1:1: stats: a NUL byte; allowed: a path`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Default()
			err := c.parse("f", []byte(tc.file), Origins{})
			if err == nil {
				t.Fatal("accepted")
			}
			lines := slices.DeleteFunc(strings.Split(err.Error(), "\n"), func(l string) bool { return strings.HasPrefix(l, " ") }) // TestCaret checks the carets
			if len(lines) != len(tc.want) {
				t.Fatalf("%d errors, want %d:\n%v", len(lines), len(tc.want), err)
			}
			for i, want := range tc.want {
				if !strings.HasPrefix(lines[i], want) {
					t.Errorf("got  %s\nwant %s", lines[i], want)
				}
			}
		})
	}
}

func TestFinishErrors(t *testing.T) {
	long := "/" + strings.Repeat("x", 107)
	for _, tc := range []struct {
		name string
		set  [][2]string
		want string
	}{
		{"not loopback", [][2]string{{"listen", "127.0.0.1,10.1.2.3"}},
			`listen: 10.1.2.3 is not a loopback address and peers.allow is empty; set peers.allow to the networks of the peers, as in ["10.1.2.0/24"]`},
		{"not loopback, IPv6", [][2]string{{"listen", "fd00:1::5"}},
			`listen: fd00:1::5 is not a loopback address and peers.allow is empty; set peers.allow to the networks of the peers, as in ["fd00:1::/64"]`},
		{"none", [][2]string{{"listen", ""}}, `listen: no address; give at least one, as in ["127.0.0.1"]`},
		{"wildcard", [][2]string{{"listen", "0.0.0.0"}}, "listen: 0.0.0.0 is not an address of a host; list each address of this host that peers use"},
		{"wildcard 6", [][2]string{{"listen", "::"}}, "listen: :: is not an address of a host; list each address of this host that peers use"},
		{"multicast", [][2]string{{"listen", "224.0.0.1"}}, "listen: 224.0.0.1 is a multicast address; list addresses of this host"},
		{"link-local", [][2]string{{"listen", "fe80::1"}}, "listen: fe80::1 is one of the link-local addresses, which mean nothing without an interface (zone) and are not supported; use global or unique local addresses (fd00::/8)"},
		{"metrics at a link-local address", [][2]string{{"metrics.listen", "[fe80::1]:9464"}}, "metrics.listen: [fe80::1]:9464 is a link-local address, and needs its interface (zone), as in [fe80::1%eth0]:9464"},
		{"twice", [][2]string{{"listen", "127.0.0.1,127.0.0.1"}}, "listen: 127.0.0.1 is listed twice; remove one"},
		{"metrics", [][2]string{{"metrics.listen", "0.0.0.0:1"}},
			"metrics.listen: 0.0.0.0:1 is not a loopback address and there is no certificate; set tls.cert, tls.key and tls.ca, or listen on 127.0.0.1"},
		{"long path", [][2]string{{"socket", long}},
			`socket: the path "` + long + `" has 108 bytes, Unix sockets take 107; use a shorter one (--socket)`},
		{"abstract", [][2]string{{"socket", "@x"}}, `socket: abstract sockets ("@x") have no permissions and are not supported; use a path`},
		{"same path", [][2]string{{"socket", "/a"}, {"stats", "/a"}}, `stats: "/a" is the control socket; use another path`},
		{"no certificate", [][2]string{{"listen", "10.1.2.3"}, {"peers.allow", "10.1.2.0/24"}},
			`listen: 10.1.2.3 is not a loopback address and there is no certificate; set tls.cert, tls.key and tls.ca, or tls.mode = "off" if everybody on that network may read and write what is sent`},
		{"TLS, no certificate", [][2]string{{"tls.mode", "on"}}, "tls.mode: on, and there is no certificate; set tls.cert, tls.key and tls.ca"},
		{"TLS on an adapter", [][2]string{{"transport", "verbs"}, {"tls.mode", "on"}}, `transport: verbs has no TLS; set tls.mode = "off" if everybody on that network may read and write what is sent, or transport = "soft"`},
		{"no key", [][2]string{{"tls.cert", "/c"}, {"tls.ca", "/a"}}, "tls.key: not set; TLS needs all of tls.cert, tls.key and tls.ca"},
		{"two errors", [][2]string{{"listen", ""}, {"socket", "@x"}},
			`socket: abstract sockets ("@x") have no permissions and are not supported; use a path` + "\n" +
				`listen: no address; give at least one, as in ["127.0.0.1"]`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Default()
			for _, kv := range tc.set {
				if err := c.Set(kv[0], kv[1]); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Finish(0, noEnv); err == nil || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}
