package tcp

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

// A frame that no Linux host sends costs its own connection, or nothing.
func TestTCPHostile(t *testing.T) {
	bigLen := tcpFrame(1, 5, 6, 0, "")
	bigLen[16], bigLen[17], bigLen[18], bigLen[19] = 0, 0x10, 0, 1 // 1 MiB and 1
	huge := bytes.Clone(bigLen)
	huge[16] = 0xff
	checksum := tcpFrame(1, 5, 6, 0, "x")
	checksum[30] = 0x55
	garbage := bytes.Repeat([]byte{0xff}, 100)
	for _, k := range []hostileBytes{
		{"1 MiB and a byte", bigLen, true, ""},
		{"4 GiB", huge, true, ""},
		{"garbage", garbage, true, ""},
		{"TLS", []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("r", 60)), true, ""},
		{"HTTP", []byte("GET / HTTP/1.1\r\nHost: 10.0.0.1:16385\r\nAccept: */*\r\n\r\n"), true, ""},
		{"a checksum is not looked at", checksum, false, "f:x z:end"},
		{"a short congestion map", tcpFrame(0, 0, 0, wire.FlagCong, strings.Repeat("\xff", 100)), false, "z:end"},
		{"a long congestion map", tcpFrame(0, 0, 0, wire.FlagCong, strings.Repeat("\xff", 8193)), false, "z:end"},
		{"an empty congestion map", tcpFrame(0, 0, 0, wire.FlagCong, ""), false, "z:end"},
		{"a map with another flag is a message", tcpFrame(1, 5, 6, wire.FlagCong|wire.FlagAckRequired<<2, "m"), false, "f:m z:end"},
		{"all other flags", tcpFrame(1, 5, 6, 0xfe&^wire.FlagRetransmitted, "x"), false, "f:x z:end"},
		{"from port 0 to port 0", tcpFrame(1, 0, 0, 0, "x"), false, "z:end"},
		{"an answer nobody asked for", tcpFrame(1, 0, 1, 0, "x", 5, 0, 8), false, "z:end"},
		{"65535 lanes", tcpFrame(1, 1, 0, 0, "", 5, 0xff, 0xff), false, "z:end"},
		{"no lanes", tcpFrame(1, 1, 0, 0, "", 5, 0, 0), false, "z:end"},
		{"three lanes", tcpFrame(1, 1, 0, 0, "", 5, 0, 3), false, "z:end"},
		{"an extension header that overruns", tcpFrame(1, 5, 6, 0, "x", 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3), false, "f:x z:end"},
		{"unknown extension headers", tcpFrame(1, 5, 6, 0, "x", 15, 14, 13, 12, 11, 10, 200, 1), false, "f:x z:end"},
		{"the last sequence", tcpFrame(1<<64-1, 5, 6, 0, "x"), false, "f:x z:end"},
		{"sequence 0", tcpFrame(0, 5, 6, 0, "x"), false, "f:x z:end"},
		{"an old one, flagged", append(tcpFrame(9, 5, 6, 0, "x"), tcpFrame(9, 5, 6, wire.FlagRetransmitted, "y")...), false, "f:x z:end"},
		{"an old one, not flagged", append(tcpFrame(9, 5, 6, 0, "x"), tcpFrame(3, 5, 6, 0, "y")...), false, "f:x f:y z:end"},
	} {
		for _, cut := range []int{1 << 20, 1, 7} {
			t.Run(k.what, func(t *testing.T) { k.run(t, cut) })
		}
	}
}

// hostileBytes are what a peer sends on a new connection.
type hostileBytes struct {
	what  string
	bytes []byte
	dead  bool   // they end the connection
	got   string // delivered, of them and of what comes behind
}

// run sends k in pieces of cut bytes.
func (k *hostileBytes) run(t *testing.T, cut int) {
	p := newTCPPuppet(t, false)
	s, lane, err := p.accept(40000)
	if err != nil || !p.up {
		t.Fatal(err)
	}
	all := append(bytes.Clone(k.bytes), tcpFrame(1000, 25, 6, 0, "end")...)
	for len(all) > 0 && !s.ended {
		n := min(cut, len(all))
		p.c.HandleData(p.now, lane, all[:n])
		all = all[n:]
	}
	p.run(3)
	if s.ended != k.dead || k.dead && (!s.abort || p.up || p.c.stats.ProtocolErrors != 1) {
		t.Errorf("ended %v, %+v", s.ended, p.c.stats)
	}
	if got := strings.Join(p.got, " "); got != k.got {
		t.Errorf("delivered %q, want %q", got, k.got)
	}
	if p.c.n&(p.c.n-1) != 0 || p.c.n > wire.MaxPaths {
		t.Errorf("%d lanes", p.c.n)
	}
	if k.dead { // the next connection is as good as any
		if s, lane, err = p.accept(40001); err != nil {
			t.Fatal(err)
		}
		p.c.HandleData(p.now, lane, tcpFrame(1, 5, 6, 0, "again"))
		if got := strings.Join(p.got, " "); got != "f:again" || s.ended {
			t.Errorf("then %q", got)
		}
	}
}

// FuzzTCPStream feeds any bytes in two cuts.
func FuzzTCPStream(f *testing.F) {
	f.Add(tcpFrame(1, 5, 6, 0, "hello"), 20)
	f.Add(append(tcpFrame(1, 1, 0, 0, "", 5, 0, 8, 8, 0), tcpFrame(0, 0, 0, wire.FlagCong, strings.Repeat("\x01", 8192))...), 100)
	f.Add(append(tcpFrame(2, 0, 1, 0, "", 6, 1, 2, 3, 4), tcpFrame(3, 9, 0, 0, "ping")...), 47)
	f.Add(bytes.Repeat([]byte{0xff}, 96), 48)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		p := newTCPPuppet(t, false)
		_, lane, _ := p.accept(40000)
		cut = min(max(cut, 0), len(b))
		p.c.HandleData(p.now, lane, b[:cut])
		if dst := p.c.Want(lane); len(dst) > 0 && cut < len(b) && p.c.lanes[lane].stream != nil {
			n := copy(dst, b[cut:])
			p.c.HandlePlaced(p.now, lane, n)
			cut += n
		}
		if p.c.lanes[lane].stream != nil {
			p.c.HandleData(p.now, lane, b[cut:])
		}
		p.run(3)
		if p.c.lanes[lane].stream != nil {
			p.c.HandleClosed(p.now, lane, nil)
		}
		if i := p.c.Info(); i.State == conn.Up || p.c.own.N > msg.MaxPongs+4 {
			t.Fatalf("%+v", i)
		}
	})
}
