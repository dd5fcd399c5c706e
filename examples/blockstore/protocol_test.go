package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func samples() []message {
	return []message{
		{kind: kindOpen, flags: flagWrite, id: 1, session: 0x1122334455667788, block: 9, blockSize: defaultBlock},
		{kind: kindOpened, id: 1, block: 64 << 20, blockSize: defaultBlock, window: 16},
		{kind: kindRead, id: 2, block: 3, blockSize: 4096, length: 4096},
		{kind: kindDone, id: 2, block: 3, blockSize: 4096, length: 4096, crc: 0xdeadbeef},
		{kind: kindWrite, flags: flagTellFetched, id: 3, session: 7, block: 1, blockSize: 4096, length: 17, crc: 1},
		{kind: kindFetched, id: 3, block: 1},
		{kind: kindDurable, id: 3, more: []uint64{4, 5, 1 << 60}},
		{kind: kindCommit, id: 6, session: 7, block: 4113},
		{kind: kindCommitted, id: 6, session: 7, block: 4113},
		{kind: kindFailed, status: statusNoSpace, id: 3, text: "block 1: no space left on device"},
	}
}

func TestMessageRoundTrip(t *testing.T) {
	for _, m := range samples() {
		b := m.append(nil)
		got, err := parse(b)
		if err != nil {
			t.Errorf("%v: %v", m.kind, err)
		}
		if !reflect.DeepEqual(got, m) {
			t.Errorf("%v: got %+v, want %+v", m.kind, got, m)
		}
		if len(b) > maxMessage {
			t.Errorf("%v: %d bytes, the receive buffer has %d", m.kind, len(b), maxMessage)
		}
	}
}

func TestMessageGolden(t *testing.T) {
	m := message{kind: kindDone, status: 0x0102, flags: 0x0304, id: 0x05, session: 0x06, block: 0x07,
		blockSize: 0x08, length: 0x09, crc: 0x0a0b0c0d, window: 0x0e}
	const want = "42530104" + "0201" + "0403" + "0500000000000000" + "0600000000000000" + "0700000000000000" +
		"08000000" + "09000000" + "0d0c0b0a" + "0e000000"
	if got := hex.EncodeToString(m.append(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestParseRefuses(t *testing.T) {
	good := (&message{kind: kindRead}).append(nil)
	with := func(i int, v byte) []byte { b := bytes.Clone(good); b[i] = v; return b }
	for _, c := range []struct {
		name string
		b    []byte
		says string
	}{
		{"nothing", nil, "0 bytes"},
		{"a short header", good[:headerSize-1], "47 bytes"},
		{"another magic", with(0, 'X'), "magic"},
		{"another version", with(2, 2), "version 2"},
		{"type 0", with(3, 0), "type 0"},
		{"an unknown type", with(3, 11), "type 11"},
		{"a tail where none belongs", append(bytes.Clone(good), 1), "1 bytes after a READ"},
		{"a torn request number", append(with(3, byte(kindDurable)), 1, 2, 3), "3 bytes of request numbers"},
		{"a long text", append(with(3, byte(kindFailed)), make([]byte, maxText+1)...), "bytes of text"},
	} {
		_, err := parse(c.b)
		if !errors.Is(err, errMessage) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: err = %v, want one that says %q", c.name, err, c.says)
		}
	}
}

func TestCheckBlock(t *testing.T) {
	for _, c := range []struct {
		name string
		m    message
		ok   bool
	}{
		{"whole block", message{blockSize: 4096, length: 4096}, true},
		{"short last block", message{block: 5, blockSize: 4096, length: 1}, true},
		{"block size 0", message{length: 1}, false},
		{"block size too large", message{blockSize: 8192 + 1, length: 1}, false},
		{"empty", message{blockSize: 4096}, false},
		{"longer than a block", message{blockSize: 4096, length: 4097}, false},
		{"offset beyond int64", message{block: 1 << 62, blockSize: 4096, length: 1}, false},
	} {
		if err := c.m.checkBlock(8192); (err == nil) != c.ok {
			t.Errorf("%s: err = %v", c.name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, m := range samples() {
		f.Add(m.append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parse(b)
		if err != nil {
			return
		}
		if again := m.append(nil); !bytes.Equal(again, b) {
			t.Errorf("parse and append changed the bytes:\n%x\n%x", b, again)
		}
		if m.checkBlock(maxBlock) == nil && m.offset() < 0 {
			t.Errorf("negative offset for %+v", m)
		}
	})
}
