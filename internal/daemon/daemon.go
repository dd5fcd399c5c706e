// Package daemon is rdsd around its engine: who may connect to it and what they get,
// the devices it opens, the thread that turns the engine, and the answers to rdsctl.
package daemon

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/metrics"
	"github.com/rdsd/rdsd/internal/quota"
	"github.com/rdsd/rdsd/internal/rdstcp"
	"github.com/rdsd/rdsd/internal/service"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/internal/version"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft"
	"golang.org/x/sys/unix"
)

var errShutdown = errors.New("the daemon is shutting down")

// Daemon is one running rdsd.
type Daemon struct {
	live   atomic.Pointer[config.Config] // replaced by a reload, never changed
	policy atomic.Pointer[config.Policy] // of live
	reload reloading
	tls    atomic.Pointer[credentials] // nil: none
	notify *service.Notifier
	given  string                   // what was given up: set before Run
	credOf func(*ipc.Conn) ipc.Cred // whose a connection is
	log    *slog.Logger

	info     stats.Info
	statFile *stats.File
	listFile *stats.File
	reader   *stats.Reader
	via      *transport
	tcp      *rdstcp.Net // nil: off
	e        *engine.Engine
	l        *loop
	metrics  *metrics.Server // nil: off
	ln       *ipc.Listener
	warnings []string
	started  time.Time

	loopDone   chan struct{}
	sessions   sync.WaitGroup
	lines      *lines
	traces     chan traceEvent
	populating *populating
	untold     atomic.Uint64 // traces for which the logger was too slow
	drained    atomic.Pointer[string]
	silent     atomic.Uint64 // control connections that said nothing

	accepting atomic.Int64 // since when one connection is being taken in, unix ns; 0: none is

	mu        sync.Mutex
	open      map[*session]struct{} // guarded by mu
	ended     bool                  // guarded by mu
	admission                       // guarded by mu
}

type traceEvent struct {
	local, remote netip.Addr
	event         string
	err           error
}

// Supervisor is what started the daemon and watches it. The zero value:
// nobody.
type Supervisor struct {
	Sockets *service.Sockets  // open already; New takes those it listens on
	Notify  *service.Notifier // who is told
}

// New is NewUnder nobody.
func New(cfg config.Config, log *slog.Logger) (*Daemon, error) {
	return NewUnder(Supervisor{}, cfg, log)
}

// NewUnder opens everything the daemon needs: statistics file, device,
// listening addresses, control socket. Nothing runs yet. Errors name the cause;
// what was opened is closed again.
func NewUnder(super Supervisor, cfg config.Config, log *slog.Logger) (_ *Daemon, err error) {
	d := &Daemon{log: log, started: time.Now(), loopDone: make(chan struct{}),
		lines: newLines(log), traces: make(chan traceEvent, 256), open: map[*session]struct{}{},
		credOf: (*ipc.Conn).Peer, notify: super.Notify}
	d.setConfig(&cfg)
	d.populating = newPopulating(openRoom("/"))
	cred, err := loadTLS(&cfg)
	if err != nil {
		return nil, err
	}
	d.tls.Store(cred)
	defer func() {
		if err != nil {
			d.closeAll()
		}
	}()
	var seed [32]byte
	crand.Read(seed[:])
	rng := rand.New(rand.NewChaCha8(seed))
	d.info = stats.Info{PID: os.Getpid(), Instance: rng.Uint64() | 1, Start: d.started.UnixNano()}
	// The control socket first: it says best that another daemon runs.
	if err = failpoint.Hit(failpoint.ControlSocket); err != nil {
		return nil, err
	}
	if l := super.Sockets.TakeControl(); l != nil {
		d.ln, err = ipc.Adopt(l, cfg.Socket)
	} else {
		d.ln, err = ipc.Listen(cfg.Socket, cfg.SocketMode)
	}
	if err != nil {
		return nil, err
	}
	if err = failpoint.Hit(failpoint.StatsFile); err != nil {
		return nil, err
	}
	if d.statFile, d.listFile, err = createStats(cfg.Stats, config.ListsPath(cfg.Stats)); err != nil {
		return nil, err
	}
	block, err := stats.NewBlock(d.statFile.Mem(), d.info)
	if err != nil {
		return nil, err
	}
	if d.reader, err = stats.NewReader(d.statFile.Mem()); err != nil {
		return nil, err
	}
	rowsOut, err := stats.NewLists(d.listFile.Mem(), d.info)
	if err != nil {
		return nil, err
	}
	cc := ""
	if cfg.Congestion == config.CongestionCubic {
		cc = "cubic"
	}
	if err = failpoint.Hit(failpoint.Device); err != nil {
		return nil, err
	}
	ec := engine.Config{
		Instance: d.info.Instance, Port: cfg.Port, HardCap: int(cfg.RecvHardCap), MaxSockets: cfg.Limits.MaxSockets,
		OverflowBytes: int(cfg.Limits.MaxHeldBytes), MaxSharedBytes: sharedLimit(&cfg),
		MaxRegisteredBytes: cfg.Limits.MaxRegisteredBytes, Policy: d.policy.Load(),
		Rates:       rates(&cfg),
		Silence:     int64(cfg.Peers.Silence),
		IgnorePings: cfg.Ping == config.PingIgnore,
		CRC:         d.crc, Allowed: d.peerAllowed, KernelPeer: cfg.KernelPeer, Alloc: mapAnon, Rand: rng.Uint64,
		StartSeq: func() uint64 { return uint64(time.Now().UnixMilli()) << 20 },
		Trace:    d.trace,
	}
	dev, err := d.openDevice(&cfg, soft.Options{Congestion: cc, Listener: super.Sockets.Peer, TLS: d.tlsFor, Refused: d.tlsRefused}, &ec)
	if err != nil {
		return nil, err
	}
	if d.e, err = engine.New(dev, ec, block); err != nil {
		return nil, err
	}
	d.e.KeepLists(rowsOut)
	d.warnRoom()
	if cfg.Needs(config.TransportTCP) {
		if d.tcp, err = rdstcp.New(rdstcp.Options{Port: cfg.TCP.Port, Timeout: cfg.TCP.Timeout, Congestion: cc,
			Allowed: func(a netip.Addr) bool { return d.peerAllowed(a) && cfg.TCPFrom(a) }, Rand: rng.Uint64}); err != nil {
			return nil, fmt.Errorf("RDS/TCP: %w", err)
		}
		d.e.UseTCP(d.tcp, cfg.TCPPeer, cfg.TCP.Lanes)
	}
	if err = d.addLocals(&cfg); err != nil {
		return nil, err
	}
	if left := super.Sockets.Left(); len(left) > 0 {
		return nil, fmt.Errorf("systemd passed sockets that listen and port do not name: %s", strings.Join(left, ", "))
	}
	if m := cfg.Metrics.Listen; m.IsValid() {
		if d.metrics, err = metrics.Listen(m); err != nil {
			return nil, err
		}
	}
	if d.l, err = newLoop(d.e, block, cfg.Spin); err == nil && d.tcp != nil {
		err = d.l.watch(d.tcp.FD())
	}
	return d, err
}

// crc is the checksum policy: by default off on loopback and under TLS, on
// elsewhere.
func (d *Daemon) crc(peer netip.Addr) verbs.CRCMode {
	switch {
	case d.config().CRC == config.CRCOff, d.config().CRC == config.CRCAuto && (peer.IsLoopback() || d.config().Secured()):
		return verbs.CRCOff
	}
	return verbs.CRCOn
}

// trace hands an event to the logger without ever blocking the engine.
func (d *Daemon) trace(local, remote netip.Addr, event string, err error) {
	select {
	case d.traces <- traceEvent{local, remote, event, err}:
	default:
		d.untold.Add(1)
	}
}

// Run serves until ctx ends, then shuts down in order: clients get a goodbye,
// connections are closed, files removed. It returns nil after an orderly end.
func (d *Daemon) Run(ctx context.Context) error {
	loopCtx, stopLoop := context.WithCancel(context.Background())
	defer stopLoop()
	go func() {
		defer close(d.loopDone)
		d.l.run(loopCtx)
	}()
	var aux sync.WaitGroup
	auxCtx, stopAux := context.WithCancel(context.Background())
	aux.Go(func() { d.logTraces(auxCtx) })
	aux.Go(func() { d.watchdog(auxCtx) })
	aux.Go(func() { d.accept() })
	if d.metrics != nil {
		aux.Go(func() { d.serveMetrics(auxCtx) })
	}
	d.log.Info("serving", "socket", d.config().Socket, "listen", d.config().Listen, "port", d.config().Port,
		"instance", ctl.ID(d.info.Instance).String())

	d.notify.Ready(d.statusLine())
	if d.notify != nil {
		aux.Go(func() { d.feed(auxCtx, d.notify) })
	}

	<-ctx.Done()
	d.log.Info("shutting down")
	d.notify.Stopping()
	d.ln.Close()
	d.mu.Lock()
	d.ended = true
	for s := range d.open {
		go s.goodbye(errShutdown) // one that does not read holds up nobody
	}
	d.mu.Unlock()
	d.sessions.Wait()
	d.e.Do(func() { d.e.Shutdown() })
	stopLoop()
	<-d.loopDone
	stopAux()
	aux.Wait()
	d.lines.tick(time.Now())
	d.closeAll()
	return nil
}

// closeAll releases what New opened; the loop has ended or never ran.
func (d *Daemon) closeAll() {
	if d.ln != nil {
		d.ln.Close()
	}
	d.populating.room.close()
	if d.e != nil {
		d.e.End()
	}
	d.via.close()
	if d.tcp != nil {
		d.tcp.Close()
	}
	if d.e != nil {
		for _, b := range d.e.Pools() {
			unmapAnon(b)
		}
	}
	if d.metrics != nil {
		d.metrics.Close()
	}
	if d.l != nil {
		d.l.close()
	}
	for _, f := range []*stats.File{d.listFile, d.statFile} {
		if f != nil {
			f.Close()
		}
	}
}

// accept serves clients and rdsctl until the control socket is closed.
func (d *Daemon) accept() {
	for {
		c, err := d.ln.Accept()
		if err != nil {
			if errors.Is(err, os.ErrClosed) {
				return
			}
			d.lines.write(time.Now(), slog.LevelWarn, nil, "control socket", "err", err)
			time.Sleep(10 * time.Millisecond) // EMFILE: let descriptors come free
			continue
		}
		d.accepting.Store(time.Now().UnixNano())
		id := d.credOf(c)
		s := &session{d: d, c: c, id: id, user: quota.Of(d.policy.Load(), id)}
		d.mu.Lock()
		if d.ended {
			c.Close()
		} else {
			d.open[s] = struct{}{}
			d.admission.arrive(s)
			d.sessions.Add(1)
			go s.run()
		}
		d.mu.Unlock()
		d.accepting.Store(0)
	}
}

// serveMetrics answers Prometheus. It has returned before the mapping goes.
func (d *Daemon) serveMetrics(ctx context.Context) {
	h := metrics.Handler(metrics.Source{Stats: d.reader, Peers: backend{d}.Peers, Users: backend{d}.Users, Admits: d.admits, TLS: d.tlsStatus, Version: version.String()})
	if err := d.metrics.Serve(ctx, h, d.log); err != nil {
		d.log.Error("metrics", "err", err)
	}
}

// logTraces writes the engine's events to the log.
func (d *Daemon) logTraces(ctx context.Context) {
	for {
		select {
		case t := <-d.traces:
			var args []any
			if t.local.IsValid() {
				args = append(args, "local", t.local, "peer", t.remote)
			}
			if t.err != nil {
				args = append(args, "err", t.err)
			}
			level := slog.LevelInfo
			if t.event == engine.EventFellBack {
				level = slog.LevelWarn
			}
			d.lines.write(time.Now(), level, t.remote, t.event, args...)
		case <-ctx.Done():
			return
		}
	}
}

// watchdog says so when the engine does not turn, and what is logged in sums:
// every second, and seldom while the daemon is idle.
func (d *Daemon) watchdog(ctx context.Context) {
	const (
		pace       = time.Second
		idlePace   = 30 * time.Second
		heartbeats = 4 // turns of an engine that only shows that it lives
	)
	tick := time.NewTimer(pace)
	defer tick.Stop()
	stuck, turns := false, uint64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			snap := d.reader.Snapshot()
			idle := snap.State == stats.Sleeping && snap.Turns.Turns-turns <= heartbeats
			turns = snap.Turns.Turns
			late := snap.Late(now)
			if late >= ctl.StallAfter && !stuck {
				d.log.Error("the engine does not turn", "late", late)
			} else if late < ctl.StallAfter && stuck {
				d.log.Warn("the engine turns again")
			}
			stuck = late >= ctl.StallAfter
			if n := d.silent.Swap(0); n > 0 {
				d.log.Warn("client ended: said nothing", "connections", n)
			}
			if n := d.untold.Swap(0); n > 0 {
				d.log.Info("more events of peers than could be logged", "events", n)
			}
			if d.lines.tick(now) && idle && !stuck {
				tick.Reset(idlePace)
			} else {
				tick.Reset(pace)
			}
		}
	}
}

func (d *Daemon) congestion() ctl.Congestion {
	c := ctl.Congestion{Wanted: string(d.config().Congestion)}
	if d.via.soft == nil {
		c.Why = "the transport is not TCP of this daemon"
		return c
	}
	used, err := d.via.soft.Congestion()
	c.Used = used
	if err != nil {
		c.Why = err.Error()
	}
	return c
}

// mapAnon returns n bytes of page-aligned memory that costs nothing until it
// is touched.
func mapAnon(n int) []byte {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		panic(fmt.Sprintf("no address space for %d bytes: %v", n, err))
	}
	return b
}

func unmapAnon(b []byte) {
	if b != nil {
		unix.Munmap(b)
	}
}
