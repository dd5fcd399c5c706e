package capture

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

var (
	here  = netip.MustParseAddrPort("10.0.0.1:18634")
	there = netip.MustParseAddrPort("10.0.0.2:40000")
)

// send is an FPDU with a SEND of messages of these ports, n bytes each.
func send(n int, ports ...uint16) []byte {
	f := make([]byte, iwarp.UntaggedLen)
	iwarp.PutUntagged(f, iwarp.OpSend, true, len(ports)*wire.Pad(wire.HeaderLen+n), 0, iwarp.QNSend, 1, 0)
	for _, p := range ports {
		b := make([]byte, wire.Pad(wire.HeaderLen+n))
		binary.BigEndian.PutUint32(b[16:], uint32(n))
		binary.BigEndian.PutUint16(b[20:], 9)
		binary.BigEndian.PutUint16(b[22:], p)
		f = append(f, b...)
	}
	return append(f, 0, 0, 0, 0)
}

// write is an FPDU with an RDMA WRITE.
func write(n int) []byte {
	f := make([]byte, iwarp.TaggedLen+n+(-(iwarp.TaggedLen+n)&3)+iwarp.CRCLen)
	iwarp.PutTagged(f, iwarp.OpWrite, true, n, 1, 0)
	return f
}

func startups() (req, rep []byte) {
	q, p := iwarp.MPA{Rev: 2}, iwarp.MPA{Reply: true, Rev: 2, Private: []byte("hello")}
	return q.Append(nil), p.Append(nil)
}

// packet is a TCP packet of a file.
type packet struct {
	out     bool // from here
	seq     uint32
	n       int // payload
	payload []byte
}

// file reads a file: packets with payload, and the statistics, nil if there are none.
func file(t *testing.T, b []byte) (out []packet, stats []uint64) {
	t.Helper()
	le, be := binary.LittleEndian, binary.BigEndian
	for len(b) > 0 {
		n := int(le.Uint32(b[4:]))
		if n < 12 || n > len(b) || n%4 != 0 || int(le.Uint32(b[n-4:])) != n {
			t.Fatalf("block of %d bytes in %d", n, len(b))
		}
		switch body := b[8 : n-4]; le.Uint32(b) {
		case 6:
			caplen, total := int(le.Uint32(body[12:])), int(le.Uint32(body[16:]))
			f := body[20 : 20+caplen]
			if int(be.Uint16(f[16:])) != total-14 {
				t.Errorf("IP length %d in a packet of %d", be.Uint16(f[16:]), total)
			}
			if total > 54 {
				out = append(out, packet{be.Uint16(f[34:]) == here.Port(), be.Uint32(f[38:]), total - 54, f[54:]})
			}
		case 5:
			stats = []uint64{le.Uint64(body[16:]), le.Uint64(body[28:])}
		}
		b = b[n:]
	}
	return out, stats
}

// all ends c and returns its file.
func all(t *testing.T, h *Hub, c *Capture, r *Reader) []byte {
	t.Helper()
	h.Stop(c)
	var b []byte
	for {
		part, end := r.Read(1000)
		b = append(b, part...)
		if end {
			return b
		}
	}
}

func start(t *testing.T, spec Spec) (*Hub, *Capture, *Reader) {
	t.Helper()
	var h Hub
	if spec.Buffer == 0 {
		spec.Buffer = 1 << 20
	}
	c := New(spec)
	at := int64(1e18)
	c.now = func() int64 { at++; return at }
	if !h.Start(c) || h.Start(New(spec)) {
		t.Fatal("not one capture")
	}
	return &h, c, NewReader(c, "test")
}

// TestFrames: however a stream is cut, each frame is a packet, in order, with running
// sequences; nothing is left of what is not whole.
func TestFrames(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	req, rep := startups()
	for range 50 {
		h, c, r := start(t, Spec{})
		if !h.Begin(here, there, true, false) {
			t.Fatal("not wanted")
		}
		h.Stream(here, there, false, req)
		h.Stream(here, there, true, rep)
		var want [2][][]byte
		var streams [2][]byte
		for range 20 {
			f := send(rng.IntN(300), 5, 6)
			if rng.IntN(2) == 0 {
				f = write(rng.IntN(60000))
			}
			dir := rng.IntN(2)
			want[dir] = append(want[dir], f)
			streams[dir] = append(streams[dir], f...)
		}
		streams[1] = append(streams[1], write(10)[:7]...)
		for len(streams[0])+len(streams[1]) > 0 {
			dir := rng.IntN(2)
			n := min(rng.IntN(1+rng.IntN(9000)), len(streams[dir]))
			h.Stream(here, there, dir == 1, streams[dir][:n])
			streams[dir] = streams[dir][n:]
		}
		packets, stats := file(t, all(t, h, c, r))
		next := [2]uint32{}
		got := [2]int{-1, -1} // the start-up frames
		for _, p := range packets {
			dir := 0
			if p.out {
				dir = 1
			}
			if next[dir] != 0 && p.seq != next[dir] {
				t.Fatalf("sequence %d, want %d", p.seq, next[dir])
			}
			next[dir] = p.seq + uint32(p.n)
			if i := got[dir]; i >= 0 && string(p.payload) != string(want[dir][i]) {
				t.Fatalf("frame %d has %d bytes, want %d", i, len(p.payload), len(want[dir][i]))
			}
			got[dir]++
		}
		if got != [2]int{len(want[0]), len(want[1])} {
			t.Fatalf("%d frames, want %d and %d", got, len(want[0]), len(want[1]))
		}
		if len(stats) != 2 || stats[0] != 22 || stats[1] != 0 {
			t.Errorf("statistics %d", stats)
		}
	}
}

// TestFull: what the ring has no room for is whole frames; they are counted, the sequences
// leap over them, and memory stays bounded.
func TestFull(t *testing.T) {
	h, c, r := start(t, Spec{Buffer: 64 << 10})
	req, rep := startups()
	h.Begin(here, there, false, false)
	h.Stream(here, there, true, req)
	h.Stream(here, there, false, rep)
	const n = 1000
	total, each := 0, 0
	var b []byte
	for i := range n {
		f := write(3000)
		f[20] = byte(i)
		each = len(f)
		total += len(f)
		h.Stream(here, there, true, f[:1500])
		h.Stream(here, there, true, f[1500:])
		if i%40 == 0 {
			part, _ := r.Read(1 << 20)
			b = append(b, part...)
		}
	}
	if cap(c.ring.mem) > 64<<10 {
		t.Errorf("a ring of %d bytes", cap(c.ring.mem))
	}
	packets, stats := file(t, append(b, all(t, h, c, r)...))
	frames, dropped := r.Frames()
	if frames+dropped != n+2 || dropped < n/4 {
		t.Errorf("%d recorded, %d dropped of %d", frames, dropped, n+2)
	}
	if len(stats) != 2 || stats[0] != n+2 || stats[1] != dropped {
		t.Errorf("statistics %d", stats)
	}
	if uint64(len(packets)) != frames {
		t.Errorf("%d packets, %d frames", len(packets), frames)
	}
	first, last := uint32(0), uint32(0)
	for _, p := range packets {
		if !p.out || string(p.payload[:3]) == "MPA" {
			continue
		}
		if first == 0 {
			first = p.seq
		}
		if p.n != each || (p.seq-first)%uint32(each) != 0 || p.seq < last {
			t.Fatalf("packet of %d at %d behind %d", p.n, p.seq-first, last-first)
		}
		last = p.seq
	}
	if last-first < uint32(each)*n/2 {
		t.Errorf("the last one is at %d of %d", last-first, total)
	}
}

// TestSelect: peer, port and snap length.
func TestSelect(t *testing.T) {
	h, c, r := start(t, Spec{Peer: there.Addr(), Port: 6, Snap: 100})
	other := netip.MustParseAddrPort("10.0.0.3:1")
	if h.Begin(here, other, false, false) {
		t.Error("another peer is wanted")
	}
	h.Stream(here, other, true, send(10, 6))
	req, rep := startups()
	h.Begin(here, there, false, false)
	h.Stream(here, there, true, req)
	h.Stream(here, there, false, rep)
	for _, f := range [][]byte{send(10, 5), write(500), send(500, 5, 6), send(10, 7, 8), send(5, 6)} {
		h.Stream(here, there, true, f)
	}
	packets, _ := file(t, all(t, h, c, r))
	if len(packets) != 4 { // the start-up frames, two SENDs
		t.Fatalf("%d packets", len(packets))
	}
	if p := packets[2]; p.n != len(send(500, 5, 6)) || len(p.payload) != 100 {
		t.Errorf("%d bytes of %d", len(p.payload), p.n)
	}
	if p := packets[3]; p.n != len(send(5, 6)) || len(p.payload) != min(100, p.n) {
		t.Errorf("%d bytes of %d", len(p.payload), p.n)
	}
}

// TestRDSTCP: messages of RDS/TCP, and a snap length that the ring knows.
func TestRDSTCP(t *testing.T) {
	h, c, r := start(t, Spec{Snap: 64, Buffer: 64 << 10})
	h.BeginTCP(here, there, true)
	var b []byte
	for range 100 {
		f := make([]byte, wire.HeaderLen+5000)
		binary.BigEndian.PutUint32(f[16:], 5000)
		b = append(b, f...)
	}
	for len(b) > 0 {
		n := min(len(b), 777)
		h.Stream(here, there, false, b[:n])
		b = b[n:]
	}
	packets, stats := file(t, all(t, h, c, r))
	if len(packets) != 100 || stats[1] != 0 {
		t.Fatalf("%d packets, %d", len(packets), stats)
	}
	for _, p := range packets {
		if p.out || p.n != wire.HeaderLen+5000 || len(p.payload) != 64 {
			t.Fatalf("%d of %d bytes", len(p.payload), p.n)
		}
	}
}

// TestMany: connections beyond what a capture remembers are counted.
func TestMany(t *testing.T) {
	h, _, r := start(t, Spec{})
	for i := range maxStreams + 3 {
		a := netip.AddrPortFrom(there.Addr(), uint16(i))
		if got := h.Begin(here, a, false, false); got != (i < maxStreams) {
			t.Fatalf("connection %d: %v", i, got)
		}
		r.Read(1 << 20)
	}
	if !h.Begin(here, netip.AddrPortFrom(there.Addr(), 1), false, false) {
		t.Error("a connection that is known came again")
	}
	if _, dropped := r.Frames(); dropped != 3 {
		t.Errorf("%d dropped", dropped)
	}
}

// FuzzStream: whatever is in a stream, the file stays well formed.
func FuzzStream(f *testing.F) {
	req, rep := startups()
	f.Add(append(req, send(10, 5)...), append(rep, write(30)...), uint8(7), false)
	f.Add([]byte("garbage"), []byte{0, 1, 2, 3}, uint8(1), true)
	f.Fuzz(func(t *testing.T, out, in []byte, cut uint8, rds bool) {
		h, c, r := start(t, Spec{Port: 5, Snap: 80, Buffer: 16 << 10})
		if rds {
			h.BeginTCP(here, there, false)
		} else {
			h.Begin(here, there, false, cut%2 == 0)
		}
		for _, b := range [2][]byte{out, in} {
			for len(b) > 0 {
				n := min(len(b), int(cut)+1)
				h.Stream(here, there, &b == &out, b[:n])
				b = b[n:]
			}
		}
		file(t, all(t, h, c, r))
	})
}

// TestMax: a file ends with its statistics ahead of the packet that would exceed Max, and holds all
// that is before. One byte less and the last packet is not in it.
func TestMax(t *testing.T) {
	record := func(most int64, part int) (b []byte) {
		h, c, r := start(t, Spec{Max: most})
		h.Begin(here, there, false, false)
		req, rep := startups()
		h.Stream(here, there, true, req)
		h.Stream(here, there, false, rep)
		for range 20 {
			h.Stream(here, there, true, write(5000))
		}
		for end := false; !end; {
			var next []byte
			if next, end = r.Read(part); len(next) == 0 && !end {
				h.Stop(c) // there is no more, and the file is not full
			}
			b = append(b, next...)
		}
		return b
	}
	whole := int64(len(record(0, 1000)))
	for _, part := range []int{1, 1000, 1 << 20} {
		for _, most := range []int64{4096, 20_000, 33_333, whole - 1, whole, whole + 1} {
			b := record(most, part)
			packets, stats := file(t, b)
			if int64(len(b)) > most || int64(len(b)) < min(most, whole)-6000 {
				t.Errorf("%d bytes of at most %d, in parts of %d", len(b), most, part)
			}
			if len(stats) != 2 || stats[0] != uint64(len(packets)) || stats[1] != 0 || (len(packets) == 22) != (most >= whole) {
				t.Errorf("at most %d of %d bytes: %d packets, statistics %d", most, whole, len(packets), stats)
			}
		}
	}
}
