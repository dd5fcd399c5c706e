package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/rdsd/rdsd/examples/blockstore/store"
	"github.com/rdsd/rdsd/rds"
)

func runServe(ctx context.Context, c *command) error {
	var readOnly, create bool
	o := serveOptions{}
	args, err := c.parse("FILE", 1, func(fs *flag.FlagSet) {
		fs.BoolVar(&readOnly, "read-only", false, "refuse copy-in")
		fs.BoolVar(&create, "create", false, "create FILE if it is missing")
		fs.IntVar(&o.buffers, "buffers", 64, "registered buffers for reads; one client may have half as many requests in hand, and the writer is granted half as many buffers")
		fs.DurationVar(&o.keep, "keep", 30*time.Second, "how long the writer keeps granted buffers that it does not use")
		fs.IntVar(&o.workers, "workers", 4, "goroutines that wait for storage")
	})
	if err != nil {
		return err
	}
	if o.buffers < 2 || o.workers < 1 || o.keep <= 0 {
		return &store.UsageError{Text: "-buffers must be 2 or more, -workers 1 or more, and -keep positive"}
	}
	o.block, o.small = c.block, c.small
	bind, err := store.ParseRemote(c.bind, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	if err != nil {
		return err
	}
	e, err := openExport(args[0], readOnly, create)
	if err != nil {
		return err
	}
	defer e.close()
	rc, err := rds.Open(ctx, rds.Options{Socket: c.socket})
	if err != nil {
		return err
	}
	defer rc.Close()
	sock, err := rc.Bind(bind)
	if err != nil {
		return err
	}
	defer sock.Close()
	fmt.Fprintf(c.stderr, "serving %s at %v\n", args[0], sock.LocalAddrPort())
	stats, err := serve(ctx, rc, sock, e, o, slog.New(slog.NewTextHandler(c.stderr, nil)))
	c.report(stats, fmt.Sprintf("served %d reads, %d writes, %d fsyncs; %d operations: %d success, %d dropped, %d unknown, %d other",
		stats.Reads, stats.Writes, stats.Fsyncs, stats.Operations, stats.Success, stats.Dropped, stats.Unknown, stats.OtherStatus))
	return err
}

func runCopyOut(ctx context.Context, c *command) error {
	return c.copy(ctx, "REMOTE FILE", 0, func(ctx context.Context, cl *copier, args []string) (copyStats, error) {
		return copyOut(ctx, cl, args[1])
	})
}

func runCopyIn(ctx context.Context, c *command) error {
	return c.copy(ctx, "FILE REMOTE", 1, func(ctx context.Context, cl *copier, args []string) (copyStats, error) {
		return copyIn(ctx, cl, args[0])
	})
}

// copy does what both directions share, and calls do for the rest. remote is the index of
// REMOTE in the arguments.
func (c *command) copy(ctx context.Context, what string, remote int,
	do func(context.Context, *copier, []string) (copyStats, error),
) error {
	var o copyOptions
	var wait store.Patience
	var statusFD int
	args, err := c.parse(what, 2, func(fs *flag.FlagSet) {
		fs.IntVar(&o.window, "window", 16, "blocks in flight")
		fs.DurationVar(&wait.Answer, "patience", 3*time.Second, "time to wait for an answer before a block is requested again")
		fs.IntVar(&statusFD, "status-fd", 0, "write a line \"DONE BLOCKS\" to this `descriptor` for each block done; 0 is none")
		fs.DurationVar(&wait.GiveUp, "give-up", 30*time.Second, "time for a block, over all attempts")
	})
	if err != nil {
		return err
	}
	if o.window < 1 || wait.Answer <= 0 || wait.GiveUp <= 0 {
		return &store.UsageError{Text: "-window, -patience and -give-up must be positive"}
	}
	if statusFD != 0 {
		f, err := openStatus(statusFD)
		if err != nil {
			return err
		}
		defer f.Close()
		o.status = f
	}
	server, err := store.ParseRemote(args[remote], netip.Addr{})
	if err != nil {
		return err
	}
	bind, err := store.LocalFor(c.bind, server)
	if err != nil {
		return err
	}
	o.block = c.block
	if f, ok := c.stderr.(*os.File); ok {
		o.bar = isTerminal(f)
	}
	cl, err := store.Connect(ctx, store.Options{Daemon: rds.Options{Socket: c.socket}, Bind: bind, Server: server, Wait: wait, Small: c.small})
	if err != nil {
		return err
	}
	defer cl.Close()
	stats, err := do(ctx, &copier{Client: cl, opt: o}, args)
	if err != nil {
		return err
	}
	c.report(stats, fmt.Sprintf("%s: %d blocks, %.1f MB in %.2f s, %.0f MB/s, per block p50 %.2f ms p99 %.2f ms, %d asked for again",
		stats.Direction, stats.Blocks, float64(stats.Bytes)/1e6, stats.Seconds, stats.MBPerSec,
		stats.P50Micros/1e3, stats.P99Micros/1e3, stats.Retried))
	return nil
}
