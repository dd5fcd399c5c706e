package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/rdsd/rdsd/examples/blockstore/store"
	"github.com/rdsd/rdsd/rds"
)

// retryLimit is how often a block is asked for when the answers say that
// something is wrong (refused, wrong checksum). Dropped operations and time
// outs are limited by patience.giveUp instead.
const retryLimit = 3

// busyPause is how long a client waits before it asks a busy server again.
const busyPause = time.Millisecond

// copyOptions are a copy's.
type copyOptions struct {
	block  int       // bytes wanted
	window int       // blocks in flight
	bar    bool      // draw a progress bar on standard error
	status io.Writer // gets a line for each block done, if not nil
}

// copier is a client that copies a file. It is made open for use by copyOut
// and copyIn.
type copier struct {
	*store.Client
	opt   copyOptions
	times recorder
}

// open asks for the export, and keeps to the server's window.
func (c *copier) open(ctx context.Context, write bool) (size int64, err error) {
	size, err = c.Client.Open(ctx, c.opt.block, write)
	if err == nil {
		c.opt.window = min(c.opt.window, c.Limit)
	}
	return size, err
}

// slots makes n buffers for the server to use.
func (c *copier) slots(n int, access rds.Access) ([]*store.Slot, error) {
	var slots []*store.Slot
	for i := range n {
		s, err := c.Slot(access)
		if err != nil {
			return nil, fmt.Errorf("buffer %d of %d: %w", i+1, n, err)
		}
		slots = append(slots, s)
	}
	return slots, nil
}

// worker copies one block through its slot; it may return before the block is
// done, when the slot is free and someone else waits for the rest.
type worker func(ctx context.Context, s *store.Slot, j job) error

// run copies all blocks of size bytes with a window of workers.
func (c *copier) run(ctx context.Context, label string, size int64, access rds.Access, t *todo, work worker) (copyStats, error) {
	start := time.Now()
	stats := copyStats{Direction: label, Bytes: size, Blocks: t.blocks, BlockSize: c.Block}
	stats.Window = int(min(uint64(c.opt.window), max(1, t.blocks)))
	slots, err := c.slots(stats.Window, access)
	if err != nil {
		return stats, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { t.stop(context.Cause(ctx)) })()
	if c.opt.status != nil {
		t.follow(func(done uint64) { fmt.Fprintln(c.opt.status, done, t.blocks) })
	}
	if c.opt.bar {
		done := func() int64 { n, _ := t.state(); return min(int64(n)*int64(c.Block), size) }
		defer progress(os.Stderr, label, size, done)()
	}
	var workers sync.WaitGroup
	for _, s := range slots {
		workers.Go(func() {
			for {
				j, ok := t.next()
				if !ok {
					return
				}
				if err := work(ctx, s, j); err != nil {
					// The others stop too, and what their calls return for
					// that is not the reason.
					cancel(err)
					t.stop(context.Cause(ctx))
					return
				}
			}
		})
	}
	workers.Wait()
	_, err = t.state()
	c.times.fill(&stats, time.Since(start))
	return stats, err
}

// again decides whether j is asked for once more after err; nil means yes.
func (c *copier) again(ctx context.Context, err error, j job) error {
	var f *store.Failure
	failed := errors.As(err, &f)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case failed && f.Status.Suspect():
		if j.attempt >= retryLimit {
			return err
		}
	case failed && !f.Status.Transient(), !failed && !errors.Is(err, store.ErrNoAnswer):
		return err
	case time.Since(j.start) > c.Wait.GiveUp:
		return fmt.Errorf("block %d: given up after %v: %w", j.block, c.Wait.GiveUp, err)
	}
	if busy(err) {
		// Answers overtake what the server knows of them: it will have room.
		pause := time.NewTimer(busyPause)
		defer pause.Stop()
		select {
		case <-pause.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	c.times.retry(!failed, failed && f.Status == store.StatusChecksum)
	return nil
}

// busy: the server did nothing, and nothing of the request is left.
func busy(err error) bool {
	var f *store.Failure
	return errors.As(err, &f) && f.Status == store.StatusBusy
}

// blocksOf is the number of blocks of a file.
func blocksOf(size int64, block int) uint64 { return uint64((size + int64(block) - 1) / int64(block)) }

// lengthOf is the length of one of them.
func lengthOf(size int64, block int, n uint64) int {
	return int(min(int64(block), size-int64(n)*int64(block)))
}
