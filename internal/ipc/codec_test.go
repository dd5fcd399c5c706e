package ipc

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/shm"
)

var update = flag.Bool("update", false, "rewrite testdata/frames.golden")

var (
	v4 = netip.MustParseAddr("127.0.0.2")
	v6 = netip.MustParseAddr("fd00::2")
)

// samples has a frame of each type, with all fields different from zero.
func samples() []Body {
	p := shm.Params{SubEntries: 1, EventEntries: 2, MaxMsgs: 3, MaxRx: 4, Slots: 5, Cells: 6, SendWindows: 7, RecvWindows: 8}
	return []Body{
		&Hello{Version: Version, Features: 0x0102030405060708, Role: RoleCtl, Name: "blockstore", Params: p},
		&HelloOK{Version: Version, Features: 0x0102030405060708, Instance: 0x1112131415161718, MaxSockets: 0x21222324,
			MaxBuffers: 0x31323334, MaxMessage: 0x4142434445464748, MaxBytes: 0x5152535455565758, SpinNs: 0x6162636465666768, Params: p},
		&Bind{Addr: v4, Port: 0x1234, RcvBuf: 0x01020304},
		&Bind{Addr: v6, Port: 0x1234, RcvBuf: 0x01020304},
		&BindOK{Sock: 0x01020304, Inc: 0x11121314, Addr: v4, Port: 0x1234},
		&CloseSock{Sock: 0x01020304},
		&SetRcvBuf{Sock: 0x01020304, Bytes: 0x11121314},
		&Alloc{Size: 0x0102030405060708},
		&AllocOK{Buffer: 0x01020304, Size: 0x1112131415161718},
		&Free{Buffer: 0x01020304, Wait: 0x05060708},
		&Register{Sock: 0x01020304, Buffer: 0x11121314, Off: 0x2122232425262728, Len: 0x3132333435363738, Access: abi.RightRead | abi.UseOnce},
		&RegisterOK{Region: 0x01020304, Cookie: 0x1112131415161718},
		&Expose{Region: 0x01020304, Addr: v4, Port: 0x1234},
		&Release{Region: 0x01020304},
		&GrowSend{},
		&GrowSendOK{Windows: 0x01020304},
		&OK{},
		&Err{Errno: uint32(syscall.EADDRINUSE), Text: "port 5 is in use"},
		&Goodbye{Text: "broke a rule"},
		&Goodbye{Text: "shutting down", Ends: true},
		&Ctl{JSON: []byte(`{"kind":"status"}`)},
		&CtlPart{JSON: []byte(`{"a":`)},
		&CtlPart{Last: true, JSON: []byte(`1}`)},
		&Addrs{},
		&AddrsOK{Addrs: []netip.Addr{v4, v6}},
		&Import{Off: 0x0102030405060708, Len: 0x1112131415161718},
		&ImportOK{Buffer: 0x01020304},
		&TakeOver{NetNS: 0x0102030405060708, Token: []byte("token")},
		&TakeOverOK{Path: "/run/rdsd/rdsd.sock"},
	}
}

func TestFramesGolden(t *testing.T) {
	const path = "testdata/frames.golden"
	var b strings.Builder
	types := map[Type]bool{}
	for _, m := range samples() {
		types[m.Type()] = true
		fmt.Fprintf(&b, "%v\n%s", m.Type(), hex.Dump(AppendFrame(nil, 0xa1a2a3a4, m)))
	}
	for i := range Type(100) {
		if (newBody(i) != nil) != types[i] {
			t.Errorf("%v: known is not in the samples, or the other way round", i)
		}
	}
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("%s differs; got\n%s", path, b.String())
	}
}

func TestFrameRoundTrip(t *testing.T) {
	for _, m := range samples() {
		b := AppendFrame(nil, 7, m)
		id, got, err := ParseFrame(b)
		if err != nil || id != 7 || !reflect.DeepEqual(got, m) {
			t.Errorf("%v: %d %+v %v, want %+v", m.Type(), id, got, err, m)
		}
		// The body does not point into the receive buffer.
		for i := range b {
			b[i] = 0xee
		}
		if !reflect.DeepEqual(got, m) {
			t.Errorf("%v changed with the buffer it was read from", m.Type())
		}
	}
}

// A frame that is cut or too long is an error. Types of fixed length are cut at each
// length, types that end in a text only before the text.
func TestHalfFrames(t *testing.T) {
	for _, m := range samples() {
		b := AppendFrame(nil, 7, m)
		from := len(b)
		switch m := m.(type) {
		case *Err:
			from -= len(m.Text)
		case *Goodbye:
			from -= len(m.Text)
		case *Ctl:
			from -= len(m.JSON)
		case *CtlPart:
			from -= len(m.JSON)
		case *TakeOver:
			from -= len(m.Token)
		case *TakeOverOK:
			from -= len(m.Path)
		default:
			if _, _, err := ParseFrame(append(b[:from:from], 0)); !errors.Is(err, ErrProtocol) {
				t.Errorf("%v with a byte too many: %v", m.Type(), err)
			}
		}
		for n := range from {
			if _, got, err := ParseFrame(b[:n]); !errors.Is(err, ErrProtocol) || !errors.Is(err, syscall.EPROTO) {
				t.Errorf("%v cut to %d bytes: %+v, %v", m.Type(), n, got, err)
			}
		}
	}
}

func TestBadFrames(t *testing.T) {
	frame := func(m Body, at int, b byte) []byte {
		f := AppendFrame(nil, 1, m)
		f[at] = b
		return f
	}
	hello := &Hello{Name: "x"}
	for name, tc := range map[string]struct {
		b    []byte
		says string
	}{
		"type 0":                 {make([]byte, 8), "unknown frame type 0"},
		"type 27":                {[]byte{27, 0, 0, 0, 0, 0, 0, 0}, "unknown frame type 27"},
		"an address with a port": {frame(&AddrsOK{Addrs: []netip.Addr{v4}}, headerSize+4+16, 1), "an address with a port"},
		"too many addresses":     {frame(&AddrsOK{}, headerSize+1, 5), "too many addresses"},
		"flags":                  {frame(&OK{}, 2, 1), "unknown flags 0x1"},
		"part flags":             {frame(&CtlPart{}, 2, 3), "unknown flags 0x2"},
		"magic":                  {frame(hello, 8, 0), "bad magic"},
		"version 0":              {frame(hello, headerSize+4, 0), "version 0"},
		"version 0 back":         {frame(&HelloOK{}, headerSize, 0), "version 0"},
		"after the name":         {frame(hello, headerSize+20+MaxName-1, 'y'), "bad name"},
		"v4 not v4":              {frame(&Bind{Addr: v6}, headerSize+18, 1), "bad address"},
		"is4 of 2":               {frame(&Bind{Addr: v4}, headerSize+18, 2), "bad address"},
		"reserved":               {frame(&Bind{Addr: v4}, headerSize+19, 1), "reserved"},
		"long text":              {append(AppendFrame(nil, 1, &Goodbye{}), make([]byte, MaxText+1)...), "too long"},
		"long frame":             {make([]byte, MaxFrame+1), "frame of 65537 bytes"},
	} {
		if _, m, err := ParseFrame(tc.b); !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %+v, %v; want ErrProtocol with %q", name, m, err, tc.says)
		}
	}
}

func TestHelloOfAnotherVersion(t *testing.T) {
	// Only magic and version are the same in all versions.
	b := AppendFrame(nil, 1, &Hello{Version: 7})[:headerSize+8]
	_, m, err := ParseFrame(b)
	if err != nil {
		t.Fatal(err)
	}
	err = m.(*Hello).Check()
	var v *VersionError
	if !errors.As(err, &v) || *v != (VersionError{Client: 7, Daemon: Version}) || !errors.Is(err, syscall.EPROTONOSUPPORT) {
		t.Errorf("check of a client of version 7: %v", err)
	}
	if s := err.Error(); !strings.Contains(s, "version 7") || !strings.Contains(s, "version 3") {
		t.Errorf("the text does not name both versions: %s", s)
	}
	_, m, err = ParseFrame(AppendFrame(nil, 1, &HelloOK{Version: 9}))
	if err != nil || !errors.As(m.(*HelloOK).Check(), &v) || *v != (VersionError{Client: Version, Daemon: 9}) {
		t.Errorf("check of a daemon of version 9: %v, %v", err, v)
	}
	if (&Hello{}).Check() != nil || (&HelloOK{Version: Version}).Check() != nil {
		t.Error("this version does not pass")
	}
}

func TestLongTextsAreCut(t *testing.T) {
	long := strings.Repeat("é", MaxText)
	_, m, err := ParseFrame(AppendFrame(nil, 0, &Err{Errno: 5, Text: long}))
	if err != nil {
		t.Fatal(err)
	}
	if s := m.(*Err).Text; len(s) > MaxText || !strings.HasSuffix(s, "é...") {
		t.Errorf("text of %d bytes ends in %q", len(s), s[len(s)-8:])
	}
	_, m, err = ParseFrame(AppendFrame(nil, 1, &Hello{Name: strings.Repeat("n", 100)}))
	if err != nil || m.(*Hello).Name != strings.Repeat("n", MaxName) {
		t.Errorf("name %q, %v", m.(*Hello).Name, err)
	}
}

func FuzzFrame(f *testing.F) {
	for _, m := range samples() {
		f.Add(AppendFrame(nil, 1, m))
	}
	f.Add(AppendFrame(nil, 1, &Hello{Version: 2}))
	f.Fuzz(func(t *testing.T, b []byte) {
		id, m, err := ParseFrame(b)
		if err != nil {
			if !errors.Is(err, ErrProtocol) {
				t.Fatalf("not an ErrProtocol: %v", err)
			}
			return
		}
		switch m := m.(type) {
		case *Hello:
			if m.Check() != nil {
				return
			}
		case *HelloOK:
			if m.Check() != nil {
				return
			}
		}
		if again := AppendFrame(nil, id, m); !bytes.Equal(again, b) {
			t.Fatalf("%v: read from\n% x\nwritten as\n% x", m.Type(), b, again)
		}
	})
}
