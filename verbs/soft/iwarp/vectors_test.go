package iwarp

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FPDUs with their CRCs, checked once with tshark and partly against siw.
var frames = []struct {
	name, hex string
	h         Header
}{
	{"Send abcde", "0017 4143 00000000 00000000 00000001 00000000 6162636465 000000 89f65870",
		Header{ULPDU: 0x17, Last: true, Op: OpSend, MSN: 1}},
	{"Send SE, empty", "0012 4145 00000000 00000000 00000002 00000000 9f746d49",
		Header{ULPDU: 0x12, Last: true, Op: OpSendSE, MSN: 2}},
	{"Send+Inv", "0012 4144 deadbe01 00000000 00000003 00000000 51563f58",
		Header{ULPDU: 0x12, Last: true, Op: OpSendInv, InvSTag: 0xdeadbe01, MSN: 3}},
	{"Write RTR", "000e c140 00000001 0000000000000000 ebd34c5f",
		Header{ULPDU: 0x0e, Tagged: true, Last: true, Op: OpWrite, STag: 1}},
	{"Write 13 B", "001b c140 0055aa00 0000000000010040 30313233343536373839616263 000000 a95833dd",
		Header{ULPDU: 0x1b, Tagged: true, Last: true, Op: OpWrite, STag: 0x0055aa00, TO: 0x10040}},
	{"Read Request 0 B", "002e 4141 00000000 00000001 00000001 00000000 00000000 0000000000000000 00000000 00000001 0000000000000000 ba10e3c9",
		Header{ULPDU: 0x2e, Last: true, Op: OpReadRequest, QN: 1, MSN: 1}},
	{"Read Response 0 B", "000e c142 00000000 0000000000000000 6975d6ca",
		Header{ULPDU: 0x0e, Tagged: true, Last: true, Op: OpReadResponse}},
	{"Immediate", "001a 4148 00000000 00000000 00000005 00000000 1122334400000000 5019868a",
		Header{ULPDU: 0x1a, Last: true, Op: OpImmediate, MSN: 5}},
	{"FetchAdd", "0046 414a 00000000 00000001 00000002 00000000 00000000 0000004d 00003333 0000000000008000 0000000000000001 0000000000000000 0000000000000000 ffffffffffffffff a49185a7",
		Header{ULPDU: 0x46, Last: true, Op: OpAtomicRequest, QN: 1, MSN: 2}},
	{"Atomic Response", "001e 414b 00000000 00000003 00000001 00000000 0000004d 000000000000002a 3609df7f",
		Header{ULPDU: 0x1e, Last: true, Op: OpAtomicResponse, QN: 3, MSN: 1}},
	{"Terminate 1/2/02", "002a 4147 00000000 00000002 00000001 00000000 1202c000 0022 4143 00000000 00000000 00000002 00000000 3a54d0a0",
		Header{ULPDU: 0x2a, Last: true, Op: OpTerminate, QN: 2, MSN: 1}},
	{"Terminate 2/0/02", "0016 4147 00000000 00000002 00000001 00000000 20020000 7fe42585",
		Header{ULPDU: 0x16, Last: true, Op: OpTerminate, QN: 2, MSN: 1}},
}

func TestFrames(t *testing.T) {
	for _, v := range frames {
		f := unhex(t, v.hex)
		var h Header
		if err := ParseHeader(f, &h); err != nil || h != v.h {
			t.Errorf("%s: %+v, %v; want %+v", v.name, h, err, v.h)
			continue
		}
		if FPDUSize(h.ULPDU) != len(f) {
			t.Errorf("%s: size %d, want %d", v.name, FPDUSize(h.ULPDU), len(f))
		}
		if !CheckCRC(f) {
			t.Errorf("%s: CRC", v.name)
		}
		got := make([]byte, len(f))
		for i := range got {
			got[i] = 0xee
		}
		n := h.Put(got)
		copy(got[n:], f[n:LenField+h.ULPDU])
		Seal(got, true)
		if !bytes.Equal(got, f) {
			t.Errorf("%s: encoded\n%x, want\n%x", v.name, got, f)
		}
		f[len(f)/2] ^= 4
		if CheckCRC(f) {
			t.Errorf("%s: CRC of a damaged frame is good", v.name)
		}
	}
}

// The examples of RFC 5044 figures 5 and 6: CRC over markers as well.
func TestCRCOfRFC5044(t *testing.T) {
	for _, s := range []string{
		"00000000 002a 4143 00000000 00000000 00000001 00000000" + strings.Repeat("00", 24) + "52239983",
		"002a 4143 00000000 00000000 00000002 00000000 00000014" + strings.Repeat("00", 24) + "84925898",
	} {
		if b := unhex(t, s); !CheckCRC(b) {
			t.Errorf("CRC of %x", b)
		}
	}
}

func TestHeaderErrors(t *testing.T) {
	for _, v := range []struct {
		hex  string
		want error
	}{
		{"", ErrShort},
		{"0017 41", ErrShort},
		{"000d c140 00000001 00000000000000", ErrShort},           // tagged, ULPDU of 13
		{"0011 4143 00000000 00000000 00000001 000000", ErrShort}, // untagged, 17
		{"0000 4143 00000000 00000000 00000001 00000000", ErrShort},
		{"0012 4043 00000000 00000000 00000001 00000000", ErrDDPVersion},
		{"0012 4243 00000000 00000000 00000001 00000000", ErrDDPVersion},
		{"0012 4103 00000000 00000000 00000001 00000000", ErrRDMAPVersion},
		{"0012 4140 00000000 00000000 00000001 00000000", ErrOpcode}, // untagged Write
		{"0012 c143 00000001 0000000000000000 00000000", ErrOpcode},  // tagged Send
	} {
		var h Header
		if err := ParseHeader(unhex(t, v.hex), &h); err != v.want {
			t.Errorf("%s: %v, want %v", v.hex, err, v.want)
		}
	}
}

func TestPad(t *testing.T) {
	for n := range 100 {
		if s := FPDUSize(n); s%4 != 0 || s < n+6 || s > n+9 {
			t.Errorf("FPDUSize(%d) = %d", n, s)
		}
	}
}

var startups = []struct {
	name, hex string
	m         MPA
}{
	{"Request", "4d504120494420526571204672616d65 5002 0004 8008c010",
		MPA{CRC: true, Rev: 2, Enhanced: true, IRD: 8, ORD: 16, P2P: true, RTRWrite: true, RTRRead: true}},
	{"Reply", "4d504120494420526570204672616d65 5002 0004 80108008",
		MPA{Reply: true, CRC: true, Rev: 2, Enhanced: true, IRD: 16, ORD: 8, P2P: true, RTRWrite: true}},
	{"siw's Request", "4d504120494420526571204672616d65 1002 0004 00010001",
		MPA{Rev: 2, Enhanced: true, IRD: 1, ORD: 1}},
	{"revision 1 with data", "4d504120494420526571204672616d65 0001 0003 616263",
		MPA{Rev: 1, Private: []byte("abc")}},
	{"rejection", "4d504120494420526570204672616d65 3002 0006 00000000 6e6f",
		MPA{Reply: true, Reject: true, Rev: 2, Enhanced: true, Private: []byte("no")}},
	{"markers", "4d504120494420526571204672616d65 8001 0000",
		MPA{Markers: true, Rev: 1}},
}

func sameMPA(a, b MPA) bool {
	p, q := a.Private, b.Private
	a.Private, b.Private = nil, nil
	return bytes.Equal(p, q) &&
		a.Reply == b.Reply && a.Markers == b.Markers && a.CRC == b.CRC && a.Reject == b.Reject && a.Rev == b.Rev &&
		a.Enhanced == b.Enhanced && a.IRD == b.IRD && a.ORD == b.ORD && a.P2P == b.P2P &&
		a.RTRSend == b.RTRSend && a.RTRWrite == b.RTRWrite && a.RTRRead == b.RTRRead
}

func TestMPA(t *testing.T) {
	for _, v := range startups {
		b := unhex(t, v.hex)
		m, err := ParseMPA(b, v.m.Reply)
		if err != nil || !sameMPA(m, v.m) {
			t.Errorf("%s: %+v, %v; want %+v", v.name, m, err, v.m)
		}
		if got := v.m.Append(nil); !bytes.Equal(got, b) {
			t.Errorf("%s: encoded %x, want %x", v.name, got, b)
		}
		if _, err := ParseMPA(b, !v.m.Reply); err != ErrMPAKey {
			t.Errorf("%s taken for the other kind: %v", v.name, err)
		}
	}
}

func TestMPAErrors(t *testing.T) {
	for _, v := range []struct{ name, hex, want string }{
		{"short", "4d50412049442052657120", "length"},
		{"not MPA", "474554202f20485454502f312e310d0a0d0a0d0a", "start-up frame"},
		{"PD_Length 513", "4d504120494420526571204672616d65 0002 0201", "limit 512"},
		{"longer than it says", "4d504120494420526571204672616d65 0002 0000 00", "says 20"},
		{"revision 3", "4d504120494420526571204672616d65 0003 0000", "revision"},
		{"revision 0", "4d504120494420526571204672616d65 0000 0000", "revision"},
		{"enhanced without block", "4d504120494420526571204672616d65 1002 0002 0000", "enhanced"},
	} {
		_, err := ParseMPA(unhex(t, v.hex), false)
		if err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("%s: %v", v.name, err)
		}
	}
}

func TestTerminate(t *testing.T) {
	send := Header{ULPDU: 34, Last: true, Op: OpSend, MSN: 2}
	for _, v := range []struct {
		name, hex string
		siw       bool // hint given
		want      Terminate
	}{
		{"1/2/02", "1202c000 0022 4143 00000000 00000000 00000002 00000000", false,
			Terminate{Code: TermNoBuffer, HasDDP: true, SegLen: 34, DDP: send}},
		{"2/0/02", "20020000", false, Terminate{Code: TermCRC}},
		{"siw 1/2/02", "21020300 0022 4143 00000000 00000000 00000002 00000000", false,
			Terminate{Code: TermNoBuffer, HasDDP: true, SegLen: 34, DDP: send, SIW: true}},
		{"siw 2/0/02", "02020000", false, Terminate{Code: TermCRC, SIW: true}},
		{"siw 0/2/06", "20060000", true, Terminate{Code: TermOpcode, SIW: true}},
		{"flags, no header", "1202c000 0022", false, Terminate{Code: TermNoBuffer}},
		{"header cut", "1202c000 0022 4143 00000000 00000000 00000002 000000", false, Terminate{Code: TermNoBuffer}},
	} {
		b := unhex(t, v.hex)
		got, err := ParseTerminate(b, v.siw)
		raw := got.Raw
		got.Raw = v.want.Raw
		if err != nil || got != v.want {
			t.Errorf("%s: %+v, %v; want %+v", v.name, got, err, v.want)
			continue
		}
		if v.want.SIW || v.want.HasDDP != (len(b) > 4) {
			continue
		}
		got.Raw = raw
		enc := make([]byte, MaxTerminate)
		if n := got.Put(enc); !bytes.Equal(enc[:n], b) || n != got.Len() {
			t.Errorf("%s: encoded %x, want %x", v.name, enc[:n], b)
		}
	}
	if _, err := ParseTerminate([]byte{1, 2, 3}, false); err == nil {
		t.Error("3 bytes parsed")
	}
}

// A Terminate quotes the frame as it came, reserved and wrong bits included.
func TestQuote(t *testing.T) {
	f := unhex(t, frames[5].hex) // Read Request
	f[3] = 0x31                  // RDMAP version 0, reserved bits
	term := Terminate{Code: TermRDMAPVersion}
	term.Quote(f)
	b := make([]byte, MaxTerminate)
	n := term.Put(b)
	if n != 4+2+18+28 || b[2] != 0xe0 || !bytes.Equal(b[6:24], f[2:20]) || !bytes.Equal(b[24:n], f[20:48]) {
		t.Errorf("quoted %x of %x", b[:n], f)
	}
	for k := range f {
		var term Terminate
		term.Quote(f[:k])
		if term.HasDDP != (k >= UntaggedLen) || term.HasReq != (k >= UntaggedLen+ReadReqLen) {
			t.Errorf("%d bytes quoted: %v, %v", k, term.HasDDP, term.HasReq)
		}
	}
}

func TestReadRequest(t *testing.T) {
	r := ReadRequest{SinkSTag: 1, SinkTO: 2, Size: 3, SrcSTag: 4, SrcTO: 5}
	var b [ReadReqLen]byte
	r.Put(b[:])
	if want := unhex(t, "00000001 0000000000000002 00000003 00000004 0000000000000005"); !bytes.Equal(b[:], want) {
		t.Errorf("encoded %x, want %x", b, want)
	}
	var got ReadRequest
	got.Parse(b[:])
	if got != r {
		t.Errorf("%+v, want %+v", got, r)
	}
}
