package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func optionBytes(o option, data []byte) []byte {
	b := binary.BigEndian.AppendUint64(nil, magicOption)
	b = binary.BigEndian.AppendUint32(b, uint32(o))
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

func infoBytes(name string, wanted ...uint16) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(name)))
	b = binary.BigEndian.AppendUint16(append(b, name...), uint16(len(wanted)))
	for _, w := range wanted {
		b = binary.BigEndian.AppendUint16(b, w)
	}
	return b
}

func requestBytes(r request) []byte {
	b := binary.BigEndian.AppendUint32(nil, magicAsk)
	b = binary.BigEndian.AppendUint16(b, r.flags)
	b = binary.BigEndian.AppendUint16(b, uint16(r.command))
	b = binary.BigEndian.AppendUint64(b, r.cookie)
	b = binary.BigEndian.AppendUint64(b, r.offset)
	return binary.BigEndian.AppendUint32(b, r.length)
}

func TestParseInfo(t *testing.T) {
	for _, c := range []struct {
		b    []byte
		name string
		n    int
		says string
	}{
		{infoBytes(""), "", 0, ""},
		{infoBytes("disk", infoName, infoBlocks), "disk", 2, ""},
		{nil, "", 0, "0 bytes"},
		{infoBytes("disk")[:5], "", 0, "5 bytes"},
		{append([]byte{0xff, 0xff, 0xff, 0xff}, infoBytes("disk")...), "", 0, "a name of 4294967295 bytes"},
		{append(infoBytes("disk"), 0, 0), "", 0, "2 bytes for 0"},
		{infoBytes("disk", infoName)[:10], "", 0, "0 bytes for 1"},
	} {
		name, wanted, err := parseInfo(c.b)
		if name != c.name || len(wanted) != c.n || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%x: %q, %v, %v; want %q, %d, %q", c.b, name, wanted, err, c.name, c.n, c.says)
		}
	}
}

func TestRequestCheck(t *testing.T) {
	const size, largest = 1 << 30, 1 << 20
	for _, c := range []struct {
		what     string
		r        request
		readOnly bool
		want     errno
	}{
		{"a read", request{command: cmdRead, length: 1}, true, eOK},
		{"a read with FUA", request{command: cmdRead, flags: askFUA, length: 1}, false, eOK},
		{"the last byte", request{command: cmdRead, offset: size - 1, length: 1}, false, eOK},
		{"beyond the end", request{command: cmdRead, offset: size - 1, length: 2}, false, eInval},
		{"far beyond the end", request{command: cmdRead, offset: 1<<64 - 1, length: 2}, false, eInval},
		{"nothing", request{command: cmdRead}, false, eInval},
		{"the greatest", request{command: cmdWrite, length: largest}, false, eOK},
		{"too great", request{command: cmdWrite, length: largest + 1}, false, eInval},
		{"a write beyond the end", request{command: cmdWrite, offset: size, length: 1}, false, eNoSpace},
		{"a write where none may be", request{command: cmdWrite, length: 1}, true, ePerm},
		{"a trim of all", request{command: cmdTrim, length: size}, false, eOK},
		{"a trim beyond the end", request{command: cmdTrim, offset: 1, length: size}, false, eInval},
		{"zeroes with all flags", request{command: cmdZeroes, flags: askFUA | askNoHole | askFast, length: size}, false, eOK},
		{"zeroes beyond the end", request{command: cmdZeroes, offset: 1, length: size}, false, eNoSpace},
		{"zeroes where none may be", request{command: cmdZeroes, length: 1}, true, ePerm},
		{"a flush", request{command: cmdFlush}, true, eOK},
		{"a flush of a part", request{command: cmdFlush, length: 1}, false, eInval},
		{"a flag of another command", request{command: cmdWrite, flags: askNoHole, length: 1}, false, eInval},
		{"no command", request{command: 5, length: 1}, false, eInval},
		{"block status", request{command: cmdStatus, flags: askOne, length: size}, true, eOK},
		{"block status beyond the end", request{command: cmdStatus, offset: 1, length: size}, true, eInval},
		{"block status of nothing", request{command: cmdStatus}, true, eInval},
		{"the end", request{command: cmdDisc}, false, eOK},
	} {
		if got := c.r.check(size, c.readOnly, largest); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

// canned is a connection that reads from given bytes and keeps what is written to it.
type canned struct {
	net.Conn
	in  *bytes.Reader
	out bytes.Buffer
}

func (c *canned) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c *canned) Write(p []byte) (int, error) { return c.out.Write(p) }
func (c *canned) SetDeadline(time.Time) error { return nil }
func shake(b []byte) (c *canned, h *handshake) {
	c = &canned{in: bytes.NewReader(b)}
	return c, &handshake{conn: c, names: []string{"disk", "other"}, attach: func(name string) (export, error) {
		return export{name, 1 << 20, hasFlags, maxRequest}, nil
	}}
}

func TestHandshake(t *testing.T) {
	flags := func(f uint32, options ...[]byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, f), bytes.Join(options, nil)...)
	}
	many := make([][]byte, maxOptions+1)
	for i := range many {
		many[i] = optionBytes(99, nil)
	}
	for _, c := range []struct {
		what    string
		b       []byte
		err     error
		replies []uint32 // to options
	}{
		{"GO", flags(3, optionBytes(optGo, infoBytes("disk", infoName))), nil, []uint32{repInfo, repInfo, repInfo, repAck}},
		{"INFO, then GO of the default", flags(1, optionBytes(optInfo, infoBytes("disk")), optionBytes(optGo, infoBytes(""))),
			nil, []uint32{repInfo, repInfo, repAck, repInfo, repInfo, repAck}},
		{"LIST and ABORT", flags(1, optionBytes(optList, nil), optionBytes(optAbort, nil)), errAborted, []uint32{repServer, repServer, repAck, repAck}},
		{"LIST with data", flags(1, optionBytes(optList, []byte("x"))), io.EOF, []uint32{repInvalid}},
		{"GO of another name", flags(3, optionBytes(optGo, infoBytes("other"))), nil, []uint32{repInfo, repInfo, repAck}},
		{"an unknown name", flags(1, optionBytes(optGo, infoBytes("tape"))), io.EOF, []uint32{repUnknown}},
		{"a name that is longer than its option", flags(1, optionBytes(optGo, []byte{0, 1, 0, 0, 0, 0})), io.EOF, []uint32{repInvalid}},
		{"structured replies with data", flags(1, optionBytes(optStructured, []byte("x"))), io.EOF, []uint32{repInvalid}},
		{"block status without structured replies", flags(1, optionBytes(optSetMeta, metaBytes("disk", metaAllocation))), io.EOF, []uint32{repInvalid}},
		{"block status", flags(1, optionBytes(optStructured, nil), optionBytes(optListMeta, metaBytes("disk")), optionBytes(optSetMeta, metaBytes("disk", "qemu:x", metaAllocation)),
			optionBytes(optSetMeta, metaBytes("disk", "base:"))), io.EOF, []uint32{repAck, repMeta, repAck, repMeta, repAck, repAck}},
		{"block status of an unknown name", flags(1, optionBytes(optStructured, nil), optionBytes(optSetMeta, metaBytes("tape", metaAllocation))), io.EOF, []uint32{repAck, repUnknown}},
		{"more queries than there are", flags(1, optionBytes(optStructured, nil), optionBytes(optSetMeta, metaBytes("disk", "a")[:12])), io.EOF, []uint32{repAck, repInvalid}},
		{"an unknown option", flags(1, optionBytes(11, nil), optionBytes(5, nil)), io.EOF, []uint32{repUnsup, repUnsup}},
		{"an option that is too long", flags(1, optionBytes(optGo, make([]byte, maxOption+1))), errProtocol, []uint32{repTooBig}},
		{"an option cut off", flags(1, optionBytes(optGo, infoBytes("disk")))[:24], io.ErrUnexpectedEOF, nil},
		{"another magic", flags(1, make([]byte, optionHead)), errProtocol, nil},
		{"unknown flags", flags(4), errProtocol, nil},
		{"no end", flags(1, many...), errProtocol, func() (r []uint32) {
			for range maxOptions {
				r = append(r, repUnsup)
			}
			return r
		}()},
	} {
		conn, h := shake(c.b)
		if err := h.run(); !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.what, err, c.err)
		}
		var got []uint32
		for out := conn.out.Bytes()[18:]; len(out) >= 20; {
			got = append(got, binary.BigEndian.Uint32(out[12:]))
			out = out[20+binary.BigEndian.Uint32(out[16:]):]
		}
		if len(got) != len(c.replies) || len(got) > 0 && !bytes.Equal(fold(got), fold(c.replies)) {
			t.Errorf("%s: answered %x, want %x", c.what, got, c.replies)
		}
	}
}

func fold(v []uint32) (b []byte) {
	for _, x := range v {
		b = binary.BigEndian.AppendUint32(b, x)
	}
	return b
}

// TestExportName: the reply to EXPORT_NAME with and without the zeros at its end.
func TestExportName(t *testing.T) {
	for f, want := range map[byte]int{1: 18 + 10 + 124, 3: 18 + 10} {
		conn, h := shake(append([]byte{0, 0, 0, f}, optionBytes(optExportName, []byte("disk"))...))
		if err := h.run(); err != nil || conn.out.Len() != want {
			t.Errorf("flags %d: %d bytes, %v; want %d", f, conn.out.Len(), err, want)
		}
	}
	_, h := shake(append([]byte{0, 0, 0, 1}, optionBytes(optExportName, []byte("tape"))...))
	if err := h.run(); err == nil {
		t.Error("another name was given the disk")
	}
}

func FuzzHandshake(f *testing.F) {
	f.Add(append([]byte{0, 0, 0, 3}, optionBytes(optGo, infoBytes("disk", infoName))...))
	f.Add(append([]byte{0, 0, 0, 1}, optionBytes(optExportName, nil)...))
	f.Add(append([]byte{0, 0, 0, 1}, append(optionBytes(optList, nil), optionBytes(optAbort, nil)...)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, h := shake(b)
		attached := 0
		attach := h.attach
		h.attach = func(name string) (export, error) { attached++; return attach(name) }
		if err := h.run(); err == nil && attached == 0 {
			t.Error("the disk was given to nobody who asked for it")
		}
		if limit := 18 + maxOptions*2*(maxOption+20); c.out.Len() > limit {
			t.Errorf("%d bytes said", c.out.Len())
		}
	})
}

func FuzzRequest(f *testing.F) {
	f.Add(requestBytes(request{command: cmdRead, cookie: 1, offset: 1 << 20, length: 4096}))
	f.Add(requestBytes(request{command: cmdZeroes, flags: askFast, offset: 1<<64 - 1, length: 1<<32 - 1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var head [requestSize]byte
		copy(head[:], b)
		r, err := parseRequest(&head)
		if err != nil {
			return
		}
		if !bytes.Equal(requestBytes(r), head[:]) {
			t.Errorf("%x was read as %+v", head, r)
		}
		const size, largest = 1<<30 + 1, 1 << 20
		if r.check(size, false, largest) != eOK || r.command == cmdDisc || r.command == cmdFlush {
			return
		}
		if r.length == 0 || r.offset >= size || r.offset+uint64(r.length) > size || r.command <= cmdWrite && r.length > largest {
			t.Errorf("taken: %+v", r)
		}
	})
}
