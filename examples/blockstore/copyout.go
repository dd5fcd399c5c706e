package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/rdsd/rdsd/rds"
)

// copyOut copies the export of c's server into the file path. The file appears
// under its name when it is complete and on stable storage.
func copyOut(ctx context.Context, c *client, path string) (copyStats, error) {
	out, err := createOutput(path)
	if err != nil {
		return copyStats{}, err
	}
	defer out.discard()
	size, err := c.open(ctx, false)
	if err != nil {
		return copyStats{}, err
	}
	t := newTodo(blocksOf(size, c.opt.block))
	stats, err := c.run(ctx, "copy-out", size, rds.AllowWrite, t, func(ctx context.Context, s *slot, j job) error {
		if err := c.readBlock(ctx, s, j, lengthOf(size, c.opt.block, j.block), out.file); err != nil {
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

// readBlock gets one block, asking again until it is there or hopeless.
func (c *client) readBlock(ctx context.Context, s *slot, j job, length int, out *os.File) error {
	for ; ; j.attempt++ {
		err := c.tryRead(ctx, s, j.block, length)
		if err == nil {
			c.times.block(time.Since(j.start))
			_, err := out.WriteAt(s.buf.Bytes()[:length], int64(j.block)*int64(c.opt.block))
			return err
		}
		if err := c.again(ctx, err, j); err != nil {
			return err
		}
		if busy(err) {
			continue
		}
		if err := s.recall(ctx); err != nil {
			return err
		}
	}
}

// tryRead asks for one block once; nil means it is in the slot's buffer.
func (c *client) tryRead(ctx context.Context, s *slot, block uint64, length int) error {
	cookie, err := s.cookie()
	if err != nil {
		return err
	}
	k, err := c.request(&message{kind: kindRead, block: block,
		blockSize: uint32(c.opt.block), length: uint32(length)}, cookie)
	if err != nil {
		return err
	}
	defer k.end()
	a, err := k.wait(ctx, c.opt.patience)
	switch {
	case err != nil:
		return err
	case a.kind != kindDone || a.block != block || a.length != uint32(length):
		return failf(statusChecksum, "block %d: answered with %v of block %d, %d bytes", block, a.kind, a.block, a.length)
	}
	if crc := checksum(s.buf.Bytes()[:length]); crc != a.crc {
		return failf(statusChecksum, "block %d: checksum %08x arrived, %08x announced", block, crc, a.crc)
	}
	return nil
}

// output is a file being written: under a name of its own until it is kept,
// unless the path is something that cannot be replaced (a device).
type output struct {
	file *os.File
	path string // to rename to, "" = written in place
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
