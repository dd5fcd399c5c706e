package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/rdsd/rdsd/examples/blockstore/store"
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
	stats, err := c.run(ctx, "copy-in", size, t, func(ctx context.Context, s *store.Slot, j job) error {
		if err := c.writeBlock(ctx, s, j, lengthOf(size, c.Block, j.block), in); err != nil {
			return err
		}
		t.finish()
		return nil
	})
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

// writeBlock sends one block; when it returns nil the block is on stable storage.
func (c *copier) writeBlock(ctx context.Context, s *store.Slot, j job, length int, in *os.File) error {
	m := store.Message{Kind: store.KindWrite, Block: j.block, BlockSize: uint32(c.Block), Length: uint32(length)}
	return c.do(ctx, s, j, m, func() error {
		_, err := in.ReadAt(s.Bytes()[:length], int64(j.block)*int64(c.Block))
		switch {
		case errors.Is(err, io.EOF):
			return errors.New("the file became shorter while it was copied")
		case err != nil:
			return fmt.Errorf("block %d: %w", j.block, err)
		}
		return nil
	})
}
