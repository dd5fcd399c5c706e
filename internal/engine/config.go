package engine

import (
	"cmp"
	"math"
	"net/netip"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/quota"
	"github.com/rdsd/rdsd/verbs"
)

// Config sizes an Engine. The zero value of a field means its default.
type Config struct {
	Instance uint64 // random per start; tells peers that we restarted
	Port     uint16 // RDS port of every host (18634)
	Port6    uint16 // ... at its IPv6 addresses (Port)

	MaxSend     int  // largest SEND, bytes (32 KiB)
	SendBufs    int  // send pool, buffers of MaxSend
	RecvBufs    int  // receive pool shared by all peers, buffers of MaxSend
	MaxPools    int  // bytes that the two pools may come to, which have fewer buffers then (0: no limit)
	MaxPeers    int  // that may come to us
	CQE         int  // completion queue, entries
	ArmCQ       bool // completions come without Device.Progress: the device's FD tells of them when asked to
	Paths       int  // connections to a peer in each lane, 1 to wire.MaxPaths (1)
	PeerCredits int  // receive buffers one peer may use at a time
	MaxPiece    int  // bytes of an operation that go to a peer at a time (abi.MaxRDMA)
	CopySlice   int  // bytes of one operation within the host that are copied at a time, a quarter of a turn's (64 KiB)

	MaxSockets    int // bound at a time
	MaxGrants     int // that one peer can make us remember, and that it is taken to remember of us
	HardCap       int // bytes a socket may hold over its receive buffer before it refuses
	OverflowBytes int // daemon memory for messages that found no room, in all

	// What clients may have, see memory. 0: no limit, or quota.MaxMaps.
	MaxSharedBytes, MaxRegisteredBytes uint64
	MaxMaps                            int
	Policy                             *config.Policy // what each user may have and do; nil: everything

	RevokeTimeout int64 // ns a peer may take to retire a revoked key
	MaxBackoff    int64 // ns, reconnect
	SettleTimeout int64 // ns
	ForgetAfter   int64 // ns that a peer nothing leads to is away before it is forgotten (10 min)
	Silence       int64 // ns a peer that owes an answer may say nothing, < 0: for ever; SetSilence changes it

	Rates Rates // limits on what one peer sends; SetRates changes them

	IgnorePings bool // messages to port 0 are for nobody

	CRC func(peer netip.Addr) verbs.CRCMode
	// Allowed returns nil if peer may connect and be connected to. Otherwise it returns an
	// error that wraps ErrNotAllowed.
	Allowed func(peer netip.Addr) error
	// Silent says whether a peer that is rejected is not told why; nil: it is told.
	Silent func() bool
	// KernelPeer says who may be a Linux kernel over queue pairs; nil: nobody. A
	// kernel takes nothing back, so what it sends beyond all room ends a socket.
	KernelPeer func(peer netip.Addr) bool
	// Way is by which device a connection goes when there are two; nil: by the
	// second where the first fails.
	Way func(local, peer netip.Addr) Way
	// TurnedAway is how many incoming connections the device has closed before
	// they made a request; nil: none.
	TurnedAway func() uint64

	// Seams for the simulator: heap memory, seeded randomness, a start
	// sequence that follows virtual time.
	Alloc    func(n int) []byte
	Rand     func() uint64
	StartSeq func() uint64
	Trace    func(at Place, event string, err error)
}

const (
	defaultMaxSend   = 32 << 10
	subBudget        = 1024      // descriptors of one client per turn
	subBytes         = 256 << 10 // payload bytes of one client per turn
	copySlice        = 64 << 10  // bytes of one same-host operation at a time
	copySlices       = 4         // of these per turn
	cqBudget         = 1024      // completions per turn
	cqBytes          = 1 << 20   // bytes received per turn: many small messages are much work
	revokeScanNs     = 10_000_000
	defaultRevokeNs  = 5_000_000_000
	defaultHardCap   = 4 << 20
	defaultMaxGrants = 1 << 16
	defaultOverflow  = 64 << 20
	firstPort        = 2 // 0 is ping, 1 reserved
)

func (c *Config) setDefaults() {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def64 := func(p *int64, v int64) {
		if *p == 0 {
			*p = v
		}
	}
	def(&c.MaxSend, defaultMaxSend)
	def(&c.SendBufs, 4096)
	def(&c.RecvBufs, 16384)
	if all := (c.SendBufs + c.RecvBufs) * c.MaxSend; c.MaxPools > 0 && all > c.MaxPools {
		part := float64(c.MaxPools) / float64(all)
		c.SendBufs, c.RecvBufs = max(16, int(float64(c.SendBufs)*part)), max(64, int(float64(c.RecvBufs)*part))
	}
	def(&c.MaxPeers, 4096)
	def(&c.CQE, 1<<16)
	def(&c.Paths, 1)
	def(&c.PeerCredits, 64)
	def(&c.MaxPiece, abi.MaxRDMA)
	def(&c.CopySlice, copySlice)
	def(&c.MaxSockets, 1<<20)
	def(&c.MaxGrants, defaultMaxGrants)
	def(&c.HardCap, defaultHardCap)
	def(&c.OverflowBytes, defaultOverflow)
	def64(&c.RevokeTimeout, defaultRevokeNs)
	def64(&c.MaxBackoff, 1_000_000_000)
	def64(&c.SettleTimeout, 30_000_000_000)
	def64(&c.ForgetAfter, 600_000_000_000)
	def64(&c.Silence, 30_000_000_000)
	if c.Port == 0 {
		c.Port = 18634
	}
	if c.Port6 == 0 {
		c.Port6 = c.Port
	}
	c.MaxMaps = cmp.Or(c.MaxMaps, quota.MaxMaps)
	c.MaxSharedBytes = cmp.Or(c.MaxSharedBytes, math.MaxUint64)
	c.MaxRegisteredBytes = cmp.Or(c.MaxRegisteredBytes, math.MaxUint64)
	if c.Policy == nil {
		c.Policy = config.NoPolicy()
	}
	if c.CRC == nil {
		c.CRC = func(netip.Addr) verbs.CRCMode { return verbs.CRCOn }
	}
	if c.Allowed == nil {
		c.Allowed = func(netip.Addr) error { return nil }
	}
	if c.KernelPeer == nil {
		c.KernelPeer = func(netip.Addr) bool { return false }
	}
	if c.Trace == nil {
		c.Trace = func(Place, string, error) {}
	}
}
