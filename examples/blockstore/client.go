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
)

// retryLimit is how often a block is requested when the answers say that something
// is wrong with it (refused, wrong checksum). After dropped operations and missing
// answers, Patience.GiveUp is the limit instead.
const retryLimit = 3

// copyOptions are the options of one copy.
type copyOptions struct {
	block  int       // bytes of a block; the server may choose less
	window int       // blocks in flight
	bar    bool      // draw a progress bar on standard error
	status io.Writer // is written a line for each block done, if not nil
}

// copier is a client that copies a file. copyOut and copyIn open the export with it.
type copier struct {
	*store.Client
	opt   copyOptions
	times recorder
}

// open opens the export, and lowers the window to the server's.
func (c *copier) open(ctx context.Context, write bool) (size int64, err error) {
	size, err = c.Client.Open(ctx, c.opt.block, write)
	if err == nil {
		c.opt.window = min(c.opt.window, c.Limit)
	}
	return size, err
}

// slots makes n buffers that the server may use.
func (c *copier) slots(n int) ([]*store.Slot, error) {
	var slots []*store.Slot
	for i := range n {
		s, err := c.Slot()
		if err != nil {
			return nil, fmt.Errorf("buffer %d of %d: %w", i+1, n, err)
		}
		slots = append(slots, s)
	}
	return slots, nil
}

// worker copies one block through its slot.
type worker func(ctx context.Context, s *store.Slot, j job) error

// run copies all blocks of size bytes with a window of workers.
func (c *copier) run(ctx context.Context, label string, size int64, t *todo, work worker) (copyStats, error) {
	start := time.Now()
	stats := copyStats{Direction: label, Bytes: size, Blocks: t.blocks, BlockSize: c.Block}
	stats.Window = int(min(uint64(c.opt.window), max(1, t.blocks)))
	slots, err := c.slots(stats.Window)
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
					// This ends the calls of the other workers, too. The cause
					// of ctx is the first error, and not one of theirs.
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

// again decides whether j is requested once more after err. It returns nil for yes, and
// else the error that ends the copy. If the server was busy, it waits for busyPause first.
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
	if store.Busy(err) {
		// The server counts a request as in hand until its status is known. Its answer
		// can be here before that, so the server will soon have room.
		return store.Pause(ctx)
	}
	c.times.retry(!failed, failed && f.Status == store.StatusChecksum)
	return nil
}

// do asks for what m says until it is done or hopeless. fill, if not nil, fills the
// slot before each attempt.
func (c *copier) do(ctx context.Context, s *store.Slot, j job, m store.Message, fill func() error) error {
	for ; ; j.attempt++ {
		if fill != nil {
			if err := s.Ready(ctx); err != nil {
				return err
			}
			if err := fill(); err != nil {
				return err
			}
		}
		_, err := c.Do(ctx, s, m)
		if err == nil {
			c.times.block(time.Since(j.start))
			return nil
		}
		if err := c.again(ctx, err, j); err != nil {
			return err
		}
		if store.Busy(err) {
			continue
		}
		if err := s.Recall(ctx); err != nil {
			return err
		}
	}
}

// blocksOf returns the number of blocks in a file of size bytes.
func blocksOf(size int64, block int) uint64 { return uint64((size + int64(block) - 1) / int64(block)) }

// lengthOf returns the length of block n. Only the last block may be shorter than block.
func lengthOf(size int64, block int, n uint64) int {
	return int(min(int64(block), size-int64(n)*int64(block)))
}
