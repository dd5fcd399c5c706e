package afrds

import (
	"bytes"
	"encoding/hex"
	"math"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/krds"
)

// TestPollSet: poll waits for no condition that makes none of its events true, as the wait would
// end again and again.
func TestPollSet(t *testing.T) {
	to := netip.MustParseAddrPort("10.0.0.1:1")
	s := &Socket{armed: map[netip.Addr]uint64{to.Addr(): 1}, congested: map[netip.AddrPort]struct{}{to: {}}}
	for _, c := range []struct {
		events               int
		reads, space, relief bool
	}{
		{events: 0},
		{events: PollIn, reads: true, relief: true},
		{events: PollRdNorm, reads: true, relief: true},
		{events: PollOut, space: true},
		{events: PollWrBand, relief: true},
		{events: PollWrBand | PollIn | PollWrNorm, reads: true, space: true, relief: true},
	} {
		w := s.pollSet(c.events)
		if w.Message != c.reads || w.Completion != c.reads || w.ZeroCopy != c.reads || *krds.Congestion(&w) != c.reads || len(w.Op) == 1 != c.reads ||
			w.SendSpace != c.space || len(w.Relief) == 1 != c.relief {
			t.Errorf("events %#x: %+v", c.events, w)
		}
	}
}

func TestSockaddr(t *testing.T) {
	for _, c := range []struct{ addr, want string }{
		{"10.1.2.3:4000", "0200" + "0fa0" + "0a010203" + "0000000000000000"},
		{"[::ffff:10.1.2.3]:4000", "0200" + "0fa0" + "0a010203" + "0000000000000000"},
		{"[fd00::2]:1", "0a00" + "0001" + "00000000" + "fd000000000000000000000000000002" + "00000000"},
		{"[fe80::1%7]:1", "0a00" + "0001" + "00000000" + "fe800000000000000000000000000001" + "07000000"},
	} {
		ap := netip.MustParseAddrPort(c.addr)
		b := Sockaddr(ap)
		if hex.EncodeToString(b) != c.want {
			t.Errorf("%s: %x", c.addr, b)
		}
		back, err := ParseSockaddr(b)
		if want := netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()); err != nil || back != want {
			t.Errorf("%s comes back as %v, %v", c.addr, back, err)
		}
		if _, err := ParseSockaddr(b[:len(b)-1]); err != error(syscall.EINVAL) {
			t.Errorf("%s, a byte short: %v", c.addr, err)
		}
	}
	if _, err := ParseSockaddr(make([]byte, 128)); err != error(syscall.EAFNOSUPPORT) {
		t.Errorf("AF_UNSPEC: %v", err)
	}
}

func FuzzSockaddr(f *testing.F) {
	f.Add(Sockaddr(netip.MustParseAddrPort("10.1.2.3:4000")))
	f.Add(Sockaddr(netip.MustParseAddrPort("[fe80::1%7]:1")))
	f.Fuzz(func(t *testing.T, b []byte) {
		ap, err := ParseSockaddr(b)
		if err != nil {
			return
		}
		if again, err := ParseSockaddr(Sockaddr(ap)); err != nil || again != ap {
			t.Errorf("%x is %v, then %v, %v", b, ap, again, err)
		}
	})
}

func TestTimeval(t *testing.T) {
	tv := func(sec, usec int64) []byte {
		return host.AppendUint64(host.AppendUint64(nil, uint64(sec)), uint64(usec))
	}
	for _, c := range []struct {
		b    []byte
		want timeout
		err  error
	}{
		{tv(0, 0), timeout{}, nil},
		{tv(1, 500), timeout{d: time.Second + 500*time.Microsecond}, nil},
		{tv(-1, 0), timeout{poll: true}, nil},
		{tv(math.MaxInt64, 0), timeout{}, nil},
		{tv(1, 1e6), timeout{}, syscall.EDOM},
		{tv(1, -1), timeout{}, syscall.EDOM},
		{tv(1, 1)[:15], timeout{}, syscall.EINVAL},
	} {
		got, err := parseTimeval(c.b)
		if got != c.want || err != c.err {
			t.Errorf("%x: %+v, %v", c.b, got, err)
		}
		if err == nil && !c.want.poll && c.want.d != 0 && !bytes.Equal(got.encode(), c.b) {
			t.Errorf("%x comes back as %x", c.b, got.encode())
		}
	}
}

func TestDoubled(t *testing.T) {
	for _, c := range []struct {
		v    int32
		want int
	}{{106496, 212992}, {0, 4608}, {2304, 4608}, {2305, 4610}, {math.MaxInt32, math.MaxInt32 - 1}, {-1, math.MaxInt32 - 1}} {
		if got := doubled(c.v, minSndBuf); got != c.want {
			t.Errorf("%d: %d, want %d", c.v, got, c.want)
		}
	}
}

func TestMemory(t *testing.T) {
	a, b := make([]byte, 100), make([]byte, 50)
	m := memory{maps: []mapping{{at: 1000, mem: a}, {at: 2000, mem: b}}}
	for _, c := range []struct {
		at, n uint64
		mem   []byte
		off   int
	}{
		{1000, 100, a, 0}, {1099, 1, a, 99}, {2000, 50, b, 0}, {2049, 1, b, 49},
		{999, 1, nil, 0}, {1000, 101, nil, 0}, {1100, 1, nil, 0}, {1999, 2, nil, 0}, {2050, 1, nil, 0}, {0, 1, nil, 0},
		{1050, math.MaxUint64, nil, 0}, {math.MaxUint64, 1, nil, 0}, {math.MaxUint64, math.MaxUint64, nil, 0},
	} {
		x, off, err := m.find(c.at, c.n)
		switch {
		case c.mem == nil && err != error(syscall.EFAULT):
			t.Errorf("%d+%d: %v, want EFAULT", c.at, c.n, err)
		case c.mem != nil && (err != nil || &x.mem[0] != &c.mem[0] || off != c.off):
			t.Errorf("%d+%d: %d, %v", c.at, c.n, off, err)
		}
	}
	if err := m.write(1098, []byte{1, 2}); err != nil || a[98] != 1 || a[99] != 2 {
		t.Errorf("write: %v", err)
	}
	if got, err := m.read(1098, 2); err != nil || !bytes.Equal(got, []byte{1, 2}) {
		t.Errorf("read: %x, %v", got, err)
	}
}

func argsMessage(bytes uint64) []byte {
	return cmsg.Append(nil, cmsg.SOLRDS, cmsg.TypeRDMAArgs, (&cmsg.RDMAArgs{RemoteVec: cmsg.IOVec{Bytes: bytes}}).Append(nil))
}

// The sum of remote bytes counts, without overflow, and before anything else of
// the operations.
func TestCheckChain(t *testing.T) {
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for what, c := range map[string]struct {
		control []byte
		want    error
	}{
		"nothing":         {nil, nil},
		"1 MiB":           {argsMessage(1 << 20), nil},
		"1 MiB + 1":       {argsMessage(1<<20 + 1), syscall.EMSGSIZE},
		"two halves":      {join(argsMessage(1<<19), argsMessage(1<<19)), nil},
		"more in sum":     {join(argsMessage(1<<19), argsMessage(1<<19+1)), syscall.EMSGSIZE},
		"a sum of 0":      {join(argsMessage(1<<63), argsMessage(1<<63)), syscall.EMSGSIZE},
		"malformed after": {join(argsMessage(1<<30), make([]byte, 16)), syscall.EINVAL},
		"ARGS too short":  {cmsg.Append(nil, cmsg.SOLRDS, cmsg.TypeRDMAArgs, make([]byte, 55)), syscall.EINVAL},
		"other level":     {cmsg.Append(nil, 1, cmsg.TypeRDMAArgs, make([]byte, 3)), nil},
	} {
		if err := checkChain(c.control); err != c.want {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
}

func FuzzControl(f *testing.F) {
	f.Add(argsMessage(4))
	f.Add(cmsg.Append(argsMessage(4), cmsg.SOLRDS, cmsg.TypeZcopyCookie, make([]byte, 4)))
	k := New(nil)
	f.Fuzz(func(t *testing.T, control []byte) {
		// Whatever is sent: an errno the kernel has for it, or nothing.
		for _, err := range []error{checkChain(control), k.sizes(control), (&Socket{}).checkZeroCopy(msgZeroCopy, control)} {
			switch err {
			case nil, syscall.EINVAL, syscall.EMSGSIZE, syscall.EFAULT:
			default:
				t.Errorf("%x: %v", control, err)
			}
		}
	})
}

// What does not fit is cut off as the kernel does, and told.
func TestControls(t *testing.T) {
	data := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	for _, c := range []struct{ room, n, flags int }{
		{24, 24, 0}, {100, 24, 0}, {23, 23, syscall.MSG_CTRUNC}, {16, 16, syscall.MSG_CTRUNC}, {15, 0, syscall.MSG_CTRUNC}, {0, 0, syscall.MSG_CTRUNC},
	} {
		b := make([]byte, c.room)
		x := controls{buf: b}
		x.put(cmsg.SOLRDS, cmsg.TypeRDMADest, data)
		if x.n != c.n || x.flags != c.flags {
			t.Errorf("room %d: %d bytes, flags %#x", c.room, x.n, x.flags)
		}
		if m, _, more, err := cmsg.Next(b[:x.n]); c.n >= 16 && (err != nil || !more || !bytes.Equal(m.Data, data[:min(8, c.n-16)])) {
			t.Errorf("room %d: %+v, %v", c.room, m, err)
		}
	}
}

func TestBarrierArgs(t *testing.T) {
	a := BarrierArgs{Dest: netip.MustParseAddr("10.1.2.3"), Flags: 0x40, RDMAIDAddr: 0x1122, WaitRDMAID: 7}
	b := a.Append(nil)
	if hex.EncodeToString(b) != "0a010203"+"40000000"+"2211000000000000"+"0700000000000000" {
		t.Errorf("encoded %x", b)
	}
	var back BarrierArgs
	if err := back.Parse(b); err != nil || back != a {
		t.Errorf("%+v, %v", back, err)
	}
	for _, n := range []int{0, 23, 25} {
		if err := back.Parse(make([]byte, n)); err != error(syscall.EINVAL) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// The message tables' layouts are the kernel's: packed, 26 and 50 bytes.
func TestMessageTables(t *testing.T) {
	r := &ctl.Response{Queues: []ctl.MessageInfo{
		{Local: netip.MustParseAddr("127.0.0.1"), LocalPort: 0x102, Remote: netip.MustParseAddr("127.0.0.2"), RemotePort: 0x304, Lane: 5, Seq: 6, Bytes: 7},
		{Local: netip.MustParseAddr("fd00::1"), LocalPort: 1, Remote: netip.MustParseAddr("fd00::2"), RemotePort: 2, Seq: 8, Bytes: 9},
	}}
	var want []byte
	want = host.AppendUint64(want, 6)
	want = host.AppendUint32(want, 7)
	want = append(want, 127, 0, 0, 1, 127, 0, 0, 2, 1, 2, 3, 4, 0, 5)
	if got := messages4(nil, r, nil); string(got) != string(want) || len(got) != 26 {
		t.Errorf("IPv4: %x, want %x", got, want)
	}
	got := messages6(nil, r, nil)
	if len(got) != 2*50 || host.Uint64(got[50:]) != 8 || host.Uint32(got[58:]) != 9 || netip.AddrFrom16([16]byte(got[62:78])) != netip.MustParseAddr("fd00::1") ||
		netip.AddrFrom16([16]byte(got[78:94])) != netip.MustParseAddr("fd00::2") || got[95] != 1 || got[97] != 2 {
		t.Errorf("both: %x", got)
	}
	for opt, queue := range map[int]string{InfoSendMessages: "send", Info6RetransMsgs: "retrans", InfoRecvMessages: "recv"} {
		tab, ok := tableOf(opt)
		if q := tab.request(); !ok || q.Kind != ctl.KindQueues || q.Queue != queue || q.Limit != ctl.MaxLimit {
			t.Errorf("%d asks %+v", opt, q)
		}
	}
}
