package config

import (
	"fmt"
	"time"
)

// Key documents one key.
type Key struct {
	Name    string // as in the file, dotted: "peers.allow"
	Default string // "" = empty
	Allowed string // what a value must look like
	Doc     string // one sentence or two
	List    bool   // takes several values
	Live    bool   // a reload applies it; others need a restart
}

// reload says whether a running daemon can change the key.
type reload bool

const (
	live    reload = true
	restart reload = false
)

// key is a Key bound to its field.
type key struct {
	name, allowed, doc string
	reload
	value
}

// keys is the one table of all keys. File, flags, documentation and error messages come
// from it.
//
//nolint:funlen // one table, a row for each key: parts of it would be looked for
func (c *Config) keys() []key {
	const (
		overrides = `quotas of one user, group or account, as in ["uid=1000 sockets=100 registered_bytes=1GiB", "gid=100 operations=64", "account=batch clients=4"]`
		accounts  = `"kubernetes", or paths of cgroups with a label or without, as in ["kubernetes", "/system.slice/*.service", "/batch.slice batch"]`
		rules     = `ordered rules, as in ["allow uid=1000 address=10.0.0.1 port=4000-4999", "deny port=2-1023", "deny gid=100"]`
	)
	const addr = `IP addresses, as in ["127.0.0.1", "fd00::1"]`
	keys := []key{
		{"socket", `a path of at most 107 bytes`,
			"Control socket. Default: /run/rdsd/rdsd.sock for root, $XDG_RUNTIME_DIR/rdsd.sock for others. %n stands for the inode number of the network namespace.",
			restart, text(&c.Socket)},
		{"socket_mode", `octal permissions, as in "0660"`,
			"Permissions of the control socket: who may open sockets here.",
			restart, mode(&c.SocketMode)},
		{"listen", addr,
			"Addresses of this daemon: local sockets bind to them, peers connect to them. Anything but loopback needs peers.allow.",
			restart, list(&c.Listen, parseAddr)},
		{"port", "a number from 1 to 65535, the same on all hosts",
			"TCP port that peers connect to. On an adapter 18634 is 16385 at IPv6 addresses, where Linux has it.",
			restart, number(&c.Port, 1, 65535)},
		{"peers.allow", `networks, addresses or names of hosts, as in ["10.0.0.0/24", "fd00::7", "hostb"]`,
			"Peers that may connect and be connected to. The system's resolver is asked for a name at the start and at each reload; a name has one address in each family of listen. An address of this host is allowed only if it is written itself, or by a network of loopback addresses. Loopback is allowed by itself only if every address of listen is on loopback.",
			live, list(&c.Peers.Allow, parseAllowed)},
		{"peers.control_per_s", "0, or a number from 1000 to 1000000000",
			"What one peer host may send in a second that is for no socket: pings, congestion maps, grants and their ends, messages for nobody. A second's worth at once. Beyond it the peer is read more slowly. 0: no limit.",
			live, orOff(number(&c.Peers.Control, 0, 1_000_000_000), &c.Peers.Control, 1000)},
		{"peers.messages_per_s", "0, or a number from 1000 to 1000000000",
			"Messages taken from one peer host in a second, over all lanes, a tenth of it at once. Beyond it the peer is read more slowly: nothing is lost. 0: no limit.",
			live, orOff(number(&c.Peers.Messages, 0, 1_000_000_000), &c.Peers.Messages, 1000)},
		{"peers.bytes_per_s", `0, or bytes from "64KiB" to "1TiB", as in "100MiB"`,
			"Bytes taken from one peer host in a second, over all lanes, a tenth of it at once: messages, RDMA and what carries them; on an RDMA device without RDMA. Beyond it the peer is read more slowly: nothing is lost. 0: no limit.",
			live, orOff(size(&c.Peers.Bytes, 0, 1<<40), &c.Peers.Bytes, 64<<10)},
		{"peers.kernel", `networks, as in ["10.9.0.7/32", "fd00:9::/64"]`,
			"Hosts of peers.allow that may be Linux kernels with rds_rdma. A kernel cannot be refused a message, so one that sends more than there is room for ends the socket: name only hosts that you trust. A host with rdsd may be among them. RDS/TCP has tcp.peers.",
			restart, list(&c.Peers.Kernel, parsePrefix)},
		{"peers.silence", `a duration from "1s" to "1h", as in "30s"`,
			"How long a peer that owes an answer may send nothing before its connection is broken off. It is asked for a sign of life every quarter of that time, at least every 5s. RDS/TCP has tcp.timeout instead.",
			live, duration(&c.Peers.Silence, time.Second, time.Hour)},
		{"peers.paths", "a number from 1 to 8",
			"Connections to a peer in each lane. Sockets are spread over them by port, so that a network's limit on one connection is none on all, and a connection that breaks stops only its sockets. The smaller number of the two daemons counts. It is agreed on when two daemons meet that did not know each other, so after a restart of one that is not planned.",
			restart, number(&c.Peers.Paths, 1, 8)},
		{"peers.explain", `"on" or "off"`,
			"Whether a host that this daemon turns away is told why: peers.allow does not name it, no room, another transport. off: it learns that it is turned away, from the TLS handshake also a fault of its certificate.",
			live, choice(&c.Peers.Explain, ExplainOn, ExplainOff)},
		{"tls.mode", `"auto", "on" or "off"`,
			"TLS 1.3 on the connections to peers, where both ends show a certificate. auto: as soon as there is a certificate; off must be said to listen on other addresses without one. RDS/TCP has no TLS.",
			live, choice(&c.TLS.Mode, TLSAuto, TLSOn, TLSOff)},
		{"tls.cert", "a path of a PEM file",
			"This host's certificate, with those between it and the authority's behind it. It names the addresses of listen (IP SAN) and is good for both clients and servers.",
			live, text(&c.TLS.Cert)},
		{"tls.key", "a path of a PEM file",
			"The private key of tls.cert.",
			live, text(&c.TLS.Key)},
		{"tls.ca", "a path of a PEM file",
			"Certificates of the authorities that peers' certificates are from.",
			live, text(&c.TLS.CA)},
		{"tls.names", `addresses or networks, each with a DNS name, a URI or *, as in ["10.0.0.2 host2.example.org", "10.42.0.0/16 spiffe://example.org/rdsd"]`,
			"Hosts whose certificates carry this name (DNS SAN or URI SAN) instead of their addresses (IP SAN); * takes every certificate of tls.ca. The first entry that covers an address decides; it may be this host's own.",
			live, list(&c.TLS.Names, parseName)},
		{"tls.warn", `"on" or "off"`,
			"Whether tls.mode = off is a warning, in rdsctl status, check and doctor and in the log, on a daemon that listens on other addresses than loopback. off accepts plain connections for good.",
			live, choice(&c.TLS.Warn, WarnOn, WarnOff)},
		{"tcp.peers", `networks, as in ["10.0.0.7/32", "fd00::/64"]`,
			"Hosts reached by RDS/TCP, the transport of Linux's rds_tcp: messages without RDMA. They are to be in peers.allow, too. Empty: there is no RDS/TCP.",
			restart, list(&c.TCP.Peers, parsePrefix)},
		{"tcp.port", "a number from 1 to 65535, the same on all hosts; Linux has 16385",
			"TCP port of RDS/TCP.",
			restart, number(&c.TCP.Port, 1, 65535)},
		{"tcp.lanes", "1, 2, 4 or 8",
			"Connections offered to each host of tcp.peers; sockets are spread over them. With more than one a kernel may drop messages when several break off at a time.",
			restart, number(&c.TCP.Lanes, 1, 8)},
		{"tcp.timeout", `a duration from "1s" to "1h", as in "30s"`,
			"How long a host of tcp.peers may leave data unacknowledged, or be silent, before its connection is given up.",
			restart, duration(&c.TCP.Timeout, time.Second, time.Hour)},
		{"crc", `"auto", "on" or "off"`,
			"Checksum on every frame without TLS; auto is off on loopback, on elsewhere. With it, payload is copied once at each end.",
			live, choice(&c.CRC, CRCAuto, CRCOn, CRCOff)},
		{"spin", `a duration from "0s" to "10ms", as in "50us"`,
			"How long the engine, and an application that does not say otherwise, looks for work before it blocks: latency against CPU.",
			live, duration(&c.Spin, 0, maxSpin)},
		{"wait", `"auto", "block", "yield" or "spin"`,
			"How the engine waits for work: it blocks at once; it looks for the time of spin and yields its CPU after each look; it looks and keeps its CPU; auto yields or blocks, whichever makes waits shorter.",
			live, way(&c.Wait)},
		{"cpus", `CPUs, as in ["2"] or ["2-3", "6"]`,
			"CPUs that the engine's thread runs on. Empty: all.",
			restart, list(&c.CPUs, parseCPUs)},
		{"io.threads", `"auto" or a number from 0 to 16`,
			"Threads that move, sum and encrypt RDMA payload from 32 KiB on while CPUs are free, so that the engine's thread has less to do. auto: one for each CPU beyond two, at most 4, that have only what the engine has no time for while it moves payload of another connection. Not on RDMA devices, by RDS/TCP, or for TLS in FIPS mode.",
			restart, threads(&c.IOThreads, 16)},
		{"recv_hard_cap", `bytes, from "1MiB" to "1GiB", as in 4194304 or "4MiB"`,
			"Arrived payload kept for one socket over its receive buffer; beyond it the socket refuses.",
			live, size(&c.RecvHardCap, 1<<20, 1<<30)},
		{"ping", `"answer" or "ignore"`,
			"What becomes of pings, messages to port 0: answered, or counted as for a port nobody has bound (net.rds.ping_enable of the kernel).",
			restart, choice(&c.Ping, PingAnswer, PingIgnore)},
		{"congestion", `"cubic" or "system"`,
			"TCP congestion control of the connections to peers; cubic where permitted, else the system's.",
			restart, choice(&c.Congestion, CongestionCubic, CongestionSystem)},
		{"transport", `"auto", "soft", "verbs" or "tcp"`,
			"What carries connections to peers: soft is iWARP over TCP in user space; verbs the RDMA device that has the local address (make build-ibv); tcp RDS/TCP, without RDMA; auto is verbs where both hosts have it, else soft, with a warning.",
			restart, choice(&c.Transport, TransportAuto, TransportSoft, TransportVerbs, TransportTCP)},
		{"transport_rules", `ordered rules, as in ["verbs local=10.0.0.1", "tcp peer=10.0.0.7", "soft peer=10.1.0.0/16"]`,
			"What carries some connections instead: the first rule that matches decides. tcp.peers comes before them.",
			restart, list(&c.TransportRules, parseTransportRule)},
		{"stats", "a path",
			"File of the statistics mapping; lists of sockets and peers are beside it, .lists3 in place of .stats. Default: the control socket's path with .stats appended.",
			restart, text(&c.Stats)},
		{"upgrade.token", "a path",
			"File with a secret of at least 16 bytes. A process that has the same secret may take this daemon's place (rdsd -take-over), whatever its user is. Default: only root and the daemon's own user may.",
			restart, text(&c.Upgrade.Token)},
		{"limits.max_clients", "a number from 1 to 65536",
			"Client processes attached at a time.",
			live, number(&c.Limits.MaxClients, 1, 1<<16)},
		{"limits.max_sockets", "a number from 1 to 1048576",
			"Sockets bound at a time.",
			live, number(&c.Limits.MaxSockets, 1, 1<<20)},
		{"limits.max_registered_bytes", `bytes, from "1MiB" to "1TiB", as in "4GiB"`,
			"Memory of all clients' buffers for RDMA.",
			live, size(&c.Limits.MaxRegisteredBytes, 1<<20, 1<<40)},
		{"limits.max_held_bytes", `bytes, from "4MiB" to "64GiB", as in "64MiB"`,
			"Daemon memory for arrived messages that find no room at their process. A user gets more while it has less than is free.",
			restart, size(&c.Limits.MaxHeldBytes, 4<<20, 64<<30)},
		{"quota.overrides", overrides,
			"Quotas that replace the defaults: the first for a process's account, else for its user, else for its group. Root and the daemon's own user have only what names their account or uid.",
			live, list(&c.Quota.Overrides, parseOverride)},
		{"quota.accounts", accounts,
			"Cgroups whose processes count for an account of their own instead of for their user: of each pod, or of each cgroup at a path from the root, with * for a name or a part of one. Its label is its name, or the one given. The outermost cgroup that is named decides, where the process is when it connects. The daemon needs the host's processes in /proc.",
			restart, list(&c.Quota.Accounts, parseCgroupRule)},
		{"keys.strict", `users and groups, as in ["uid=1000", "gid=100"], or ["everybody"]`,
			"Whose regions nobody may use but whom they were granted to, also where a program made for kernel RDS asks for a key with RDS_GET_MR. It holds for processes that attach later.",
			live, list(&c.Keys.Strict, parseWho)},
		{"bind.rules", rules,
			"Who may bind what: the first rule that matches decides. For root and the daemon's own user only rules with their uid count.",
			live, list(&c.Bind.Rules, parseRule)},
		{"bind.default", `"allow" or "deny"`,
			"What holds where no rule matches, except for root and the daemon's own user: they may.",
			live, choice(&c.Bind.Default, Allow, Deny)},
		{"metrics.listen", `an address and port, as in "127.0.0.1:9464"; "" is off`,
			"Prometheus metrics at /metrics: over HTTP on loopback, to everybody there; elsewhere over HTTPS with the daemon's certificate, to clients that have one of tls.ca.",
			restart, addrPort(&c.Metrics.Listen)},
		{"sandbox", `"auto" or "off"`,
			"Once it serves, the daemon can read its configuration's folder and write those of socket and stats, nothing else, and keeps no capability but for congestion control and locked memory (Landlock; as far as the kernel can).",
			restart, choice(&c.Sandbox, SandboxAuto, SandboxOff)},
		{"log.level", `"debug", "info", "warn" or "error"`,
			"What is logged to standard error.",
			live, level(&c.Log.Level)},
		{"log.format", `"text" or "json"`,
			"Form of the log.",
			restart, choice(&c.Log.Format, "text", "json")},
	}
	for r := range NumResources {
		d := &resources[r]
		k := key{"quota." + d.name, fmt.Sprintf("a number from 0 to %d", d.max), d.doc, live, number(&c.Quota.User[r], 0, d.max)}
		if d.bytes {
			k.allowed, k.value = `bytes, up to "1TiB", as in "4GiB"`, size(&c.Quota.User[r], 0, d.max)
		}
		keys = append(keys, k)
	}
	return keys
}

// Keys lists every key with its default and documentation.
func Keys() []Key {
	c := Default()
	var out []Key
	for _, k := range c.keys() {
		out = append(out, Key{Name: k.name, Default: k.get(), Allowed: k.allowed, Doc: k.doc, List: k.form == array, Live: bool(k.reload)})
	}
	return out
}

// Set sets the key called name to a value in its flag form: without quotes, lists separated
// by commas. Errors name the key and what is allowed.
func (c *Config) Set(name, s string) error {
	for _, k := range c.keys() {
		if k.name == name {
			return k.assign(splitList(k, s))
		}
	}
	return fmt.Errorf("unknown key %q", name)
}

// assign sets k, or returns an error that says which values k takes.
func (k key) assign(items []string) error {
	if err := k.set(items); err != nil {
		return fmt.Errorf("%s: %w; allowed: %s", k.name, err, k.allowed)
	}
	return nil
}
