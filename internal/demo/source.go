package main

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// errFull says that the file has the wanted size.
var errFull = errors.New("full")

// writeGoTar writes the first size bytes of a tar of the Go source tree to path. If the
// tree is smaller, it is written again.
func (d *demo) writeGoTar(ctx context.Context, path string, size int64) error {
	out, err := d.procs.run(ctx, command{name: "go", program: "go", args: []string{"env", "GOROOT"}})
	if err != nil {
		return fmt.Errorf("no Go source tree to copy, name a file with FILE=...: %w", err)
	}
	src := filepath.Join(strings.TrimSpace(string(out)), "src")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := &limitedWriter{w: f, left: size}
	for err == nil {
		before := w.left
		if err = writeTar(ctx, w, src); err == nil && w.left == before {
			err = fmt.Errorf("%s holds no files", src)
		}
	}
	if !errors.Is(err, errFull) {
		return err
	}
	return f.Close()
}

// writeTar writes a tar of the regular files under dir.
func writeTar(ctx context.Context, w io.Writer, dir string) error {
	t := tar.NewWriter(w)
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(b))}); err != nil {
			return err
		}
		_, err = t.Write(b)
		return err
	})
}

// limitedWriter writes at most left more bytes, then fails with errFull.
type limitedWriter struct {
	w    io.Writer
	left int64
}

func (l *limitedWriter) Write(p []byte) (int, error) {
	n, err := l.w.Write(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	if err == nil && l.left == 0 {
		err = errFull
	}
	return n, err
}

// hashFile returns the SHA-256 of a file, in hexadecimal.
func hashFile(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	for err == nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		_, err = io.CopyN(h, f, 16<<20)
	}
	if err != io.EOF {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
