// Package config is rdsd's configuration: the settings as a struct (Config), the table that
// documents them (Keys), and the sources that values come from (Sources).
package config

import (
	"io/fs"
	"log/slog"
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/internal/wait"
)

// Config is all settings. Keys documents each, with its unit and the values that are
// allowed.
type Config struct {
	Socket     string      // socket; set after Finish
	SocketMode fs.FileMode // socket_mode
	Listen     []netip.Addr
	Port       uint16
	CRC        CRC
	Spin       time.Duration
	Wait       wait.Strategy
	CPUs       []CPURange // of the engine's thread; empty: all
	IOThreads  int        // io.threads; AutoThreads: see Threads
	// RecvHardCap is in bytes per socket.
	RecvHardCap uint64
	Ping        Ping
	Stats       string // set after Finish
	Congestion  Congestion
	Transport   Transport
	// TransportRules decide before Transport does.
	TransportRules []TransportRule
	Peers          Peers
	TLS            TLS
	TCP            TCP
	Limits         Limits
	Quota          Quotas
	Keys           struct{ Strict []Who } // keys.strict
	Bind           Bind
	Metrics        Metrics
	Sandbox        Sandbox
	Upgrade        struct{ Token string } // upgrade.token, a path
	Log            Log
}

// Peers says who may connect.
type Peers struct {
	Allow []Allowed // peers.allow
	// Limits on what one host sends per second. 0 is no limit.
	Control  uint64 // peers.control_per_s, messages
	Messages uint64 // peers.messages_per_s
	Bytes    uint64 // peers.bytes_per_s

	Silence time.Duration  // peers.silence
	Paths   int            // peers.paths
	Kernel  []netip.Prefix // peers.kernel
	Explain Explain
}

// Explain says whether a host that is rejected is told why.
type Explain string

const (
	ExplainOn  Explain = "on"
	ExplainOff Explain = "off"
)

// TLS says how connections to peers are secured.
type TLS struct {
	Mode          TLSMode
	Warn          Warn
	Cert, Key, CA string // paths of PEM files
	Names         []PeerName
}

// Warn says whether plain connections are a warning.
type Warn string

const (
	WarnOn  Warn = "on"
	WarnOff Warn = "off"
)

// TLSMode says which connections are secured.
type TLSMode string

const (
	TLSAuto TLSMode = "auto" // where there is a certificate
	TLSOn   TLSMode = "on"
	TLSOff  TLSMode = "off"
)

// TCP says which peers are reached by RDS/TCP.
type TCP struct {
	Peers   []netip.Prefix // tcp.peers
	Port    uint16
	Lanes   int
	Timeout time.Duration
}

// Limits are for the whole daemon.
type Limits struct {
	MaxClients         int
	MaxSockets         int
	MaxRegisteredBytes uint64
	MaxHeldBytes       uint64
}

// Metrics is the HTTP listener for Prometheus.
type Metrics struct {
	Listen netip.AddrPort // metrics.listen; the zero value is off
}

// Log to standard error.
type Log struct {
	Level  slog.Level
	Format string // "text" or "json"
}

// CRC says whether frames carry a checksum.
type CRC string

const (
	CRCAuto CRC = "auto" // off on loopback, on elsewhere
	CRCOn   CRC = "on"
	CRCOff  CRC = "off"
)

// Ping says what the daemon does with pings, which are messages to port 0.
type Ping string

const (
	PingAnswer Ping = "answer"
	PingIgnore Ping = "ignore" // like a message to a port that nobody has bound
)

// Congestion says which TCP congestion control the daemon's connections use.
type Congestion string

const (
	CongestionCubic  Congestion = "cubic"  // if the system permits it, else the system's
	CongestionSystem Congestion = "system" // the system's
)

// Sandbox says whether the daemon gives up the rights that it does not need.
type Sandbox string

const (
	SandboxAuto Sandbox = "auto" // as far as the kernel supports it
	SandboxOff  Sandbox = "off"
)

// Default is the configuration without sources, before Finish.
func Default() Config {
	return Config{
		SocketMode:  0o660,
		Listen:      []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})},
		Port:        18634,
		CRC:         CRCAuto,
		IOThreads:   AutoThreads,
		Spin:        50 * time.Microsecond,
		RecvHardCap: 4 << 20,
		Ping:        PingAnswer,
		Congestion:  CongestionCubic,
		Sandbox:     SandboxAuto,
		TCP:         TCP{Port: 16385, Lanes: 1, Timeout: 30 * time.Second},
		Transport:   TransportSoft,
		Peers:       Peers{Control: 1_000_000, Silence: 30 * time.Second, Paths: 1, Explain: ExplainOn},
		TLS:         TLS{Mode: TLSAuto, Warn: WarnOn},
		Limits: Limits{
			MaxClients:         1024,
			MaxSockets:         1 << 17,
			MaxRegisteredBytes: 4 << 30,
			MaxHeldBytes:       64 << 20,
		},
		// Half of the limits, so that one user alone cannot take everything from the
		// others.
		Quota: Quotas{User: Quota{
			Clients: 512, Sockets: 1 << 16, Destinations: 1 << 17, Operations: 1 << 17, Grants: 1 << 17,
			RegisteredBytes: 2 << 30, QueuedBytes: 20 << 30,
		}},
		Bind: Bind{Default: Allow},
		Log:  Log{Level: slog.LevelInfo, Format: "text"},
	}
}
