package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/examples/link"
)

// server runs a server for the test. Its error comes when it ends.
type server struct {
	port string
	out  bytes.Buffer
	err  chan error
}

func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{err: make(chan error, 1)}
	addr := make(chan netip.AddrPort, 1)
	go func() {
		s.err <- run(append(args, "-p", "0"), &s.out, io.Discard, func(a netip.AddrPort) { addr <- a })
	}()
	select {
	case a := <-addr:
		s.port = strconv.Itoa(int(a.Port()))
	case err := <-s.err:
		t.Fatal(err)
	}
	return s
}

// client runs a client against s to its end.
func (s *server) client(args ...string) (string, error) {
	var out bytes.Buffer
	err := run(append(args, "-p", s.port, "127.0.0.1"), &out, io.Discard, nil)
	return out.String(), err
}

var result = regexp.MustCompile(`^\d+ bytes, \d+ messages, [0-9.]+ MB/s\n$`)

func TestBandwidth(t *testing.T) {
	for _, args := range []string{
		"write", "read", "send",
		"write -s 1 -n 5", "read -s 1 -n 5", "send -s 1 -n 5", "send -s 7 -n 6",
		"send -n 511", "send -n 512", "send -n 513", "send -s 100 -n 5000",
		"write -s 5000 -n 500 -crc=false", "read -s 5000 -n 500 -crc=false", "send -s 5000 -n 500 -crc=false",
		"write -s 8388608 -n 8", "read -s 8388608 -n 8", "send -s 8388608 -n 8",
	} {
		t.Run(args, func(t *testing.T) {
			s := startServer(t, strings.Fields(args)...)
			out, err := s.client(strings.Fields(args)...)
			if err != nil || !result.MatchString(out) {
				t.Errorf("client: %v, %q", err, out)
			}
			if err := <-s.err; err != nil || !result.MatchString(s.out.String()) {
				t.Errorf("server: %v, %q", err, &s.out)
			}
		})
	}
}

// TestSizesDiffer: the test ends with an error on both sides if their sizes differ.
func TestSizesDiffer(t *testing.T) {
	s := startServer(t, "send", "-s", "100")
	_, err := s.client("send", "-s", "101")
	if serr := <-s.err; err == nil || serr == nil {
		t.Errorf("client: %v; server: %v", err, serr)
	}
}

func TestArguments(t *testing.T) {
	for args, want := range map[string]string{
		"":                     "want write, read or send",
		"atomic":               "want write, read or send",
		"-s 5 write":           "want write, read or send",
		"write -s 0":           "want 1 to 8388608 bytes",
		"write -s 8388609":     "want 1 to 8388608 bytes",
		"write -n 4":           "want 5 to",
		"write -p 65536":       "not a port",
		"write -timeout 0s":    "more than 0",
		"write nowhere":        "not an IP address",
		"write 127.0.0.1 more": `unexpected argument "more"`,
		"write -w /no/such/f":  "no such file",
	} {
		if err := run(strings.Fields(args), io.Discard, io.Discard, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
	if err := run([]string{"write", "-h"}, io.Discard, io.Discard, nil); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
}

// TestNobody: a client's error if nobody listens, or the listener says nothing.
func TestNobody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{port: strconv.Itoa(l.Addr().(*net.TCPAddr).Port)}
	if _, err := s.client("write", "-timeout", "50ms"); err == nil {
		t.Error("a silent server served")
	}
	l.Close()
	if _, err := s.client("write"); err == nil {
		t.Error("served by nobody")
	}
}

// TestStrangePeer: a server's error for a client that breaks the exchange or leaves it.
func TestStrangePeer(t *testing.T) {
	hello := []string{"6.06" + strings.Repeat("\x00", 12), "\x00\x00\x10\x00", "\x00\x00\x00\x40", "3\x00"}
	for name, c := range map[string]struct {
		messages []string
		want     string
	}{
		"old":          {[]string{"5.60" + strings.Repeat("\x00", 12)}, `peer is perftest "5.60", want 5.70 or newer`},
		"no version":   {[]string{strings.Repeat("x", 16)}, "want 5.70 or newer"},
		"short":        {[]string{"6.06"}, "peer sent 4 bytes, want 16"},
		"long":         {[]string{hello[0], "\x00\x00\x10\x00\x00"}, "peer sent 5 bytes, want 4"},
		"large cycle":  {[]string{hello[0], "\x7f\x00\x10\x00"}, "cycle buffer"},
		"leaves":       {hello[:2], link.ErrDisconnected.Error()},
		"no more":      {hello, link.ErrDisconnected.Error()},
		"only control": {append(hello[:4:4], strings.Repeat("\x00", keysLen)), "no sign of the peer"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, "write", "-timeout", "200ms")
			e, err := newEnd(config{isClient: true, common: link.Options{CRC: true, Timeout: 10 * time.Second}})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			e.addr = netip.MustParseAddrPort("127.0.0.1:" + s.port)
			ctl, err := e.newControl()
			if err != nil {
				t.Fatal(err)
			}
			if err := ctl.Connect(e.to(e.Timeout)); err != nil {
				t.Fatal(err)
			}
			for _, m := range c.messages {
				if _, err = ctl.exchange([]byte(m)); err != nil {
					break
				}
			}
			if c.want == link.ErrDisconnected.Error() {
				ctl.QP.ToError()
			}
			if err := <-s.err; err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("server: %v, want %s", err, c.want)
			}
		})
	}
}

// TestServerGone: a client's error if the server goes in the middle of the exchange.
func TestServerGone(t *testing.T) {
	e, err := newEnd(config{common: link.Options{CRC: true, Timeout: 10 * time.Second}, addr: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ln, err := e.Dev.Listen(e.addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{port: strconv.Itoa(int(ln.Addr().Port())), err: make(chan error, 1)}
	go func() {
		_, err := s.client("write")
		s.err <- err
	}()
	c, err := e.newControl()
	if err != nil {
		t.Fatal(err)
	}
	if err := acceptNext(c.Link, e.Timeout); err != nil {
		t.Fatal(err)
	}
	if err := c.hello(); err != nil {
		t.Fatal(err)
	}
	c.QP.ToError()
	if err := <-s.err; !errors.Is(err, link.ErrDisconnected) && !errors.Is(err, io.EOF) {
		t.Errorf("client: %v", err)
	}
}

func TestCapture(t *testing.T) {
	name := filepath.Join(t.TempDir(), "capture")
	s := startServer(t, "write")
	if _, err := s.client("write", "-w", name); err != nil {
		t.Fatal(err)
	}
	if err := <-s.err; err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(name); err != nil || !bytes.Contains(b, []byte("MPA ID Req Frame")) || len(b) < 1000*64<<10 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// TestKeys: the layout is that of perftest 4.5 on amd64.
func TestKeys(t *testing.T) {
	want := make([]byte, keysLen)
	copy(want[4:], "\x00\x00\x00\x01")
	copy(want[8:], "\x00\x01\x02\x03")
	copy(want[16:], "\x11\x12\x13\x14")
	copy(want[24:], "\x21\x22\x23\x24\x25\x26\x27\x28")
	k := keys{qpn: 0x010203, rkey: 0x11121314, addr: 0x2122232425262728}
	got := bytes.Repeat([]byte{0xff}, keysLen)
	if k.put(got); !bytes.Equal(got, want) || parseKeys(got) != k {
		t.Errorf("%x, want %x; %+v", got, want, parseKeys(got))
	}
}

func FuzzExchange(f *testing.F) {
	f.Add([]byte(version), uint32(cycle))
	f.Add([]byte("5.69\x00"), uint32(maxCycle))
	f.Add([]byte("1e99"), uint32(maxCycle+1))
	f.Add([]byte("NaN"), uint32(0))
	f.Add([]byte("\x00"), uint32(1<<31))
	f.Fuzz(func(t *testing.T, text []byte, n uint32) {
		if err := checkVersion(text); err == nil {
			s, _, _ := strings.Cut(string(text), "\x00")
			if v, err := strconv.ParseFloat(s, 64); err != nil || !(v >= minVersion) {
				t.Errorf("version %q", s)
			}
		}
		got, err := checkCycle(binary.BigEndian.AppendUint32(nil, n))
		if (err == nil) != (n <= maxCycle) || err == nil && (got < cycle || got < int(n)) {
			t.Errorf("cycle %d: %d, %v", n, got, err)
		}
	})
}
