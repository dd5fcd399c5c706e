package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// copyOut copies the export of c's server into the file path. The file gets its name only
// when it is complete and on stable storage.
func copyOut(ctx context.Context, c *copier, path string) (copyStats, error) {
	out, err := createOutput(path)
	if err != nil {
		return copyStats{}, err
	}
	defer out.discard()
	size, err := c.open(ctx, false)
	if err != nil {
		return copyStats{}, err
	}
	t := newTodo(blocksOf(size, c.Block))
	stats, err := c.run(ctx, "copy-out", size, t, func(ctx context.Context, s *store.Slot, j job) error {
		if err := c.readBlock(ctx, s, j, lengthOf(size, c.Block, j.block), out.file); err != nil {
			return err
		}
		t.finish()
		return nil
	})
	if err != nil {
		return stats, err
	}
	return stats, out.keep()
}

// readBlock gets one block.
func (c *copier) readBlock(ctx context.Context, s *store.Slot, j job, length int, out *os.File) error {
	m := store.Message{Kind: store.KindRead, Block: j.block, BlockSize: uint32(c.Block), Length: uint32(length)}
	if err := c.do(ctx, s, j, m, nil); err != nil {
		return err
	}
	_, err := out.WriteAt(s.Bytes()[:length], int64(j.block)*int64(c.Block))
	return err
}

// output is a file being written. It has a temporary name until keep renames it. A path
// that is no regular file, such as a device, is written in place.
type output struct {
	file *os.File
	path string // the name that keep gives it; "" if written in place, or kept
}

func createOutput(path string) (*output, error) {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil, &fs.PathError{Op: "create", Path: path, Err: fmt.Errorf("is a directory")}
	case err == nil && !info.Mode().IsRegular():
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		return &output{file: f}, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	return &output{file: f, path: path}, err
}

// keep makes the file durable and gives it its name.
func (o *output) keep() error {
	if o.path == "" {
		return o.file.Close()
	}
	if err := o.file.Chmod(0o644); err != nil {
		return err
	}
	if err := o.file.Sync(); err != nil {
		return err
	}
	if err := os.Rename(o.file.Name(), o.path); err != nil {
		return err
	}
	o.path = ""
	return o.file.Close()
}

// discard removes the file unless it was kept.
func (o *output) discard() {
	o.file.Close()
	if o.path != "" {
		os.Remove(o.file.Name())
	}
}
