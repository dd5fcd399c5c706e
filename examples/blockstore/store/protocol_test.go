package store

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func samples() []Message {
	return []Message{
		{Kind: KindOpen, Flags: FlagWrite, ID: 1, Session: 0x1122334455667788, Block: 9, BlockSize: DefaultBlock},
		{Kind: KindOpened, ID: 1, Block: 64 << 20, BlockSize: DefaultBlock, Window: 16},
		{Kind: KindRead, ID: 2, Block: 3, BlockSize: 4096, Length: 4096},
		{Kind: KindDone, ID: 2, Block: 3, BlockSize: 4096, Length: 4096, CRC: 0xdeadbeef},
		{Kind: KindDone, ID: 2, Block: 3, BlockSize: 4096, Length: 3, CRC: 1, Data: []byte("all")},
		{Kind: KindWrite, ID: 3, Session: 7, Block: 1, BlockSize: 4096, Length: 5, CRC: 1, Data: []byte("bytes")},
		{Kind: KindGrant, ID: 3, Session: 7},
		{Kind: KindGranted, ID: 3, Block: 5, BlockSize: DefaultBlock, Window: 32},
		{Kind: KindMapped, ID: 3, Block: 7, Extents: []Extent{{Length: 1 << 62, Hole: true}, {Length: 5}}},
		{Kind: KindDurable, ID: 3, More: []uint64{4, 5, 1 << 60}},
		{Kind: KindCommit, ID: 6, Session: 7, Block: 4113},
		{Kind: KindCommitted, ID: 6, Session: 7, Block: 4113},
		{Kind: KindWrite, Flags: FlagPushed | FlagBytes | FlagUnsynced, ID: 7, Session: 7, Block: 513, Length: 511, CRC: 1, Window: 5<<16 | 31},
		{Kind: KindWritten, ID: 7, Block: 513},
		{Kind: KindZero, Flags: FlagUnsynced | FlagHole, ID: 8, Session: 7, Block: 1 << 40, Length: 1 << 30},
		{Kind: KindFlush, ID: 9, Session: 7},
		{Kind: KindFailed, Status: StatusNoSpace, ID: 3, Text: "block 1: no space left on device"},
	}
}

func TestMessageRoundTrip(t *testing.T) {
	for _, m := range samples() {
		id := m.ID
		m.ID = 0
		b := m.Append(nil)
		m.ID = id
		setID(b, id)
		got, err := Parse(b)
		if err != nil {
			t.Errorf("%v: %v", m.Kind, err)
		}
		if !reflect.DeepEqual(got, m) {
			t.Errorf("%v: got %+v, want %+v", m.Kind, got, m)
		}
		if len(b) > MaxMessage {
			t.Errorf("%v: %d bytes, the receive buffer has %d", m.Kind, len(b), MaxMessage)
		}
	}
}

func TestMessageGolden(t *testing.T) {
	m := Message{Kind: KindDone, Status: 0x0102, Flags: 0x0304, ID: 0x05, Session: 0x06, Block: 0x07,
		BlockSize: 0x08, Length: 0x09, CRC: 0x0a0b0c0d, Window: 0x0e}
	const want = "42530204" + "0201" + "0403" + "0500000000000000" + "0600000000000000" + "0700000000000000" +
		"08000000" + "09000000" + "0d0c0b0a" + "0e000000"
	if got := hex.EncodeToString(m.Append(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestParseRefuses(t *testing.T) {
	good := (&Message{Kind: KindRead}).Append(nil)
	with := func(i int, v byte) []byte { b := bytes.Clone(good); b[i] = v; return b }
	write := (&Message{Kind: KindWrite, Length: 3}).Append(nil)
	for _, c := range []struct {
		name string
		b    []byte
		says string
	}{
		{"nothing", nil, "0 bytes"},
		{"a short header", good[:HeaderSize-1], "47 bytes"},
		{"another magic", with(0, 'X'), "magic"},
		{"another version", with(2, 1), "version 1"},
		{"type 0", with(3, 0), "type 0"},
		{"an unknown type", with(3, 17), "type 17"},
		{"a tail where none belongs", append(bytes.Clone(good), 1), "1 bytes after a READ"},
		{"a WRITE without its bytes", write, "0 bytes behind a WRITE of 3"},
		{"a WRITE with too many bytes", append(bytes.Clone(write), 1, 2, 3, 4), "4 bytes behind a WRITE of 3"},
		{"a pushed WRITE with bytes", append((&Message{Kind: KindWrite, Flags: FlagPushed, Length: 3}).Append(nil), 1, 2, 3), "3 bytes behind"},
		{"a DONE with half of its bytes", append((&Message{Kind: KindDone, Length: 3}).Append(nil), 1), "1 bytes behind a DONE of 3"},
		{"a WRITE that is not small", (&Message{Kind: KindWrite, Length: MaxSmall + 1, Data: make([]byte, MaxSmall+1)}).Append(nil), "bytes behind"},
		{"a torn request number", append(with(3, byte(KindDurable)), 1, 2, 3), "3 bytes behind a DURABLE"},
		{"a long text", append(with(3, byte(KindFailed)), make([]byte, maxText+1)...), "bytes of text"},
	} {
		_, err := Parse(c.b)
		if !errors.Is(err, ErrMessage) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: err = %v, want one that says %q", c.name, err, c.says)
		}
	}
}

func TestCheckBlock(t *testing.T) {
	for _, c := range []struct {
		name string
		m    Message
		ok   bool
	}{
		{"whole block", Message{BlockSize: 4096, Length: 4096}, true},
		{"short last block", Message{Block: 5, BlockSize: 4096, Length: 1}, true},
		{"block size 0", Message{Length: 1}, false},
		{"block size too large", Message{BlockSize: 8192 + 1, Length: 1}, false},
		{"empty", Message{BlockSize: 4096}, false},
		{"longer than a block", Message{BlockSize: 4096, Length: 4097}, false},
		{"bytes", Message{Flags: FlagBytes, Block: 513, Length: 8192}, true},
		{"no bytes", Message{Flags: FlagBytes, Block: 513}, false},
		{"more bytes than a buffer has", Message{Flags: FlagBytes, Length: 8193}, false},
		{"bytes beyond int64", Message{Flags: FlagBytes, Block: 1<<62 + 1, Length: 1}, false},
		{"zeros", Message{Kind: KindZero, Block: 1, Length: 1 << 30}, true},
		{"no zeros", Message{Kind: KindZero}, false},
		{"zeros beyond int64", Message{Kind: KindZero, Block: 1 << 63, Length: 1}, false},
		{"offset beyond int64", Message{Block: 1 << 62, BlockSize: 4096, Length: 1}, false},
	} {
		if err := c.m.CheckBlock(8192); (err == nil) != c.ok {
			t.Errorf("%s: err = %v", c.name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, m := range samples() {
		f.Add(m.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			return
		}
		if again := m.Append(nil); !bytes.Equal(again, b) {
			t.Errorf("parse and append changed the bytes:\n%x\n%x", b, again)
		}
		if m.CheckBlock(MaxBlock) == nil && m.Offset() < 0 {
			t.Errorf("negative offset for %+v", m)
		}
	})
}
