package conformance

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/stats"
)

func groupG() []statement {
	return []statement{
		{n: 120, kind: "k", by: byPeer, text: "a header is 48 bytes, big-endian, its fields at the kernel's offsets", check: headerLayout},
		{n: 121, kind: "k", by: byPeer, text: "the header sums to 0xffff; h_csum 0 is accepted; a wrong one breaks the connection and counts", check: headerChecksum},
		{n: 122, kind: "k", by: byCodec, text: "TCP frames have no checksum, no ack, no ACK_REQUIRED; received ones are ignored", check: tcpFramesPlain},
		{n: 123, kind: "k", by: byPeer, text: "extension RDMA is 02 and the key, RDMA_DEST 03, the key and the offset; the rest is zero, but for rdsd's ANYBODY in the last byte", check: extensionLayout},
		{n: 124, kind: "k", by: byPeer, text: "unknown flags are ignored; CONG_BITMAP with another flag is no map", check: unknownFlagsIgnored},
		{n: 125, kind: "k", by: byCodec, text: "extension parsing survives everything and stops at NONE, at types from 16, at an overrun", check: extensionParsing},
		{n: 126, kind: "r", by: byCodec, text: "several extension headers, without a terminator, are accepted", check: severalExtensions},
		{n: 127, kind: "k", by: byPeer, text: "sequences rise by 1 with every message, pings and pongs included (they start at the clock, not at 1)", check: sequencesRise},
		{n: 128, kind: "k", by: byPeer, text: "an old sequence with RETRANSMITTED is dropped and acked; without it, between rdsd, it is a protocol error", check: oldSequence},
		{n: 129, kind: "k", by: byPeer, text: "a gap of 1000 sequences is accepted", check: sequenceGap},
		{n: 130, kind: "r", by: byPeer, text: "h_len above 1 MiB breaks the connection without memory being taken", check: headerLengthLimit},
	}
}

func headerLayout(t *testing.T, e *env) {
	p := connected(t, e.a)
	s := e.ka.bound(t)
	// A long datagram has the kernel's header as it is. A short one is in a run, whose header
	// has a flag and an extension header more.
	long := bytesOf(10_000, 1)
	s.mustSend(long, p.at(0x1234))
	f := p.data()
	p.kernelHeader(f, s.local(), kernelFields{length: 10_000})
	s.mustSend([]byte("golden bytes"), p.at(0x1234))
	g := p.data()
	p.kernelHeader(g, s.local(), kernelFields{length: 4 + 12, flags: 0x08, ext: 0x0f_00000001 << 24})
	if !slices.Equal(f.body, long) || string(g.body) != "golden bytes" || g.Seq != f.Seq+1 {
		t.Errorf("received %d bytes and %q, sequences %d and %d", len(f.body), g.body, f.Seq, g.Seq)
	}
	// The other way round: every field is in its place.
	be := binary.BigEndian
	h := make([]byte, 48)
	be.PutUint64(h[0:], p.seq)
	be.PutUint64(h[8:], g.Seq)
	be.PutUint32(h[16:], 3)
	be.PutUint16(h[20:], 0x4321)
	be.PutUint16(h[22:], s.local().Port())
	be.PutUint32(h[26:], 9) // the incarnation that the extension requires
	p.post(append(h, "abc"...))
	if r := s.recv(); string(r.data) != "abc" || r.from != p.at(0x4321) {
		t.Errorf("received %q from %v", r.data, r.from)
	}
}

// kernelFields are fields of a header whose values depend on the message.
type kernelFields struct {
	ack, length, flags, ext uint64 // flags without ACK_REQUIRED, the first 8 bytes of extension headers
}

// kernelHeader checks a header of a message to port 0x1234 of the peer, byte by byte.
func (p *peer) kernelHeader(f inFrame, from netip.AddrPort, want kernelFields) {
	p.t.Helper()
	be := binary.BigEndian
	b := f.raw
	if len(b) != 48 {
		p.t.Fatalf("header of %d bytes", len(b))
	}
	for _, c := range []struct {
		what      string
		got, want uint64
	}{
		{"h_ack", be.Uint64(b[8:]), want.ack},
		{"h_len", uint64(be.Uint32(b[16:])), want.length},
		{"h_sport", uint64(be.Uint16(b[20:])), uint64(from.Port())},
		{"h_dport", uint64(be.Uint16(b[22:])), 0x1234},
		{"h_flags but ACK_REQUIRED", uint64(b[24] &^ 2), want.flags},
		{"extension headers", be.Uint64(b[32:]), want.ext},
		{"extension headers, the rest, but ANYBODY", uint64(be.Uint32(b[40:])), 13},
	} {
		if c.got != c.want {
			p.t.Errorf("%s: %#x, want %#x", c.what, c.got, c.want)
		}
	}
	if first := be.Uint64(b); first < 1<<20 {
		p.t.Errorf("h_sequence %d", first)
	}
}

// sum returns the Internet checksum's sum of a header.
func sum(b []byte) uint32 {
	var s uint32
	for i := 0; i < len(b); i += 2 {
		s += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return s
}

func headerChecksum(t *testing.T, e *env) {
	p := connected(t, e.a)
	s := e.ka.bound(t)
	s.mustSend([]byte("x"), p.at(5))
	if f := p.data(); sum(f.raw) != 0xffff {
		t.Errorf("the header %x sums to %#x", f.raw, sum(f.raw))
	}
	unchecked := p.frame(s.local(), []byte("unchecked"))
	unchecked[30], unchecked[31] = 0, 0
	p.post(unchecked)
	if g := s.recv(); string(g.data) != "unchecked" {
		t.Errorf("received %q", g.data)
	}
	before := e.a.counter(t, stats.RecvDropBadChecksum)
	bad := p.frame(s.local(), []byte("bad"))
	bad[31] ^= 1
	p.post(bad)
	p.broken("a wrong checksum")
	e.a.counted(t, stats.RecvDropBadChecksum, before, 1)
	s.empty()
}

func tcpFramesPlain(t *testing.T, e *env) {
	h := wire.Header{Seq: 5, Ack: 9, Len: 3, SPort: 1, DPort: 2, Flags: wire.FlagAckRequired | wire.FlagRetransmitted}
	b := make([]byte, wire.HeaderLen)
	h.PutTCP(b)
	be := binary.BigEndian
	if be.Uint64(b) != 5 || be.Uint64(b[8:]) != 0 || be.Uint32(b[16:]) != 3 || b[24] != byte(wire.FlagRetransmitted) || be.Uint16(b[30:]) != 0 {
		t.Errorf("encoded %x", b)
	}
	be.PutUint64(b[8:], 77)
	b[24] |= byte(wire.FlagAckRequired)
	be.PutUint16(b[30:], 0xbad)
	var got wire.Header
	if err := wire.ParseTCP(b, &got); err != nil || got.Ack != 0 || got.Flags != wire.FlagRetransmitted || got.Seq != 5 {
		t.Errorf("parsed %+v, %v", got, err)
	}
}

func extensionLayout(t *testing.T, e *env) {
	p := connected(t, e.a)
	s := e.ka.bound(t)
	be := binary.BigEndian
	// RDMA_DEST: the peer gets a key.
	mem, at := alloc(t, e.ka, 4096)
	ctl := sendControl(t, cmsg.Send{Present: cmsg.Of(cmsg.TypeRDMAMap), Map: cmsg.GetMRArgs{Vec: cmsg.IOVec{Addr: at, Bytes: 100}, CookieAddr: at + 200}})
	s.mustSend(nil, p.at(5), ctl...)
	cookie := binary.NativeEndian.Uint64(mem[200:])
	grant, err := wire.ParseGrant(p.next("GRANT", isInternal(wire.TypeGrant)).body)
	if err != nil || grant.Cookie != cookie || grant.Length != 100 {
		t.Errorf("GRANT %+v, %v", grant, err)
	}
	ext := p.data().raw[32:44]
	if ext[0] != 3 || be.Uint32(ext[1:]) != uint32(cookie) || be.Uint32(ext[5:]) != uint32(cookie>>32) || ext[9]|ext[10] != 0 || ext[11] != 13 {
		t.Errorf("RDMA_DEST %x, cookie %#x", ext, cookie)
	}
	// RDMA: the peer gives a key, and its memory is written.
	target := p.target(4096)
	p.grant(s.local().Port(), target)
	local, localAt := alloc(t, e.ka, 4096)
	r := &rdma{t: t, s: s, local: local, localAt: localAt, vec: local[1024:], vecAt: localAt + 1024, cookie: target.cookie}
	copy(local, "written")
	s.mustSend(nil, p.at(5), r.args(cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite}, 0, 7)...)
	ext = p.data().raw[32:44]
	if ext[0] != 2 || be.Uint32(ext[1:]) != uint32(target.cookie) || !slices.Equal(ext[5:], make([]byte, 7)) {
		t.Errorf("RDMA %x, cookie %#x", ext, target.cookie)
	}
	if string(target.mem[:7]) != "written" {
		t.Errorf("memory %q", target.mem[:7])
	}
}

// remote is memory of a peer.
type remote struct {
	mem    []byte
	cookie uint64
}

// target registers memory that the daemon's sockets may use.
func (p *peer) target(n int) remote {
	p.t.Helper()
	mem := make([]byte, n)
	const iova = 0x5000
	mr, err := p.pd.RegMR(mem, iova, 15)
	ok(p.t, "memory", err)
	return remote{mem, uint64(mr.RKey()) | iova<<32}
}

// grant sends the grant to the daemon, and waits until the daemon has it.
func (p *peer) grant(port uint16, r remote) {
	p.t.Helper()
	g := wire.Grant{Cookie: r.cookie, Length: uint64(len(r.mem)), Rights: 7, Owner: 5, Grantee: port, OwnerInc: p.inc}
	before := p.h.counter(p.t, stats.GrantsReceived)
	p.internal(wire.TypeGrant, g.Append(nil))
	deadline := time.Now().Add(patience)
	for p.h.counter(p.t, stats.GrantsReceived) == before {
		if p.step(); time.Now().After(deadline) {
			p.t.Fatal("the grant does not arrive")
		}
	}
}

func unknownFlagsIgnored(t *testing.T, e *env) {
	p := connected(t, e.a)
	s := e.ka.bound(t)
	p.send(s.local(), []byte("flags"), flags(wire.FlagAtomic)) // between two rdsd a request of 56 bytes follows
	p.broken("an atomic without its request")
	p.connect()
	p.send(s.local(), []byte("flags"))
	if g := s.recv(); string(g.data) != "flags" {
		t.Errorf("received %q", g.data)
	}
	p.settled(s.local())
	before := e.a.counter(t, stats.CongUpdateReceived)
	full := slices.Repeat([]byte{0xff}, wire.CongLen)
	p.send(s.local(), full, seq(0), func(h *wire.Header) { h.SPort, h.DPort, h.Flags = 0, 0, wire.FlagCong|wire.FlagAckRequired })
	p.broken("a map with another flag") // between two rdsd that is a protocol error
	p.connect()
	s.mustSend([]byte("not congested"), p.at(5))
	p.data()
	if n := e.a.counter(t, stats.CongUpdateReceived); n != before {
		t.Errorf("%d maps were taken", n-before)
	}
	// Of a kernel's flags all are unknown but these two: what rdsd adds means nothing.
	h := wire.Header{Flags: 0xff}
	if h.FromKernel(); h.Flags != wire.FlagAckRequired|wire.FlagRetransmitted {
		t.Errorf("a kernel's flags are taken as %#x", h.Flags)
	}
}

func extensionParsing(t *testing.T, e *env) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := make([]byte, 16)
	for range 200_000 {
		n := rng.IntN(17)
		for i := range random {
			random[i] = byte(rng.Uint32())
			if rng.IntN(2) == 0 {
				random[i] &= 15
			}
		}
		wire.ParseExts(random[:n])
	}
	key := []byte{2, 0xa, 0xb, 0xc, 0xd}
	pad := func(parts ...[]byte) []byte { return append(slices.Concat(parts...), make([]byte, 16)...)[:16] }
	for _, c := range []struct {
		what string
		ext  []byte
		want int // number of keys found
	}{
		{"one", pad(key), 1},
		{"NONE ends", pad([]byte{0}, key), 0},
		{"type 16 ends", pad([]byte{16}, key), 0},
		{"type 255 ends", pad([]byte{255}, key), 0},
		{"an unknown type is skipped as empty", pad([]byte{15}, key), 1},
		{"a known type is skipped", pad([]byte{5, 1, 2}, key), 1},
		{"an overrun ends", []byte{2, 1, 2, 3}, 0},
		{"behind an overrun nothing counts", append(pad(key)[:5], 3, 1, 2, 3, 4, 5, 6, 7), 1},
		{"nothing", nil, 0},
	} {
		if got := wire.ParseExts(c.ext); got.RDMA != c.want || c.want == 1 && got.RDMAKeys[0] != 0x0a0b0c0d {
			t.Errorf("%s: %x is %+v", c.what, c.ext, got)
		}
	}
}

func severalExtensions(t *testing.T, e *env) {
	ext := []byte{2, 0, 0, 0, 1, 3, 0, 0, 0, 2, 0, 0, 0, 3, 8, 9} // full, without a NONE at the end
	if got := wire.ParseExts(ext); got.RDMA != 1 || got.RDMAKeys[0] != 1 || !got.HasDest || got.Dest != 2|3<<32 {
		t.Errorf("%+v", got)
	}
	// For a daemon both count.
	p := connected(t, e.a)
	s := e.ka.bound(t)
	p.send(s.local(), nil, func(h *wire.Header) { h.Ext = [12]byte{5, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 3} })
	if g := s.recv(); g.control.Dest != 2|3<<32 {
		t.Errorf("received %+v", g.control)
	}
}

func sequencesRise(t *testing.T, e *env) {
	p := connected(t, e.a)
	s := e.ka.bound(t)
	want := uint64(0)
	for i := range 30 {
		switch i % 3 {
		case 0:
			s.mustSend([]byte("x"), p.at(5))
		case 1:
			s.mustSend(nil, p.at(0)) // ping
		case 2:
			p.send(e.a.at(0), nil) // so that the daemon sends a pong
		}
		f := p.data()
		if want == 0 {
			want = f.Seq
			if at := time.UnixMilli(int64(f.Seq >> 20)); time.Since(at) < 0 || time.Since(at) > time.Hour {
				t.Errorf("it starts at %#x, %v", f.Seq, at)
			}
		}
		if f.Seq != want {
			t.Errorf("message %d has sequence %d, want %d", i, f.Seq, want)
		}
		want = f.Seq + 1
	}
}

func oldSequence(t *testing.T, e *env) {
	p := connected(t, e.a)
	s := e.ka.bound(t)
	first := p.seq
	p.send(s.local(), []byte("one"))
	p.send(s.local(), []byte("two"))
	s.recv()
	s.recv()
	dup := e.a.counter(t, stats.RecvDropOldSeq)
	p.next("an ack", func(f inFrame) bool { return f.Ack == first+1 })
	p.send(s.local(), []byte("one"), seq(first), flags(wire.FlagRetransmitted))
	p.next("an ack of the duplicate", func(f inFrame) bool { return isAck(f) && f.Ack == first+1 })
	e.a.counted(t, stats.RecvDropOldSeq, dup, 1)
	s.empty()
	errs := e.a.counter(t, stats.ProtocolErrors)
	p.send(s.local(), []byte("one"), seq(first))
	p.broken("an old sequence without the flag")
	e.a.counted(t, stats.ProtocolErrors, errs, 1)
	s.empty()
}

func sequenceGap(t *testing.T, e *env) {
	p := connected(t, e.a)
	s := e.ka.bound(t)
	p.send(s.local(), []byte("one"))
	p.seq += 1000
	p.send(s.local(), []byte("two"))
	for _, want := range []string{"one", "two"} {
		if g := s.recv(); string(g.data) != want {
			t.Errorf("received %q", g.data)
		}
	}
	p.next("an ack", func(f inFrame) bool { return f.Ack == p.seq-1 })
}

func headerLengthLimit(t *testing.T, e *env) {
	s := e.ka.bound(t)
	held := e.a.counter(t, stats.HeldBytes)
	for _, n := range []uint32{abi.MaxMessage + 1, 1 << 31, 1<<32 - 1} {
		p := connected(t, e.a)
		errs := e.a.counter(t, stats.ProtocolErrors)
		p.send(s.local(), make([]byte, peerSend-wire.HeaderLen), func(h *wire.Header) { h.Len = n })
		p.broken("a message too long")
		e.a.counted(t, stats.ProtocolErrors, errs, 1)
	}
	if n := e.a.counter(t, stats.HeldBytes); n != held {
		t.Errorf("%d bytes are held", n)
	}
	s.empty()
}
