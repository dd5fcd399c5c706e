package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares b with testdata/name.hex.
func golden(t *testing.T, name string, b []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".hex")
	if *update {
		var s strings.Builder
		for i := 0; i < len(b); i += 16 {
			s.WriteString(hex.EncodeToString(b[i:min(i+16, len(b))]) + "\n")
		}
		if err := os.WriteFile(path, []byte(s.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, want) {
		t.Errorf("%s:\n%x, want\n%x", name, b, want)
	}
}

func sampleHeader() Header {
	h := Header{
		Seq: 0x0102030405060708, Ack: 0x1112131415161718, Len: 0x21222324,
		SPort: 0x3132, DPort: 0x4142, Flags: FlagAckRequired | FlagRetransmitted, Credit: 0x51,
		SrcInc: 0x61626364, DstInc: 0x71727374,
	}
	h.SetExtDest(0x8182838491929394)
	return h
}

func TestHeaderGolden(t *testing.T) {
	h := sampleHeader()
	var b [HeaderLen]byte
	h.Put(b[:])
	golden(t, "header", b[:])

	// The layout by hand, once, independent of the codec.
	want, _ := hex.DecodeString("0102030405060708" + "1112131415161718" + "21222324" + "3132" + "4142" +
		"06" + "51" + "61626364" + "0000" + "03" + "91929394" + "81828384" + "000000" + "71727374")
	sum := b[30:32]
	got := append([]byte(nil), b[:]...)
	copy(got[30:32], []byte{0, 0})
	if !bytes.Equal(got, want) {
		t.Errorf("layout:\n%x, want\n%x", got, want)
	}
	if ref := refChecksum(want); sum[0] != byte(ref>>8) || sum[1] != byte(ref) {
		t.Errorf("checksum %x, want %04x", sum, ref)
	}
	var back Header
	if err := Parse(b[:], &back); err != nil || back != h {
		t.Errorf("Parse: %+v, %v; want %+v", back, err, h)
	}
}

// refChecksum is RFC 1071 word by word.
func refChecksum(b []byte) uint16 {
	var s uint32
	for i := 0; i < len(b); i += 2 {
		s += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}

func TestChecksum(t *testing.T) {
	h := sampleHeader()
	var b [HeaderLen]byte
	h.Put(b[:])
	for i := range b {
		for bit := range 8 {
			c := b
			c[i] ^= 1 << bit
			if c[30] == 0 && c[31] == 0 {
				continue // became "unchecked"
			}
			if err := Parse(c[:], new(Header)); !errors.Is(err, ErrChecksum) {
				t.Fatalf("bit %d of byte %d flipped: %v", bit, i, err)
			}
		}
	}
	b[30], b[31] = 0, 0
	if err := Parse(b[:], new(Header)); err != nil {
		t.Errorf("unchecked header: %v", err)
	}
	if err := Parse(b[:HeaderLen-1], new(Header)); !errors.Is(err, ErrShort) {
		t.Errorf("short header: %v", err)
	}
	// A header whose sum is 0xffff would say "unchecked".
	z := Header{Seq: 0xffff}
	z.Put(b[:])
	if b[30] != 0xff || b[31] != 0xff {
		t.Errorf("checksum of a header summing to ffff: %x", b[30:32])
	}
	if err := Parse(b[:], &z); err != nil {
		t.Errorf("it is not accepted: %v", err)
	}
}

func TestParseExts(t *testing.T) {
	tests := []struct {
		name string
		hex  string
		want Exts
	}{
		{"none", "000000000000000000000000", Exts{}},
		{"empty", "", Exts{}},
		{"rdma", "0200000007" + "00000000000000", Exts{RDMA: 1, RDMAKeys: [2]uint32{7}}},
		{"dest", "030000000700001000" + "000000", Exts{HasDest: true, Dest: 0x1000_0000_0007}},
		{"both, terminator lost", "0200000007" + "030000000800002000" + "0000", Exts{RDMA: 1, RDMAKeys: [2]uint32{7}, HasDest: true, Dest: 0x2000_0000_0008}},
		{"behind others", "0500080200000007" + "00000000", Exts{RDMA: 1, RDMAKeys: [2]uint32{7}}},
		{"unknown is empty", "0a0200000007", Exts{RDMA: 1, RDMAKeys: [2]uint32{7}}},
		{"16 ends", "100200000007", Exts{}},
		{"255 ends", "ff0200000007", Exts{}},
		{"overrun", "02000000", Exts{}},
		{"second overruns", "0200000007" + "0300000000", Exts{RDMA: 1, RDMAKeys: [2]uint32{7}}},
		{"exact end", "0200000007", Exts{RDMA: 1, RDMAKeys: [2]uint32{7}}},
		{"two operations", "02000000070200000009", Exts{RDMA: 2, RDMAKeys: [2]uint32{7, 9}}},
		{"a third is one too many", "020000000702000000090200000008", Exts{RDMA: 2, RDMAKeys: [2]uint32{7, 9}}},
		{"last cookie counts", "030000000100000002" + "030000000300000004", Exts{HasDest: true, Dest: 3 | 4<<32}},
	}
	for _, c := range tests {
		b, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		if got := ParseExts(b); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	var h Header
	if h.DestCookie() != 0 {
		t.Error("cookie without a header")
	}
	h.SetExtRDMA(9)
	if e := h.Exts(); e.RDMA != 1 || e.RDMAKeys[0] != 9 || h.DestCookie() != 0 {
		t.Errorf("SetExtRDMA: %+v", e)
	}
	h.AddExtRDMA(8)
	if e := h.Exts(); e.RDMA != 2 || e.RDMAKeys != [2]uint32{9, 8} {
		t.Errorf("AddExtRDMA: %+v", e)
	}
	h.SetExtDest(5 | 6<<32)
	if e := h.Exts(); e.RDMA != 0 || h.DestCookie() != 5|6<<32 {
		t.Errorf("SetExtDest: %+v", e)
	}
	h.DstInc = 0x01020304
	var b [HeaderLen]byte
	h.Put(b[:])
	if e := b[32:]; [4]byte(e[12:]) != [4]byte{1, 2, 3, 4} || e[0] != extRDMADest {
		t.Errorf("on the wire: %x", e)
	}
}

func TestBodiesGolden(t *testing.T) {
	hello := Hello{Version: HelloVersion, Features: 2, Instance: 3, Ack: 4, Notice: 5, MaxSend: 6, Credits: 7, ReadDepth: 8, Flags: 9, AckInst: 10}
	grant := Grant{Cookie: 1, Length: 2, Rights: 3, Owner: 4, Grantee: 5, OwnerInc: 6, Region: 7}
	revoke := Revoke{RKey: 0x01020304, Lanes: 5}
	nak := GrantNak{RKey: 0x01020304, Grantee: 5, Reason: NakConflict}
	notice := Notice{Seq: 1, DPort: 2, SPort: 3, SrcInc: 4}
	ask := Ask{Cookie: 0x0102030405060708, Number: 9, Says: AskNotOpen}
	golden(t, "ask", ask.Append(nil))
	golden(t, "hello", hello.Append(nil))
	golden(t, "grant", grant.Append(nil))
	golden(t, "revoke", revoke.Append(nil))
	golden(t, "grantnak", nak.Append(nil))
	golden(t, "notice", notice.Append(nil))

	longer := func(b []byte) []byte { return append(b, 0xff, 0xff) }
	if g, err := ParseHello(longer(hello.Append(nil))); err != nil || g != hello {
		t.Errorf("HELLO: %+v, %v", g, err)
	}
	if g, err := ParseGrant(longer(grant.Append(nil))); err != nil || g != grant {
		t.Errorf("GRANT: %+v, %v", g, err)
	}
	if g, err := ParseRevoke(longer(revoke.Append(nil))); err != nil || g != revoke {
		t.Errorf("REVOKE: %+v, %v", g, err)
	}
	if g, err := ParseGrantNak(longer(nak.Append(nil))); err != nil || g != nak {
		t.Errorf("GRANT_NAK: %+v, %v", g, err)
	}
	if a, err := ParseAsk(longer(ask.Append(nil))); err != nil || a != ask {
		t.Errorf("ASK: %+v, %v", a, err)
	}
	for _, lanes := range []uint32{0, MaxConns + 1} {
		if _, err := ParseRevoke((&Revoke{RKey: 1, Lanes: lanes}).Append(nil)); err == nil {
			t.Errorf("REVOKE on %d lanes was taken", lanes)
		}
	}
	if g, err := ParseNotice(longer(notice.Append(nil))); err != nil || g != notice {
		t.Errorf("NOSOCK: %+v, %v", g, err)
	}
	for _, c := range []struct {
		b     []byte
		want  int
		parse func([]byte) error
	}{
		{hello.Append(nil), HelloLen, func(b []byte) error { _, err := ParseHello(b); return err }},
		{grant.Append(nil), GrantLen, func(b []byte) error { _, err := ParseGrant(b); return err }},
		{revoke.Append(nil), RevokeLen, func(b []byte) error { _, err := ParseRevoke(b); return err }},
		{nak.Append(nil), GrantNakLen, func(b []byte) error { _, err := ParseGrantNak(b); return err }},
		{ask.Append(nil), AskLen, func(b []byte) error { _, err := ParseAsk(b); return err }},
		{notice.Append(nil), NoticeLen, func(b []byte) error { _, err := ParseNotice(b); return err }},
	} {
		if len(c.b) != c.want {
			t.Errorf("body of %d bytes, documented %d", len(c.b), c.want)
		}
		for n := range c.b {
			if c.parse(c.b[:n]) == nil {
				t.Errorf("body of %d bytes cut to %d accepted", c.want, n)
			}
		}
	}
	hello.Version = 1
	if _, err := ParseHello(hello.Append(nil)); err == nil || !strings.Contains(err.Error(), "version 1, want 2") {
		t.Errorf("HELLO of version 1: %v", err)
	}
}

func TestPrivateGolden(t *testing.T) {
	p := Private{
		Src: netip.MustParseAddr("127.0.0.1"), Dst: netip.MustParseAddr("127.0.0.2"),
		Major: ProtocolMajor, Minor: ProtocolMinor, MinorMask: MinorMask, TOS: 5, AckSeq: 6, Credit: 7, Ext: ExtVersion,
	}
	b4 := AppendPrivate(nil, &p)
	golden(t, "private4", b4)
	if g, err := ParsePrivate(append(b4, 0, 0, 0), false); err != nil || g != p {
		t.Errorf("IPv4: %+v, %v", g, err)
	}
	if _, err := ParsePrivate(b4[:PrivateLen4-1], false); err == nil {
		t.Error("short IPv4 private data accepted")
	}
	p.Src, p.Dst, p.Ext = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"), 0
	b6 := AppendPrivate(nil, &p)
	golden(t, "private6", b6)
	if g, err := ParsePrivate(b6, true); err != nil || g != p {
		t.Errorf("IPv6: %+v, %v", g, err)
	}
	if _, err := ParsePrivate(b6[:PrivateLen6-1], true); err == nil {
		t.Error("short IPv6 private data accepted")
	}
	golden(t, "reject", Rejected(NotAllowed))
	golden(t, "crossed", Crossed())
	for _, want := range []Reject{{Code: -22}, {Code: RejectIncompat, Ext: 1}, {Code: RejectIncompat, Ext: 2, Crossed: true}, {Code: RejectIncompat, Ext: 2, Why: 250}} {
		if r, ok := ParseReject(want.Append(nil)); !ok || r != want {
			t.Errorf("reject: %+v, %v; want %+v", r, ok, want)
		}
	}
	if _, ok := ParseReject([]byte{1, 0, 0}); ok {
		t.Error("short reject accepted")
	}
}

func TestIsAck(t *testing.T) {
	h := Header{Ack: 5, Credit: 3}
	if !h.IsAck(HeaderLen) || h.IsAck(HeaderLen+8) {
		t.Error("ack frame")
	}
	for _, h := range []Header{{Seq: 1}, {SPort: 1}, {DPort: 1}, {Flags: FlagAckRequired}, {Len: 1}} {
		if h.IsAck(HeaderLen) {
			t.Errorf("%+v is an ack", h)
		}
	}
}

func TestPad(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 8, 7: 8, 8: 8, 9: 16, 48: 48} {
		if Pad(n) != want {
			t.Errorf("Pad(%d) = %d", n, Pad(n))
		}
	}
}

func TestNoAllocations(t *testing.T) {
	h := sampleHeader()
	b := make([]byte, HeaderLen)
	if n := testing.AllocsPerRun(100, func() {
		h.Put(b)
		if Parse(b, &h) != nil || h.DestCookie() == 0 {
			t.Fatal("parse")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParse(f *testing.F) {
	h := sampleHeader()
	b := make([]byte, HeaderLen)
	h.Put(b)
	f.Add(b)
	f.Add(make([]byte, HeaderLen))
	f.Add(b[:20])
	f.Fuzz(func(t *testing.T, b []byte) {
		var h Header
		if Parse(b, &h) != nil {
			return
		}
		var out [HeaderLen]byte
		h.Put(out[:])
		var again Header
		if err := Parse(out[:], &again); err != nil || again != h {
			t.Fatalf("%+v became %+v, %v", h, again, err)
		}
		if b[30] != 0 || b[31] != 0 {
			// 0 and ffff are one number.
			if !bytes.Equal(out[:], b[:HeaderLen]) {
				t.Fatalf("%x became %x", b[:HeaderLen], out)
			}
		}
		h.Exts()
	})
}

func FuzzBodies(f *testing.F) {
	f.Add((&Hello{Version: HelloVersion, Instance: 1}).Append(nil))
	f.Add((&Grant{Cookie: 1}).Append(nil))
	f.Add((&Notice{Seq: 1}).Append(nil))
	f.Add(AppendPrivate(nil, &Private{Src: netip.IPv6Loopback(), Dst: netip.IPv6Loopback(), Ext: ExtVersion}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := ParseHello(b); err == nil {
			if g, err := ParseHello(h.Append(nil)); err != nil || g != h {
				t.Fatalf("HELLO %+v became %+v, %v", h, g, err)
			}
		}
		if h, err := ParseGrant(b); err == nil {
			if g, err := ParseGrant(h.Append(nil)); err != nil || g != h {
				t.Fatalf("GRANT %+v became %+v, %v", h, g, err)
			}
		}
		if h, err := ParseAsk(b); err == nil {
			if g, err := ParseAsk(h.Append(nil)); err != nil || g != h {
				t.Fatalf("ASK %+v became %+v, %v", h, g, err)
			}
		}
		if h, err := ParseNotice(b); err == nil {
			if g, err := ParseNotice(h.Append(nil)); err != nil || g != h {
				t.Fatalf("notice %+v became %+v, %v", h, g, err)
			}
		}
		if h, err := ParseRevoke(b); err == nil {
			if g, err := ParseRevoke(h.Append(nil)); err != nil || g != h {
				t.Fatalf("REVOKE %+v became %+v, %v", h, g, err)
			}
		}
		if h, err := ParseGrantNak(b); err == nil {
			if g, err := ParseGrantNak(h.Append(nil)); err != nil || g != h {
				t.Fatalf("GRANT_NAK %+v became %+v, %v", h, g, err)
			}
		}
		ParseReject(b)
		for _, v6 := range []bool{false, true} {
			p, err := ParsePrivate(b, v6)
			if err != nil {
				continue
			}
			if v6 && (p.Src.Is4In6() || p.Dst.Is4In6()) {
				continue // encoded as IPv4 if both are
			}
			if g, err := ParsePrivate(AppendPrivate(nil, &p), v6); err != nil || g != p {
				t.Fatalf("private %+v became %+v, %v", p, g, err)
			}
		}
		ParseExts(b)
	})
}
