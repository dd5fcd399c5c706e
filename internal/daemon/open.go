package daemon

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/metrics"
	"github.com/rdsd/rdsd/internal/quota"
	"github.com/rdsd/rdsd/internal/rdstcp"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/verbs/soft"
)

// New is NewUnder without a supervisor.
func New(cfg config.Config, log *slog.Logger) (*Daemon, error) {
	return NewUnder(Supervisor{}, cfg, log)
}

// NewUnder opens everything the daemon needs: control socket, statistics file, device,
// listening addresses. Nothing runs yet. Errors name the cause. After an error everything
// that NewUnder opened is closed again.
func NewUnder(super Supervisor, cfg config.Config, log *slog.Logger) (*Daemon, error) {
	cred, err := loadTLS(&cfg)
	if err != nil {
		return nil, err
	}
	var seed [32]byte
	_, _ = crand.Read(seed[:])
	rng := rand.New(rand.NewChaCha8(seed))
	d := &Daemon{log: log, lines: super.Log, started: time.Now(), summed: newSummedLog(log), peerEvents: newPeerEvents(),
		credOf: (*ipc.Conn).Peer, labels: labels{cgroupOf: (*ipc.Conn).Cgroup}, listeners: newListeners(super.Sockets), upgrades: &upgrades{}, handing: newHanding(), notify: super.Notify}
	if i := super.inherits; i != nil {
		d.listeners, d.upgrades = i.listeners, i.upgrades
	}
	if err := resolve(&cfg); err != nil {
		if super.inherits != nil { // the daemon before may know them, and goes on
			d.listeners.close()
			return nil, fmt.Errorf("configuration: %w", err)
		}
		log.Warn("names in peers.allow", "err", err) // without the names; the status warns of them
	}
	d.unreceived.most = quota.UnreceivedWithin(filesLimit())
	d.set(&cfg)
	d.credentials.Store(cred)
	d.info = stats.Info{PID: os.Getpid(), Instance: rng.Uint64() | 1, Start: d.started.UnixNano()}
	o := opening{Daemon: d, cfg: &cfg, rand: rng.Uint64}
	for _, open := range []func() error{
		o.openControl, // first, because it says best that another daemon runs
		o.tryMemory,
		o.openStats,
		o.openEngine,
		o.openTCP,
		o.addAddresses,
		o.listeners.allTaken,
		o.openMetrics,
		o.openLoop,
	} {
		if err := open(); err != nil {
			d.closeAll()
			return nil, err
		}
	}
	for _, w := range awaited(&cfg) {
		log.Warn(w)
	}
	return d, nil
}

// opening is a daemon that NewUnder opens, with what only the opening needs.
type opening struct {
	*Daemon
	cfg   *config.Config
	rand  func() uint64
	block *stats.Block // set by openStats
}

// openControl listens on the control socket.
func (o *opening) openControl() (err error) {
	if err = failpoint.Hit(failpoint.ControlSocket); err != nil {
		return err
	}
	return o.listeners.openControl(o.cfg.Socket, o.cfg.SocketMode)
}

// tryMemory returns an error if no client could be served, because no memory can be made that
// a process may only read: /proc is not mounted.
func (o *opening) tryMemory() error {
	m, err := shm.CreateMemfdReadOnly("rdsd-try", 1)
	if err != nil {
		return err
	}
	return m.Close()
}

// openStats makes the statistics file and the file of the lists.
func (o *opening) openStats() (err error) {
	if err = failpoint.Hit(failpoint.StatsFile); err != nil {
		return err
	}
	if o.statFile, o.listFile, err = createStats(o.cfg.Stats, config.ListsPath(o.cfg.Stats), o.listeners.before); err != nil {
		return err
	}
	if o.block, err = stats.NewBlock(o.statFile.Mem(), o.info); err != nil {
		return err
	}
	if o.statistics, err = stats.NewReader(o.statFile.Mem()); err != nil {
		return err
	}
	o.lists, err = stats.NewLists(o.listFile.Mem(), o.info)
	return err
}

// openEngine opens the devices and makes the engine on the first of them. The engine's thread does not run
// yet.
func (o *opening) openEngine() (err error) {
	if err = failpoint.Hit(failpoint.Device); err != nil {
		return err
	}
	threads, spill := o.cfg.Threads(runtime.GOMAXPROCS(0))
	if o.transport, err = openTransport(o.cfg, soft.Options{Congestion: o.congestionControl(), Listen: o.listeners.listen, Threads: threads, Spill: spill,
		TLS: o.tlsFor, Silent: o.silent, Refused: o.tlsRefused, Late: &o.hub}); err != nil {
		return err
	}
	for _, w := range o.transport.fallbacks() {
		o.warnings = append(o.warnings, fmt.Sprintf("%v goes by soft: %v", w.addr, w.whyNotVerbs))
		o.log.Warn("falls back to soft", "address", w.addr, "err", w.whyNotVerbs)
	}
	limits := openCgroups("/")
	c := o.engineConfig()
	c.MaxPools = limits.pools()
	o.transport.configure(&c)
	if o.engine, err = engine.New(o.transport.first(), c, o.block); err != nil {
		limits.close()
		return err
	}
	o.mostHanded = mostRecords
	o.engine.KeepLists(o.lists)
	o.populator = newPopulator(limits, o.engine.Memory())
	o.populator.own = o.engine.OwnMemory()
	o.warnOfCgroup()
	return nil
}

// engineConfig is what the settings say for the engine.
func (o *opening) engineConfig() engine.Config {
	cfg := o.cfg
	return engine.Config{
		Instance: o.info.Instance, Port: cfg.Port, HardCap: int(cfg.RecvHardCap), MaxSockets: cfg.Limits.MaxSockets,
		OverflowBytes: int(cfg.Limits.MaxHeldBytes), MaxSharedBytes: sharedLimit(cfg), MaxMaps: quota.MapsWithin(filesLimit()),
		MaxRegisteredBytes: cfg.Limits.MaxRegisteredBytes, Policy: o.policy.Load(),
		Rates:       rates(cfg),
		Silence:     int64(cfg.Peers.Silence),
		Paths:       cfg.Peers.Paths,
		IgnorePings: cfg.Ping == config.PingIgnore,
		CRC:         o.crc, Allowed: o.peerAllowed, Silent: o.silent, KernelPeer: cfg.KernelPeer, Way: o.way, Alloc: mapAnon, Rand: o.rand,
		StartSeq: func() uint64 { return uint64(time.Now().UnixMilli()) << 20 },
		Trace:    o.peerEvents.put,
	}
}

// congestionControl names the congestion control of TCP connections; empty: the
// provider chooses.
func (o *opening) congestionControl() string {
	if o.cfg.Congestion == config.CongestionCubic {
		return "cubic"
	}
	return ""
}

// tlsRefused reports a connection that the soft provider refused in its TLS handshake.
func (o *opening) tlsRefused(local, remote netip.Addr, why error) {
	o.peerEvents.put(engine.Place{Local: local, Remote: remote}, engine.EventRefused+": TLS", why)
}

// warnOfCgroup adds the warning of a cgroup that is too small. The engine's thread does not run yet.
func (o *opening) warnOfCgroup() {
	if w := o.populator.cgroups.tooSmallFor(o.engine.OwnMemory()); w != "" {
		o.warnings = append(o.warnings, w)
	}
}

// openTCP opens RDS/TCP if a setting names a host that is reached by it. The engine's thread
// does not run yet.
func (o *opening) openTCP() (err error) {
	if !o.cfg.Needs(config.TransportTCP) {
		return nil
	}
	if o.tcp, err = rdstcp.New(rdstcp.Options{Port: o.cfg.TCP.Port, Timeout: o.cfg.TCP.Timeout, Congestion: o.congestionControl(),
		Allowed: func(a netip.Addr) bool { return o.peerAllowed(a) == nil && o.cfg.TCPFrom(a) }, Rand: o.rand, Tap: &o.hub,
		Listen: o.listeners.listen}); err != nil {
		return fmt.Errorf("RDS/TCP: %w", err)
	}
	o.engine.UseTCP(o.tcp, o.cfg.TCPPeer, o.cfg.TCP.Lanes)
	return nil
}

// addAddresses gives the engine the daemon's addresses, so that it listens on them.
func (o *opening) addAddresses() error { return o.transport.addTo(o.engine, o.cfg.Port) }

// openMetrics listens for Prometheus if the settings say so.
func (o *opening) openMetrics() error {
	a := o.cfg.Metrics.Listen
	if !a.IsValid() {
		return nil
	}
	l, err := o.listeners.listen(context.Background(), a)
	if err != nil {
		return fmt.Errorf("metrics.listen: %w", err)
	}
	o.metrics = metrics.NewServer(l)
	return nil
}

// openLoop makes what Run starts. The engine's thread does not run yet.
func (o *opening) openLoop() (err error) {
	if o.loop, err = newLoop(o.engine, o.block, o.cfg); err == nil && o.tcp != nil {
		err = o.loop.watch(o.tcp.FD())
	}
	return err
}

// closeAll releases what NewUnder opened. The engine's thread has ended or never ran.
func (d *Daemon) closeAll() {
	d.listeners.close()
	if d.populator != nil {
		d.populator.cgroups.close()
	}
	if d.engine != nil {
		d.engine.End()
	}
	d.transport.close()
	if d.tcp != nil {
		d.tcp.Close()
	}
	if d.engine != nil {
		for _, b := range d.engine.Pools() {
			unmapAnon(b)
		}
	}
	if d.metrics != nil {
		d.metrics.Close()
	}
	if d.loop != nil {
		d.loop.close()
	}
	for _, f := range []*stats.File{d.listFile, d.statFile} {
		if f != nil {
			f.Close()
		}
	}
}
