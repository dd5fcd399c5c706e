package main

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func metaBytes(name string, queries ...string) []byte {
	be := binary.BigEndian
	b := append(be.AppendUint32(nil, uint32(len(name))), name...)
	b = be.AppendUint32(b, uint32(len(queries)))
	for _, q := range queries {
		b = append(be.AppendUint32(b, uint32(len(q))), q...)
	}
	return b
}

func FuzzMeta(f *testing.F) {
	f.Add(metaBytes("disk", metaAllocation, "base:"))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		name, queries, err := parseMeta(b)
		if err == nil && !bytes.Equal(metaBytes(name, queries...), b) {
			t.Errorf("%x was read as %q, %q", b, name, queries)
		}
		if len(queries) > len(b)/4 {
			t.Errorf("%d queries in %d bytes", len(queries), len(b))
		}
	})
}

func TestAsksFor(t *testing.T) {
	for _, c := range []struct {
		queries   []string
		list, set bool
	}{
		{nil, true, false}, {[]string{""}, false, false}, {[]string{"base:"}, true, false}, {[]string{"base"}, false, false},
		{[]string{"x", metaAllocation}, true, true}, {[]string{"base:alloc"}, false, false},
	} {
		if asksFor(c.queries, true) != c.list || asksFor(c.queries, false) != c.set {
			t.Errorf("%q: LIST %v, SET %v", c.queries, !c.list, !c.set)
		}
	}
}

// structured returns a client that has negotiated structured replies and block status.
func (w *world) structured() *client {
	w.t.Helper()
	c := w.dial()
	c.send([]byte{0, 0, 0, 3}, optionBytes(optStructured, nil), optionBytes(optSetMeta, metaBytes("disk", metaAllocation)), optionBytes(optExportName, []byte("disk")))
	c.hear(18 + 20 + 20 + 4 + len(metaAllocation) + 20 + 10)
	return c
}

// chunk sends a request and returns the type and the payload of its reply.
func (c *client) chunk(r request) (kind uint16, payload []byte) {
	c.t.Helper()
	c.next++
	r.cookie = c.next
	c.send(requestBytes(r))
	b := c.hear(chunkSize)
	be := binary.BigEndian
	if be.Uint32(b) != magicChunk || be.Uint16(b[4:]) != chunkDone || be.Uint64(b[8:]) != r.cookie {
		c.t.Fatalf("chunk %x, want one to %d", b, r.cookie)
	}
	return be.Uint16(b[6:]), c.hear(int(be.Uint32(b[16:])))
}

// TestStructured: reads, small and large, and block status come in chunks, also their errors.
// Other replies stay simple.
func TestStructured(t *testing.T) {
	const unit, size = 64 << 10, 8 << 20
	w := newWorld(t, size)
	c := w.structured()
	data := noise(6 * unit)
	c.write(0, data)
	for _, n := range []int{100, 4 * unit} {
		kind, p := c.chunk(request{command: cmdRead, offset: 7, length: uint32(n)})
		if kind != chunkData || len(p) != 8+n || binary.BigEndian.Uint64(p) != 7 || !bytes.Equal(p[8:], data[7:7+n]) {
			t.Errorf("read of %d bytes: type %d, %d bytes", n, kind, len(p))
		}
	}
	hole := request{command: cmdTrim, offset: 2 * unit, length: 2 * unit}
	if e := c.do(hole, nil); e != eOK {
		t.Fatalf("trim: error %d", e)
	}
	var want []byte
	for _, e := range []uint32{2 * unit, 0, 2 * unit, stateHole, unit, 0} {
		want = binary.BigEndian.AppendUint32(want, e)
	}
	want = append([]byte{0, 0, 0, metaAllocationID}, want...)
	kind, p := c.chunk(request{command: cmdStatus, length: 5 * unit})
	if kind != chunkStatus || !bytes.Equal(p, want) {
		t.Errorf("block status: type %d, %x; want %x", kind, p, want)
	}
	if _, p := c.chunk(request{command: cmdStatus, flags: askOne, length: 5 * unit}); !bytes.Equal(p, want[:12]) {
		t.Errorf("block status of one: %x; want %x", p, want[:12])
	}
	for _, r := range []request{
		{command: cmdRead, offset: 1 << 40, length: 1}, {command: cmdStatus, offset: size, length: 1},
	} {
		if kind, p := c.chunk(r); kind != chunkError || len(p) != 6 || errno(binary.BigEndian.Uint32(p)) != eInval {
			t.Errorf("command %d: type %d, %x; want error %d", r.command, kind, p, eInval)
		}
	}
	plain := w.open()
	if e := plain.do(request{command: cmdStatus, length: 1}, nil); e != eInval {
		t.Errorf("block status that was not negotiated: error %d, want %d", e, eInval)
	}
}
