package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

func newExport(t *testing.T, content []byte) (*export, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "export")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := openExport(path, false, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.close() })
	return e, path
}

func wantStatus(t *testing.T, what string, f *store.Failure, want store.Status) {
	t.Helper()
	switch {
	case f == nil && want != store.StatusOK:
		t.Errorf("%s: no failure, want status %d", what, want)
	case f != nil && f.Status != want:
		t.Errorf("%s: status %d (%v), want %d", what, f.Status, f, want)
	}
}

func TestOpenExportRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := openExport(filepath.Join(dir, "missing"), false, false); !os.IsNotExist(unwrap(err)) {
		t.Errorf("missing: %v", err)
	}
	if _, err := openExport(dir, true, false); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("directory: %v", err)
	}
	if os.Getuid() != 0 {
		path := filepath.Join(dir, "secret")
		if err := os.WriteFile(path, nil, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := openExport(path, true, false); !os.IsPermission(unwrap(err)) {
			t.Errorf("unreadable: %v", err)
		}
	}
	e, err := openExport(filepath.Join(dir, "new"), false, true)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	e.close()
}

func unwrap(err error) error {
	if u, ok := err.(interface{ Unwrap() error }); ok {
		return u.Unwrap()
	}
	return err
}

func TestExportReadOfTruncatedFile(t *testing.T) {
	e, path := newExport(t, make([]byte, 3*store.MinBlock))
	p := make([]byte, store.MinBlock)
	m := &store.Message{Block: 2, BlockSize: store.MinBlock, Length: store.MinBlock}
	wantStatus(t, "before", e.read(p, m), store.StatusOK)
	if err := os.Truncate(path, 2*store.MinBlock+100); err != nil {
		t.Fatal(err)
	}
	f := e.read(p, m)
	wantStatus(t, "within the block", f, store.StatusShort)
	if f != nil && !strings.Contains(f.Text, "block 2") {
		t.Errorf("text %q does not name the block", f.Text)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "before the block", e.read(p, m), store.StatusShort)
}

func TestExportSessions(t *testing.T) {
	e, path := newExport(t, bytes.Repeat([]byte{9}, 3*store.MinBlock))
	one := bytes.Repeat([]byte{1}, store.MinBlock)
	block := func(session uint64) *store.Message {
		return &store.Message{Session: session, Block: 1, BlockSize: store.MinBlock, Length: store.MinBlock}
	}
	wantStatus(t, "no session", e.write(one, block(0)), store.StatusStale)
	wantStatus(t, "never opened", e.write(one, block(7)), store.StatusStale)
	wantStatus(t, "begin 0", e.begin(0), store.StatusBad)
	wantStatus(t, "begin 7", e.begin(7), store.StatusOK)
	wantStatus(t, "write by 7", e.write(one, block(7)), store.StatusOK)
	wantStatus(t, "begin 8", e.begin(8), store.StatusOK)
	wantStatus(t, "late write by 7", e.write(make([]byte, store.MinBlock), block(7)), store.StatusStale)
	wantStatus(t, "late commit by 7", e.commit(7, 0), store.StatusStale)
	wantStatus(t, "commit by 8", e.commit(8, 2*store.MinBlock), store.StatusOK)
	wantStatus(t, "commit by 8 again", e.commit(8, 2*store.MinBlock), store.StatusOK)
	wantStatus(t, "write by 8 after its commit", e.write(make([]byte, store.MinBlock), block(8)), store.StatusStale)

	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := append(bytes.Repeat([]byte{9}, store.MinBlock), one...); !bytes.Equal(got, want) {
		t.Errorf("content differs: %d bytes, want %d", len(got), len(want))
	}
}

// TestExportLost: after an fsync that failed, nothing of the session succeeds any more: neither
// a write nor a FLUSH, which would cover writes that may be lost.
func TestExportLost(t *testing.T) {
	e, _ := newExport(t, make([]byte, 8192))
	wantStatus(t, "begin", e.begin(7), store.StatusOK)
	e.lost()
	m := &store.Message{Kind: store.KindWrite, Session: 7, BlockSize: 4096, Length: 4}
	wantStatus(t, "write", e.write([]byte("more"), m), store.StatusStale)
	wantStatus(t, "flush", e.check(7), store.StatusStale)
	wantStatus(t, "commit", e.commit(7, 8192), store.StatusStale)
	wantStatus(t, "begin", e.begin(8), store.StatusOK)
	wantStatus(t, "flush", e.check(8), store.StatusOK)
}

func TestExportReadOnly(t *testing.T) {
	_, path := newExport(t, []byte("x"))
	e, err := openExport(path, true, false)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	wantStatus(t, "begin", e.begin(1), store.StatusReadOnly)
	wantStatus(t, "check", e.check(1), store.StatusReadOnly)
}

func TestExportNoSpace(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no /dev/full:", err)
	}
	e := exportOf(f, false, false)
	defer e.close()
	wantStatus(t, "begin", e.begin(1), store.StatusOK)
	fail := e.write(make([]byte, store.MinBlock), &store.Message{Session: 1, Block: 4, BlockSize: store.MinBlock, Length: store.MinBlock})
	wantStatus(t, "write", fail, store.StatusNoSpace)
	if fail != nil && !strings.Contains(fail.Text, "block 4: ") {
		t.Errorf("text %q does not name the block", fail.Text)
	}
}

func TestOutputAppearsWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	for _, keep := range []bool{false, true} {
		o, err := createOutput(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.file.WriteAt([]byte("data"), 0); err != nil {
			t.Fatal(err)
		}
		if keep {
			if err := o.keep(); err != nil {
				t.Fatal(err)
			}
		}
		o.discard()
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]int{false: 0, true: 1}[keep]; len(entries) != want {
			t.Errorf("keep %v: %d files left, want %d", keep, len(entries), want)
		}
	}
	if _, err := createOutput(dir); err == nil {
		t.Error("a directory was taken as output")
	}
}

// TestZero: zeros are made by the file system or by writing, only for the current session
// and only within the export.
func TestZero(t *testing.T) {
	content := bytes.Repeat([]byte{1}, 3<<20)
	e, path := newExport(t, content)
	zero := func(flags uint16, session, off uint64, n uint32) *store.Failure {
		return e.zero(&store.Message{Kind: store.KindZero, Flags: flags, Session: session, Block: off, Length: n})
	}
	wantStatus(t, "without a session", zero(0, 7, 0, 1), store.StatusStale)
	wantStatus(t, "begin", e.begin(7), store.StatusOK)
	wantStatus(t, "zeros", zero(0, 7, 1, 1<<20), store.StatusOK)
	wantStatus(t, "a hole", zero(store.FlagHole, 7, 2<<20, 4096), store.StatusOK)
	wantStatus(t, "by writing", e.writeZeros(&store.Message{Session: 7}, 2<<20+5000, 100), store.StatusOK)
	wantStatus(t, "a trim", zero(store.FlagTrim, 7, 2<<20, 100), store.StatusOK)
	wantStatus(t, "to the end", zero(0, 7, 3<<20-1, 1), store.StatusOK)
	wantStatus(t, "beyond the end", zero(0, 7, 3<<20-1, 2), store.StatusRange)
	wantStatus(t, "too many", zero(0, 7, 0, store.MaxZero+1), store.StatusRange)
	wantStatus(t, "of another session", zero(0, 8, 0, 1), store.StatusStale)
	clear(content[1 : 1+1<<20])
	clear(content[2<<20 : 2<<20+4096])
	clear(content[2<<20+5000 : 2<<20+5100])
	content[3<<20-1] = 0
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) {
		t.Errorf("other content than asked for (%v)", err)
	}
}
