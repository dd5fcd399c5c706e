package pcapng

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

var (
	a4, b4 = netip.MustParseAddrPort("127.0.0.1:1234"), netip.MustParseAddrPort("127.0.0.2:80")
	a6, b6 = netip.MustParseAddrPort("[::1]:1234"), netip.MustParseAddrPort("[::2]:80")
)

// packets reads a file and checks it strictly: section, interface, enhanced packets.
func packets(t *testing.T, b []byte) (frames [][]byte, ns []int64) {
	t.Helper()
	le := binary.LittleEndian
	for i := 0; len(b) > 0; i++ {
		typ, n := le.Uint32(b), int(le.Uint32(b[4:]))
		if n%4 != 0 || n > len(b) || int(le.Uint32(b[n-4:])) != n {
			t.Fatalf("block %d: length %d", i, n)
		}
		body := b[8 : n-4]
		b = b[n:]
		switch want := [...]uint32{blockSection, blockInterface, blockPacket}[min(i, 2)]; {
		case typ != want:
			t.Fatalf("block %d: type %#x", i, typ)
		case typ == blockPacket:
			size := int(le.Uint32(body[12:]))
			if le.Uint32(body[16:]) != uint32(size) || len(body) != 20+(size+3)/4*4 {
				t.Fatalf("block %d: packet of %d in a body of %d", i, size, len(body))
			}
			frames = append(frames, body[20:20+size])
			ns = append(ns, int64(le.Uint32(body[4:]))<<32|int64(le.Uint32(body[8:])))
		}
	}
	return frames, ns
}

// segment checks one frame's headers and returns their fields.
func segment(t *testing.T, f []byte) (src, dst netip.AddrPort, seq, ack uint32, flags byte, payload []byte) {
	t.Helper()
	be := binary.BigEndian
	ip := f[14:]
	var tcp []byte
	var from, to netip.Addr
	switch be.Uint16(f[12:]) {
	case 0x0800:
		if int(be.Uint16(ip[2:])) != len(ip) || fold(add(0, ip[:20])) != 0 {
			t.Fatalf("IPv4 header %x", ip[:20])
		}
		from, _ = netip.AddrFromSlice(ip[12:16])
		to, _ = netip.AddrFromSlice(ip[16:20])
		tcp = ip[20:]
	case 0x86dd:
		if int(be.Uint16(ip[4:])) != len(ip)-40 {
			t.Fatalf("IPv6 header %x", ip[:40])
		}
		from, _ = netip.AddrFromSlice(ip[8:24])
		to, _ = netip.AddrFromSlice(ip[24:40])
		tcp = ip[40:]
	}
	if fold(add(pseudo(from, to, len(tcp)), tcp)) != 0 {
		t.Fatalf("TCP checksum of %x", tcp)
	}
	src, dst = netip.AddrPortFrom(from, be.Uint16(tcp)), netip.AddrPortFrom(to, be.Uint16(tcp[2:]))
	return src, dst, be.Uint32(tcp[4:]), be.Uint32(tcp[8:]), tcp[13], tcp[20:]
}

func TestTap(t *testing.T) {
	for _, end := range [][2]netip.AddrPort{{a4, b4}, {a6, b6}} {
		var file bytes.Buffer
		clock := int64(1) << 40
		tap, err := NewTap(&file, func() int64 { clock++; return clock })
		if err != nil {
			t.Fatal(err)
		}
		long := bytes.Repeat([]byte("0123456789abcde"), 6000)
		sent := map[netip.AddrPort][]byte{end[0]: long, end[1]: []byte("odd")}
		tap.Stream(end[0], end[1], true, long[:1])
		tap.Stream(end[0], end[1], true, nil)
		tap.Stream(end[0], end[1], false, []byte("odd"))
		tap.Stream(end[0], end[1], true, long[1:])
		if err := tap.Err(); err != nil {
			t.Fatal(err)
		}
		frames, ns := packets(t, file.Bytes())
		if len(frames) != 7 { // SYN, SYN+ACK, ACK, 1, 3, 89999 in two
			t.Fatalf("%d frames", len(frames))
		}
		got, next := map[netip.AddrPort][]byte{}, map[netip.AddrPort]uint32{}
		for i, f := range frames {
			src, dst, seq, ack, flags, payload := segment(t, f)
			if want := [...]byte{flagSYN, flagSYN | flagACK, flagACK, flagPSH | flagACK}[min(i, 3)]; flags != want {
				t.Errorf("frame %d: flags %#x", i, flags)
			}
			if i > 1 && seq != next[src] || i > 0 && ack != next[dst] {
				t.Errorf("frame %d: sequence %d and %d, want %d and %d", i, seq, ack, next[src], next[dst])
			}
			next[src] = seq + uint32(len(payload)) + uint32(flags&flagSYN)/flagSYN
			got[src] = append(got[src], payload...)
			if i > 0 && ns[i] < ns[i-1] || ns[i] < 1<<40 {
				t.Errorf("frame %d: time %d", i, ns[i])
			}
		}
		for from, want := range sent {
			if !bytes.Equal(got[from], want) {
				t.Errorf("stream of %v: %d bytes, want %d", from, len(got[from]), len(want))
			}
		}
	}
}

type broken struct{ left int }

var errBroken = errors.New("broken")

func (w *broken) Write(b []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, errBroken
	}
	return len(b), nil
}

func TestErrors(t *testing.T) {
	now := func() int64 { return 0 }
	if _, err := NewTap(&broken{1}, now); !errors.Is(err, errBroken) {
		t.Errorf("NewTap: %v", err)
	}
	tap, err := NewTap(&broken{4}, now)
	if err != nil {
		t.Fatal(err)
	}
	tap.Stream(a4, b4, true, []byte("x"))
	tap.Stream(a4, b4, true, []byte("x"))
	if err := tap.Err(); !errors.Is(err, errBroken) {
		t.Errorf("Err: %v", err)
	}
	tap, err = NewTap(&bytes.Buffer{}, now)
	if err != nil {
		t.Fatal(err)
	}
	tap.Stream(a4, b6, true, []byte("x"))
	if tap.Err() == nil {
		t.Error("mixed addresses taken")
	}
}

// A capture that cannot be written returns an error at the end.
func TestCreateTap(t *testing.T) {
	name := filepath.Join(t.TempDir(), "capture")
	tap, done, err := CreateTap(name)
	if err != nil {
		t.Fatal(err)
	}
	a, b := netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:2")
	tap.Stream(a, b, true, []byte("x"))
	if err := done(); err != nil {
		t.Error(err)
	}
	tap.Stream(a, b, true, []byte("y")) // the file is closed
	if err := done(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("done: %v", err)
	}
	if _, _, err := CreateTap(filepath.Join(name, "in a file")); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("in a file: %v", err)
	}
}
