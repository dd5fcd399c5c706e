package vmlab

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// mark returns how much the machine's network card has recorded, for since.
func (m *machine) mark(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(m.wire)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// since makes a capture of what the machine's network card has seen since mark. qemu writes
// whole packets.
func (m *machine) since(t *testing.T, mark int64) string {
	t.Helper()
	const head = 24 // of a capture file
	in, err := os.Open(m.wire)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	name := filepath.Join(t.TempDir(), "wire.pcap")
	out, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	parts := []io.Reader{io.NewSectionReader(in, 0, head), io.NewSectionReader(in, mark, m.mark(t)-mark)}
	if _, err := io.Copy(out, io.MultiReader(parts...)); err != nil {
		t.Fatal(err)
	}
	return name
}
