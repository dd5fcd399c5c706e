package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
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

func wantStatus(t *testing.T, what string, f *failure, want status) {
	t.Helper()
	switch {
	case f == nil && want != statusOK:
		t.Errorf("%s: no failure, want status %d", what, want)
	case f != nil && f.status != want:
		t.Errorf("%s: status %d (%v), want %d", what, f.status, f, want)
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
	e, path := newExport(t, make([]byte, 3*minBlock))
	p := make([]byte, minBlock)
	m := &message{block: 2, blockSize: minBlock, length: minBlock}
	wantStatus(t, "before", e.read(p, m), statusOK)
	if err := os.Truncate(path, 2*minBlock+100); err != nil {
		t.Fatal(err)
	}
	f := e.read(p, m)
	wantStatus(t, "within the block", f, statusShort)
	if f != nil && !strings.Contains(f.text, "block 2") {
		t.Errorf("text %q does not name the block", f.text)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "before the block", e.read(p, m), statusShort)
}

func TestExportSessions(t *testing.T) {
	e, path := newExport(t, bytes.Repeat([]byte{9}, 3*minBlock))
	one := bytes.Repeat([]byte{1}, minBlock)
	block := func(session uint64) *message {
		return &message{session: session, block: 1, blockSize: minBlock, length: minBlock}
	}
	wantStatus(t, "no session", e.write(one, block(0)), statusStale)
	wantStatus(t, "never opened", e.write(one, block(7)), statusStale)
	wantStatus(t, "begin 0", e.begin(0), statusBad)
	wantStatus(t, "begin 7", e.begin(7), statusOK)
	wantStatus(t, "write by 7", e.write(one, block(7)), statusOK)
	wantStatus(t, "begin 8", e.begin(8), statusOK)
	wantStatus(t, "late write by 7", e.write(make([]byte, minBlock), block(7)), statusStale)
	wantStatus(t, "late commit by 7", e.commit(7, 0), statusStale)
	wantStatus(t, "commit by 8", e.commit(8, 2*minBlock), statusOK)
	wantStatus(t, "commit by 8 again", e.commit(8, 2*minBlock), statusOK)
	wantStatus(t, "write by 8 after its commit", e.write(make([]byte, minBlock), block(8)), statusStale)

	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := append(bytes.Repeat([]byte{9}, minBlock), one...); !bytes.Equal(got, want) {
		t.Errorf("content differs: %d bytes, want %d", len(got), len(want))
	}
}

func TestExportReadOnly(t *testing.T) {
	_, path := newExport(t, []byte("x"))
	e, err := openExport(path, true, false)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	wantStatus(t, "begin", e.begin(1), statusReadOnly)
	wantStatus(t, "check", e.check(1), statusReadOnly)
}

func TestExportNoSpace(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no /dev/full:", err)
	}
	e := &export{file: f}
	defer e.close()
	wantStatus(t, "begin", e.begin(1), statusOK)
	fail := e.write(make([]byte, minBlock), &message{session: 1, block: 4, blockSize: minBlock, length: minBlock})
	wantStatus(t, "write", fail, statusNoSpace)
	if fail != nil && !strings.Contains(fail.text, "block 4: ") {
		t.Errorf("text %q does not name the block", fail.text)
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
