package daemon

import (
	"context"
	"crypto/fips140"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/metrics"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/internal/version"
)

// Run serves until ctx ends, then shuts down in order: clients get a goodbye,
// connections are closed, files removed. If another daemon takes over before that, Run ends
// without any of this. It returns nil after an orderly end, and an error if that other daemon
// ended at once.
func (d *Daemon) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, d.handing.stop)()
	loopCtx, stopLoop := context.WithCancel(context.Background())
	defer stopLoop()
	go d.loop.run(loopCtx)
	var helpers sync.WaitGroup
	helpersCtx, stopHelpers := context.WithCancel(context.Background())
	defer stopHelpers()
	helpers.Go(func() { d.peerEvents.write(helpersCtx, d.summed) })
	helpers.Go(func() { d.watch(helpersCtx) })
	helpers.Go(func() { d.lookForHoles(helpersCtx) })
	d.takeOver()
	d.listeners.open()
	helpers.Go(func() { d.accept() })
	if d.metrics != nil {
		helpers.Go(func() { d.serveMetrics(helpersCtx) })
	}
	d.log.Info("serving", "socket", d.config().Socket, "listen", d.config().Listen, "port", d.config().Port,
		"instance", ctl.ID(d.info.Instance).String())
	if fips140.Enabled() {
		d.log.Info("FIPS 140-3 mode")
	}
	helpers.Go(func() {
		d.waitForEnd()
		if d.notify != nil {
			d.reportTo(helpersCtx, d.notify)
		}
	})

	select {
	case <-ctx.Done():
	case <-d.handing.over:
	}
	if d.endHanding() {
		d.leave()
	} else {
		d.sayGoodbye()
	}
	stopLoop()
	<-d.loop.done
	stopHelpers()
	helpers.Wait()
	d.summed.tick(time.Now())
	d.closeAll()
	return d.handing.lost
}

// sayGoodbye ends what the daemon serves.
func (d *Daemon) sayGoodbye() {
	d.log.Info("shutting down")
	d.notify.Stopping()
	d.listeners.control.Close()
	d.engine.Do(d.engine.Ends)
	d.admission.end(errShutdown)
	d.engine.Do(func() { d.engine.Shutdown() })
}

// leave leaves what the daemon serves to its successor.
func (d *Daemon) leave() {
	<-d.loop.done
	d.listeners.leave()
	d.admission.leave()
	d.leaveStats()
}

// accept serves clients and rdsctl until the control socket is closed.
func (d *Daemon) accept() {
	for {
		err := d.listeners.control.AcceptTo(d.welcome)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			d.summed.write(time.Now(), slog.LevelWarn, nil, "control socket", "err", err)
			time.Sleep(10 * time.Millisecond) // EMFILE: let descriptors come free
		}
	}
}

// welcome begins the session of a connection.
func (d *Daemon) welcome(c *ipc.Conn) {
	d.admission.arriving()
	id := d.credOf(c)
	if !d.label(c, &id) {
		d.admission.arrivingSince.Store(0)
		c.Close()
		return
	}
	s := newSession(d, d.newConnection(c, id))
	if d.admission.enter(s) {
		go s.run()
	} else {
		c.Close()
	}
}

// serveMetrics answers Prometheus. It has returned before the mapping goes.
func (d *Daemon) serveMetrics(ctx context.Context) {
	b := backend{d: d}
	lists, err := stats.NewListReader(d.listFile.Mem())
	if err != nil { // it was made by this program
		d.log.Error("metrics: the lists of connections", "err", err)
	}
	past := metrics.NewHistory(d.statistics, lists)
	var sampling sync.WaitGroup
	defer sampling.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	sampling.Go(func() { past.Run(ctx) })
	h := metrics.Handler(metrics.Source{Stats: d.statistics, Peers: b.Peers, Users: b.Users, Devices: b.Devices, Admits: d.admission.stuck, TLS: b.tls,
		History: past, Stalls: b.Stalls, Events: b.Events, Congested: b.Congested, Errors: b.Errors, Warnings: b.warnings, Version: version.String()})
	if err := d.metrics.Serve(ctx, h, d.metricsTLS(), d.log); err != nil {
		d.log.Error("metrics", "err", err)
	}
}
