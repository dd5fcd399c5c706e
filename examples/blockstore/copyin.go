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

// copyIn makes the file path the content of the export of c's server. When copyIn returns
// nil, all of the file is on the server's stable storage.
func copyIn(ctx context.Context, c *copier, path string) (copyStats, error) {
	in, err := os.Open(path)
	if err != nil {
		return copyStats{}, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return copyStats{}, err
	}
	if !info.Mode().IsRegular() {
		return copyStats{}, fmt.Errorf("%s: not a regular file", path)
	}
	if _, err := c.open(ctx, true); err != nil {
		return copyStats{}, err
	}
	size := info.Size()
	t := newTodo(blocksOf(size, c.Block))
	w := &blockWriter{copier: c, in: in, size: size, todo: t, inHand: make(chan struct{}, c.Limit)}
	stats, err := c.run(ctx, "copy-in", size, rds.AllowRead, t, w.write)
	w.pending.Wait()
	if err != nil {
		return stats, err
	}
	if a, err := c.Ask(ctx, store.Message{Kind: store.KindCommit, Block: uint64(size)}); err != nil {
		return stats, err
	} else if a.Kind != store.KindCommitted {
		return stats, fmt.Errorf("%v: COMMIT answered with %v", c.Server, a.Kind)
	}
	return stats, nil
}

// blockWriter writes blocks of one file to the server.
type blockWriter struct {
	*copier
	in      *os.File
	size    int64
	todo    *todo
	pending sync.WaitGroup // blocks fetched by the server, not yet durable
	inHand  chan struct{}  // one for each block the server has in hand; its capacity is the server's limit
}

// write sends one block and returns when the server has fetched it, so that the slot is
// free. Another goroutine then waits until the block is durable. If the block does not
// become durable, it goes back to todo and is read from the file again.
func (w *blockWriter) write(ctx context.Context, s *store.Slot, j job) error {
	length := lengthOf(w.size, w.Block, j.block)
	p := s.Buf.Bytes()[:length]
	for ; ; j.attempt++ {
		// Each attempt reads the block again, because after FETCHED the buffer may have
		// been used for another block.
		if _, err := w.in.ReadAt(p, int64(j.block)*int64(w.Block)); err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the file became shorter while it was copied")
			}
			return fmt.Errorf("block %d: %w", j.block, err)
		}
		select {
		case w.inHand <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		k, fetched, err := w.Client.Write(ctx, s, store.Message{
			Flags: store.FlagTellFetched, Block: j.block, BlockSize: uint32(w.Block), Length: uint32(length),
		})
		if err == nil && fetched {
			w.pending.Go(func() { w.await(ctx, k, j) })
			return nil
		}
		<-w.inHand
		if err == nil {
			k.End()
			w.times.block(time.Since(j.start))
			w.todo.finish()
			return nil
		}
		if err := w.again(ctx, err, j); err != nil {
			return err
		}
		if busy(err) {
			continue
		}
		if err := s.Recall(ctx); err != nil {
			return err
		}
	}
}

// await waits until a fetched block is durable. If that fails, the block goes back to
// todo, or the copy ends.
func (w *blockWriter) await(ctx context.Context, k *store.Call, j job) {
	_, err := k.Wait(ctx, w.Wait.GiveUp/2) // not Wait.Answer, because an fsync may be slow
	k.End()
	<-w.inHand
	if err == nil {
		w.times.block(time.Since(j.start))
		w.todo.finish()
		return
	}
	if err := w.again(ctx, err, j); err != nil {
		w.todo.stop(err)
		return
	}
	w.todo.retry(j)
}
