package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/examples/link"
	"github.com/rdsd/rdsd/verbs"
)

// server runs a server for the test. Its output and error come when it ends.
type server struct {
	addr netip.AddrPort
	out  bytes.Buffer
	err  chan error
}

func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{err: make(chan error, 1)}
	addr := make(chan netip.AddrPort, 1)
	go func() {
		s.err <- run(append([]string{"-s", "-p", "0"}, args...), &s.out, io.Discard, func(a netip.AddrPort) { addr <- a })
	}()
	select {
	case s.addr = <-addr:
	case err := <-s.err:
		t.Fatal(err)
	}
	return s
}

// client runs a client against s to its end.
func (s *server) client(args ...string) (string, error) {
	var out bytes.Buffer
	err := run(append([]string{"-c", "-a", s.addr.Addr().String(), "-p", strconv.Itoa(int(s.addr.Port()))}, args...), &out, io.Discard, nil)
	return out.String(), err
}

const line0 = "ping data: rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr\n"
const line1 = "ping data: rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrs\n"

// TestPing: the two lines are those that the original prints.
func TestPing(t *testing.T) {
	s := startServer(t, "-v")
	out, err := s.client("-C", "2", "-v", "-V")
	if err != nil || out != line0+line1 {
		t.Errorf("client: %v, %q", err, out)
	}
	if err := <-s.err; err != nil || s.out.String() != "server "+line0+"server "+line1 {
		t.Errorf("server: %v, %q", err, &s.out)
	}
}

func TestSizes(t *testing.T) {
	for _, crc := range []string{"-crc=true", "-crc=false"} {
		for _, size := range []string{"23", "24", "64", "1000", "65534", "65535"} {
			s := startServer(t, "-S", size, crc)
			if _, err := s.client("-C", "70", "-S", size, "-V", crc); err != nil {
				t.Errorf("client, %s bytes: %v", size, err)
			}
			if err := <-s.err; err != nil {
				t.Errorf("server, %s bytes: %v", size, err)
			}
		}
	}
}

// TestPersistent: a server with -P goes on after each client, and after a bad one, too.
func TestPersistent(t *testing.T) {
	s := startServer(t, "-P", "-S", "100")
	for i := range 3 {
		if out, err := s.client("-C", "1", "-v", "-V"); err != nil || out != line0 {
			t.Fatalf("client %d: %v, %q", i, err, out)
		}
		if _, err := s.client("-C", "1", "-S", "101"); err == nil {
			t.Fatalf("client %d: a server of 100 bytes served 101", i)
		}
	}
}

func TestVerify(t *testing.T) {
	e, l, addr := rawServer(t)
	errs := make(chan error, 1)
	go func() {
		s := server{addr: addr}
		_, err := s.client("-C", "1", "-V")
		errs <- err
	}()
	accept(t, e, l)
	// Two answers, and never a WRITE.
	for range 2 {
		if _, err := l.recv(); err != nil {
			t.Fatal(err)
		}
		if err := l.send(info{}); err != nil {
			t.Fatal(err)
		}
	}
	for l.Take(idRecv) == nil {
	}
	if err := <-errs; err == nil || !strings.Contains(err.Error(), "data differ") {
		t.Errorf("client: %v", err)
	}
}

// TestServerGone: a client's error if the server goes within a ping.
func TestServerGone(t *testing.T) {
	e, l, addr := rawServer(t)
	errs := make(chan error, 1)
	go func() {
		s := server{addr: addr}
		_, err := s.client("-C", "1")
		errs <- err
	}()
	accept(t, e, l)
	if _, err := l.recv(); err != nil {
		t.Fatal(err)
	}
	l.QP.ToError()
	if err := <-errs; !errors.Is(err, link.ErrDisconnected) {
		t.Errorf("client: %v", err)
	}
}

// TestBadClients: a server's error for clients that break the protocol.
func TestBadClients(t *testing.T) {
	for _, c := range []struct {
		name string
		send func(l *conn) error
		want string
	}{
		{"short message", func(l *conn) error {
			return l.Do(verbs.SendWR{WRID: idSend, Op: verbs.OpSend, SGL: l.SGE(0, 5)})
		}, "client sent 5 bytes"},
		{"too large", func(l *conn) error { return l.send(info{link.IOVA, l.MR.RKey(), 65}) }, "has 65 bytes, want 1 to 64"},
		{"empty", func(l *conn) error { return l.send(info{link.IOVA, l.MR.RKey(), 0}) }, "has 0 bytes"},
		{"bad key", func(l *conn) error { return l.send(info{link.IOVA, l.MR.RKey() + 1, 64}) }, "status 10"},
		{"leaves within a ping", func(l *conn) error {
			if err := l.send(info{link.IOVA, l.MR.RKey(), 16}); err != nil {
				return err
			}
			if _, err := l.recv(); err != nil {
				return err
			}
			l.QP.Disconnect()
			return nil
		}, "within a ping: " + link.ErrDisconnected.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := startServer(t)
			l, err := newConn(newEnd(t), 64)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Free()
			if err := l.Connect(verbs.ConnectParam{Remote: s.addr}); err != nil {
				t.Fatal(err)
			}
			if err := c.send(l); err != nil {
				t.Fatal(err)
			}
			for l.Take(idRecv) == nil {
			}
			if err := <-s.err; err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("server: %v, want %q", err, c.want)
			}
		})
	}
}

func newEnd(t *testing.T) *link.End {
	t.Helper()
	e, err := link.Open(link.Options{CRC: true, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// rawServer is a server whose answers the test makes itself.
func rawServer(t *testing.T) (*link.End, *conn, netip.AddrPort) {
	t.Helper()
	e := newEnd(t)
	l, err := newConn(e, 64)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := e.Dev.Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return e, l, ln.Addr()
}

func accept(t *testing.T, e *link.End, l *conn) {
	t.Helper()
	req, err := e.Request(0)
	if err == nil {
		err = l.Accept(req, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "one of -s and -c"},
		{"-s -c", "one of -s and -c"},
		{"-c -a nowhere", "not an IP address"},
		{"-c -p 65536", "not a port"},
		{"-c -S 22", "want 23 to 65535"},
		{"-c -S 65536", "want 23 to 65535"},
		{"-c -C -1", "negative"},
		{"-c -timeout 0s", "-timeout"},
		{"-c x", "unexpected argument"},
		{"-c -w /no/such/folder/file", "no such file"},
	} {
		err := run(strings.Fields(c.args), io.Discard, io.Discard, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("rping %s: %v, want %q", c.args, err, c.want)
		}
	}
	if err := run([]string{"-h"}, io.Discard, io.Discard, nil); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
}

func TestNobodyThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := server{addr: l.Addr().(*net.TCPAddr).AddrPort()}
	l.Close()
	if _, err := s.client("-C", "1"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%v", err)
	}
}

// TestCaptureFile: -w records the conversation.
func TestCaptureFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "ping.pcapng")
	s := startServer(t)
	if _, err := s.client("-C", "1", "-w", name); err != nil {
		t.Fatal(err)
	}
	if err := <-s.err; err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(name)
	if err != nil || !bytes.Contains(b, []byte("MPA ID Req Frame")) || !bytes.Contains(b, []byte("rdma-ping-0: ")) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}
