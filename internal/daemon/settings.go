package daemon

import (
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/quota"
	"github.com/rdsd/rdsd/verbs"
)

// settings are the configuration in force and what was read from files that it names.
// A reload replaces them as a whole. Any goroutine may ask, the engine's too.
type settings struct {
	live        atomic.Pointer[config.Config] // never changed, only replaced
	policy      atomic.Pointer[config.Policy] // of live, and of /etc/subuid as it was then
	subWarnings atomic.Pointer[[]string]      // of /etc/subuid
	credentials atomic.Pointer[credentials]   // nil: TLS is off
}

// readSubUIDs is config.ReadSubUIDs but in tests.
var readSubUIDs = config.ReadSubUIDs

// config is the configuration in use. It does not change: ask again.
func (s *settings) config() *config.Config { return s.live.Load() }

// set replaces the configuration in use by c, which must not change any more.
func (s *settings) set(c *config.Config) {
	s.live.Store(c)
	subs, warnings := readSubUIDs()
	s.policy.Store(c.Policy(uint32(os.Getuid()), subs))
	s.subWarnings.Store(&warnings)
}

// peerAllowed returns nil if the daemon may be connected with a. Otherwise the error wraps
// engine.ErrNotAllowed. Whether a belongs to this host is asked anew each time, because
// addresses come and go while the daemon runs.
func (s *settings) peerAllowed(a netip.Addr) error {
	switch s.config().Peer(a) {
	case config.Permitted:
		return nil
	case config.Forbidden:
		return engine.ErrNotAllowed
	}
	local, err := isLocal(a)
	switch {
	case err != nil:
		return fmt.Errorf("%w: cannot tell whether it is an address of this host: %w", engine.ErrNotAllowed, err)
	case local:
		return fmt.Errorf("%w by itself: it is an address of this host, which networks and names do not allow; if a daemon of this host is meant, add %v to peers.allow", engine.ErrNotAllowed, a)
	}
	return nil
}

// silent reports whether peers that are rejected are not told why.
func (s *settings) silent() bool { return s.config().Peers.Explain == config.ExplainOff }

// crc says whether connections to peer have checksums unless they have TLS. In mode auto
// they have none on loopback.
func (s *settings) crc(peer netip.Addr) verbs.CRCMode {
	c := s.config()
	if c.CRC == config.CRCOff || c.CRC == config.CRCAuto && peer.IsLoopback() {
		return verbs.CRCOff
	}
	return verbs.CRCOn
}

// way says which of the engine's devices may carry connections from local to peer.
func (s *settings) way(local, peer netip.Addr) engine.Way {
	switch t, _ := s.config().TransportOf(local, peer); t {
	case config.TransportVerbs:
		return engine.FirstOnly
	case config.TransportSoft:
		return engine.SecondOnly
	}
	return engine.FirstElseSecond
}

// sharedLimit bounds the rings, tables and arenas of all clients, bytes.
func sharedLimit(c *config.Config) uint64 { return uint64(c.Limits.MaxClients) * quota.SharedEach }

// rates is how much the engine takes from one peer.
func rates(c *config.Config) engine.Rates {
	return engine.Rates{Control: c.Peers.Control, Messages: c.Peers.Messages, Bytes: c.Peers.Bytes}
}
