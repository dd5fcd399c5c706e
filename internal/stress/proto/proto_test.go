package proto

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
)

func sample() Options {
	o := Default()
	o.SendAddr, o.ReceiveAddr = [4]byte{10, 0, 0, 2}, [4]byte{10, 0, 0, 1}
	o.Tasks, o.Depth, o.Seconds = 3, 8, 60
	return o
}

// TestOptionsGolden compares with octets that were put together by hand from the format.
func TestOptionsGolden(t *testing.T) {
	short := "00000008" + "00000400" + "0000003f" + "00000000" + // depth, request, ack, RDMA
		"0a000002" + "0a000001" + "0fa0" + "0003" + "0000003c" + // addresses, port, tasks, seconds
		"000000000000" + "010000010000" + // summary rt trace verify params perf, cong once getmr fence cache meter
		"ff" + "00" + "00" + "00000001" + "00000000" + "00000000" // warnings simplex mode, vector alignment retries
	full := "00000001" + "00002000" + "00000400" + "00010000" + "01020304" + "05060708" + "1388" + "0008" + "00000000" +
		"010101010101" + "010001000101" + "00" + "01" + "02" + "00000010" + "00000040" + "00000005"
	long := hex.EncodeToString([]byte("2.0.7")) + strings.Repeat("00", 11)
	tos := sample()
	tos.TOS = 5
	for _, tc := range []struct {
		name string
		o    Options
		want string
	}{
		{"defaults", sample(), short},
		{"tos", tos, long + short + "0500"},
		{"everything", Options{Depth: 1, ReqSize: 8192, AckSize: 1024, RDMASize: 65536, SendAddr: [4]byte{1, 2, 3, 4}, ReceiveAddr: [4]byte{5, 6, 7, 8},
			Port: 5000, Tasks: 8, SummaryOnly: true, RealTime: true, Trace: true, Verify: true, ShowParams: true, ShowPerf: true,
			CongMonitor: true, UseGetMR: true, CacheMRs: true, KeyMeter: true, Simplex: true, RWMode: ModeWrite,
			Vector: 16, Alignment: 64, ConnectRetries: 5, TOS: 7, Async: true}, long + full + "0701"},
	} {
		got := tc.o.Append(nil)
		if hex.EncodeToString(got) != tc.want {
			t.Errorf("%s:\ngot  %x\nwant %s", tc.name, got, tc.want)
		}
		if want := map[bool]int{false: LegacySize, true: LongSize}[tc.o.Long()]; len(got) != want {
			t.Errorf("%s: %d bytes, want %d", tc.name, len(got), want)
		}
		// ReadOptions must not read the byte behind the options.
		r := bytes.NewReader(append(got, 'x'))
		back, err := ReadOptions(r)
		if err == nil && *back != tc.o {
			t.Errorf("%s: back %+v", tc.name, back)
		}
		if tc.o.RDMASize != 0 && tc.o.Vector*tc.o.RDMASize > MaxRDMA {
			if !errors.Is(err, ErrOptions) {
				t.Errorf("%s: %v", tc.name, err)
			}
		} else if err != nil || r.Len() != 1 {
			t.Errorf("%s: %v, %d bytes left", tc.name, err, r.Len())
		}
	}
}

func TestBadOptions(t *testing.T) {
	version := func(v string) []byte {
		b := make([]byte, LongSize)
		copy(b, v)
		return b
	}
	with := func(change func(o *Options)) []byte {
		o := sample()
		change(&o)
		return o.Append(nil)
	}
	good := with(func(*Options) {})
	for _, tc := range []struct {
		name string
		in   []byte
		want error
		text string
	}{
		{"nothing", nil, io.EOF, "the peer's options"},
		{"half a version", good[:10], io.ErrUnexpectedEOF, "the peer's options"},
		{"ends early", good[:LegacySize-1], io.ErrUnexpectedEOF, "end early"},
		{"long ends early", version(Version)[:LongSize-1], io.ErrUnexpectedEOF, "end early"},
		{"newer", version("2.0.8"), ErrVersion, "the peer's is 2.0.8, this one speaks 2.0.7"},
		{"older", version("1.5"), ErrVersion, "1.5"},
		{"letters", version("GET / HTTP/1.1\r\n"), ErrOptions, "depth"},
		{"zeros", make([]byte, LegacySize), ErrOptions, "a pipeline depth of 0"},
		{"ones", bytes.Repeat([]byte{0xff}, LegacySize), ErrOptions, "a pipeline depth of 4294967295"},
		{"depth", with(func(o *Options) { o.Depth = MaxDepth + 1 }), ErrOptions, "depth of 65536"},
		{"no tasks", with(func(o *Options) { o.Tasks = 0 }), ErrOptions, "0 tasks"},
		{"tasks", with(func(o *Options) { o.Tasks = MaxTasks + 1 }), ErrOptions, "1025 tasks"},
		{"slots", with(func(o *Options) { o.Tasks, o.Depth = MaxTasks, 1025 }), ErrOptions, "tasks times depth"},
		{"ports", with(func(o *Options) { o.Port, o.Tasks = 65533, 3 }), ErrOptions, "no ports above 65533"},
		{"port 0", with(func(o *Options) { o.Port = 0 }), ErrOptions, "no ports"},
		{"request", with(func(o *Options) { o.ReqSize = HeaderSize - 1 }), ErrOptions, "requests of 62 bytes, want 63 to 1048576"},
		{"long request", with(func(o *Options) { o.ReqSize = MaxMessage + 1 }), ErrOptions, "requests of"},
		{"ack", with(func(o *Options) { o.AckSize = 0 }), ErrOptions, "acks of 0 bytes"},
		{"mode", with(func(o *Options) { o.RWMode = 3 }), ErrOptions, "RDMA mode 3"},
		{"alignment", with(func(o *Options) { o.Alignment = 4097 }), ErrOptions, "alignment"},
		{"vector", with(func(o *Options) { o.RDMASize, o.Vector = 1, 513 }), ErrOptions, "513 pieces"},
		{"no vector", with(func(o *Options) { o.RDMASize, o.Vector = 1, 0 }), ErrOptions, "0 pieces"},
		{"wraps", with(func(o *Options) { o.RDMASize, o.Vector = 1<<31, 2 }), ErrOptions, "at most 1048576 bytes"},
		{"once and kept", with(func(o *Options) { o.RDMASize, o.UseOnce, o.CacheMRs = 8, true, true }), ErrOptions, "rdma-use-once"},
	} {
		o, err := ReadOptions(bytes.NewReader(tc.in))
		if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) || o != nil {
			t.Errorf("%s: %v, %v", tc.name, o, err)
		}
	}
}

func TestHeaderGolden(t *testing.T) {
	h := Header{Seq: 0x01020304, From: netip.MustParseAddrPort("10.0.0.1:4001"), To: netip.MustParseAddrPort("10.0.0.2:4002"),
		Index: 7, Op: Request, RDMA: Write, Addr: 0x1112131415161718, PhysAddr: 0x2122232425262728, Pattern: 0x3132333435363738,
		Key: 0x4142434445464748, Size: 65536, Vector: 16, Retry: 1}
	want := "01020304" + "0a000001" + "0a000002" + "0fa1" + "0fa2" + "0007" + "01" + "02" +
		"1112131415161718" + "2122232425262728" + "3132333435363738" + "4142434445464748" + "00010000" + "00000010" + "01" + "00" + "00"
	var b [HeaderSize + 1]byte
	h.Put(b[:])
	if hex.EncodeToString(b[:HeaderSize]) != want {
		t.Errorf("got  %x\nwant %s", b, want)
	}
	if back, err := Parse(b[:]); err != nil || back != h {
		t.Errorf("%+v, %v", back, err)
	}
}

func TestBadHeaders(t *testing.T) {
	good := make([]byte, HeaderSize)
	(&Header{From: netip.MustParseAddrPort("1.2.3.4:1"), To: netip.MustParseAddrPort("1.2.3.4:1"), Op: Ack}).Put(good)
	change := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	for _, tc := range []struct {
		in   []byte
		text string
	}{
		{nil, "0 bytes"}, {good[:HeaderSize-1], "62 bytes, its header alone has 63"},
		{change(18, 0), "op 0"}, {change(18, 3), "op 3"}, {change(19, 3), "RDMA op 3"},
	} {
		if _, err := Parse(tc.in); !errors.Is(err, ErrHeader) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%x: %v", tc.in, err)
		}
	}
}

// TestPattern checks values computed by hand: byte 0 is 11, byte 1 is 41·14+0 mod 256, and so
// on. Byte 256 is one more than byte 0 would make it.
func TestPattern(t *testing.T) {
	p := Payload(1024)
	for i, want := range []byte{11, 62, 105, 76} {
		if p[i] != want {
			t.Errorf("byte %d is %d, want %d", i, p[i], want)
		}
	}
	seen := map[byte]bool{}
	for _, b := range p[:256] {
		seen[b] = true
	}
	if len(seen) != 256 {
		t.Errorf("the first 256 bytes have %d values", len(seen))
	}
	if want := byte(41*(int(p[255])+3) + 1); p[256] != want {
		t.Errorf("byte 256 is %d, want %d", p[256], want)
	}
	if bytes.Equal(p[256:512], p[512:768]) {
		t.Error("exchanged blocks would not show")
	}
}

func TestMismatch(t *testing.T) {
	p := Payload(100)
	got := bytes.Clone(p)
	if err := ComparePayload(got, p); err != nil {
		t.Error(err)
	}
	got[7], got[99] = got[7]^1, 0
	var m *Mismatch
	if err := ComparePayload(got, p); !errors.As(err, &m) || m.Offset != 7 || m.Want != uint64(p[7]) || m.Got != uint64(p[7]^1) || m.Wrong != 2 || m.Of != 100 {
		t.Errorf("%v", err)
	}
	if err := ComparePayload(make([]byte, 101), make([]byte, 100)); !errors.As(err, &m) || m.Offset != 100 {
		t.Errorf("too long: %v", err)
	}
	b := make([]byte, 8*4+5)
	Fill(b, 0x1122334455667788)
	if err := Compare(b, 0x1122334455667788); err != nil {
		t.Error(err)
	}
	b[17] ^= 0x80
	if err := Compare(b, 0x1122334455667788); !errors.As(err, &m) || m.Offset != 16 || m.Wrong != 1 || m.Of != 4 || m.Got == m.Want {
		t.Errorf("%v", err)
	}
}

func FuzzOptions(f *testing.F) {
	o := sample()
	f.Add(o.Append(nil))
	o.TOS, o.RDMASize = 3, 4096
	f.Add(o.Append(nil))
	f.Add([]byte("2.0.8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := ReadOptions(bytes.NewReader(b))
		if err != nil {
			return
		}
		if o.Check() != nil {
			t.Fatalf("accepted: %+v", o)
		}
		again, err := ReadOptions(bytes.NewReader(o.Append(nil)))
		if err != nil || *again != *o {
			t.Fatalf("%+v became %+v, %v", o, again, err)
		}
	})
}

func FuzzHeader(f *testing.F) {
	b := make([]byte, HeaderSize)
	(&Header{Seq: 1, From: netip.MustParseAddrPort("1.2.3.4:1"), To: netip.MustParseAddrPort("1.2.3.4:1"), Op: Ack, RDMA: Read}).Put(b)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := Parse(b)
		if err != nil {
			return
		}
		var again [HeaderSize]byte
		h.Put(again[:])
		if !bytes.Equal(again[:61], b[:61]) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}
