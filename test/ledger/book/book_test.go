package book

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestWriteAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort("127.0.0.1:4000")
	want := []Record{
		{At: 1, Kind: Bind, Life: LifeOf(3, 1), Peer: at, A: 2},
		{At: 2, Kind: Try, Life: LifeOf(3, 1), Seq: 1, Peer: at, A: 17, B: 1 << 31, C: FlagShort},
		{At: 3, Kind: Closed, Life: LifeOf(3, 1), Text: "some text of two  words"},
	}
	for _, r := range want {
		l.Write(r)
	}
	var got []Record
	if err := Read(path, func(r Record) { got = append(got, r) }); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	lines, err := Grep(path, 10, func(r Record) bool { return r.Seq == 1 })
	if err != nil || len(lines) != 1 {
		t.Errorf("lines with Seq 1: %q, %v", lines, err)
	}
	if ProcessOf(want[0].Life) != 3 {
		t.Errorf("process of life %d", want[0].Life)
	}
}

// TestHalfARecord reads the log of a process that was killed within a record. It has half a
// line, then zeros.
func TestHalfARecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("1 bind 5 0 127.0.0.1:4000 0 0 0\n2 try 5 1 127.0.\x00\x00\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := Read(path, func(Record) { n++ }); err != nil || n != 1 {
		t.Errorf("%d records, %v", n, err)
	}
	if err := Trim(path); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "1 bind 5 0 127.0.0.1:4000 0 0 0\n" {
		t.Errorf("trimmed: %q, %v", b, err)
	}
}

// TestLongLog writes a log that continues in the next mapping.
func TestLongLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	const n = 1_800_000 // of about 40 bytes each, so more than a step
	for i := range uint64(n) {
		l.Write(Record{At: 123456789012345, Kind: Recv, Life: 5, Seq: i, A: i, B: i})
	}
	var next uint64
	if err := Read(path, func(r Record) {
		if r.Seq != next {
			t.Fatalf("record %d instead of %d", r.Seq, next)
		}
		next++
	}); err != nil || next != n || l.off == 0 {
		t.Errorf("%d records, the mapping at %d, %v", next, l.off, err)
	}
}
