package conformance

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/afrds"
	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/rds"
)

// env is what the checks of a group share: daemons a and b, which know each other, and a
// process's client of each. a has two addresses.
type env struct {
	a, b   *host
	ka, kb *kernel
}

// kernel has the kernel's calls at one host.
type kernel struct {
	*afrds.Kernel
	h *host
	c *rds.Client
}

func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{a: newHost(t, []netip.Addr{newAddress(), newAddress()}), b: newHost(t, nil)}
	e.ka, e.kb = newKernel(t, e.a), newKernel(t, e.b)
	return e
}

// pair starts two daemons of its own for a check that treats them badly.
func pair(t *testing.T) *env {
	t.Helper()
	e := &env{a: newHost(t, nil), b: newHost(t, nil)}
	e.ka, e.kb = newKernel(t, e.a), newKernel(t, e.b)
	return e
}

func newKernel(t *testing.T, h *host) *kernel {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := rds.Open(ctx, rds.Options{Socket: h.sock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	k := afrds.New(c)
	k.SetControl(h.sock)
	return &kernel{k, h, c}
}

// sock is a socket of a check. Its methods fail the test if a call fails that must succeed. The
// socket is closed at the end of the test.
type sock struct {
	*afrds.Socket
	t *testing.T
	k *kernel
}

func (k *kernel) socket(t *testing.T) *sock {
	t.Helper()
	s, err := k.Socket(cmsg.AFRDS, syscall.SOCK_SEQPACKET, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &sock{s, t, k}
}

// bound returns a socket bound to a free port of the host.
func (k *kernel) bound(t *testing.T) *sock {
	t.Helper()
	s := k.socket(t)
	s.bind(k.h.at(0))
	return s
}

func (s *sock) bind(at netip.AddrPort) {
	s.t.Helper()
	ok(s.t, "bind", s.Bind(afrds.Sockaddr(at)))
}

// local returns the address that the socket is bound to.
func (s *sock) local() netip.AddrPort {
	s.t.Helper()
	name, err := s.Getsockname()
	ok(s.t, "getsockname", err)
	at, err := afrds.ParseSockaddr(name)
	ok(s.t, "getsockname", err)
	return at
}

// send sends p to another socket without waiting.
func (s *sock) send(p []byte, to netip.AddrPort, control ...byte) error {
	n, err := s.Sendmsg(p, afrds.Sockaddr(to), control, syscall.MSG_DONTWAIT)
	if err == nil && n != len(p) {
		s.t.Errorf("sendmsg of %d bytes returned %d", len(p), n)
	}
	return err
}

func (s *sock) mustSend(p []byte, to netip.AddrPort, control ...byte) {
	s.t.Helper()
	ok(s.t, "sendmsg", s.send(p, to, control...))
}

// deliver sends p, and waits for room.
func (s *sock) deliver(p []byte, to netip.AddrPort) {
	s.t.Helper()
	_, err := s.Sendmsg(p, afrds.Sockaddr(to), nil, 0)
	ok(s.t, "sendmsg", err)
}

// got is the result of one receive.
type got struct {
	afrds.Received
	data    []byte
	from    netip.AddrPort // of a message
	control cmsg.Recv
	raw     []byte // control data
}

// recvInto receives with this much room.
func (s *sock) recvInto(payload, control []byte, flags int) (got, error) {
	s.t.Helper()
	name := make([]byte, 28)
	r, err := s.Recvmsg(payload, name, control, flags)
	if err != nil {
		return got{}, err
	}
	g := got{Received: r, data: payload[:min(r.N, len(payload))], raw: control[:r.ControlLen]}
	if r.NameLen > 0 {
		if g.from, err = afrds.ParseSockaddr(name[:r.NameLen]); err != nil {
			s.t.Errorf("recvmsg: name %x: %v", name, err)
		}
	}
	if err := g.control.Parse(g.raw); err != nil && r.Flags&syscall.MSG_CTRUNC == 0 {
		s.t.Errorf("recvmsg: control %x: %v", g.raw, err)
	}
	return g, nil
}

// recv waits for the next message or control data.
func (s *sock) recv() got {
	s.t.Helper()
	s.timeo(soRcvTimeo, patience)
	g, err := s.recvInto(make([]byte, cmsg.MaxMessage), make([]byte, 512), 0)
	ok(s.t, "recvmsg", err)
	return g
}

// status waits for the status of one operation.
func (s *sock) status() cmsg.Notify {
	s.t.Helper()
	g := s.recv()
	if len(g.control.Status) != 1 || g.N != 0 || g.NameLen != 0 {
		s.t.Fatalf("received %d bytes from %v with %+v, want one status", g.N, g.from, g.control)
	}
	return g.control.Status[0]
}

// empty checks that there is nothing to receive.
func (s *sock) empty() {
	s.t.Helper()
	g, err := s.recvInto(make([]byte, 64), make([]byte, 256), syscall.MSG_DONTWAIT)
	if !errors.Is(err, syscall.EAGAIN) {
		s.t.Errorf("received %d bytes from %v, %+v, %v, want EAGAIN", g.N, g.from, g.control, err)
	}
}

// Options at SOL_SOCKET, as asm-generic/socket.h numbers them.
const (
	soReuseAddr = 2
	soSndBuf    = 7
	soRcvBuf    = 8
	soRcvTimeo  = 20
	soSndTimeo  = 21
	soTimestamp = 29
	soZeroCopy  = 60

	msgZeroCopy = 0x4000000
)

func i32(v int) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(v)) }

func (s *sock) set(level, opt int, val []byte) {
	s.t.Helper()
	ok(s.t, "setsockopt", s.Setsockopt(level, opt, val))
}

func (s *sock) sndbuf(n int) { s.t.Helper(); s.set(syscall.SOL_SOCKET, soSndBuf, i32(n)) }
func (s *sock) rcvbuf(n int) { s.t.Helper(); s.set(syscall.SOL_SOCKET, soRcvBuf, i32(n)) }

func (s *sock) timeo(opt int, d time.Duration) {
	s.t.Helper()
	tv := binary.NativeEndian.AppendUint64(nil, uint64(d/time.Second))
	s.set(syscall.SOL_SOCKET, opt, binary.NativeEndian.AppendUint64(tv, uint64(d%time.Second/time.Microsecond)))
}

// getint reads an int option.
func (s *sock) getint(level, opt int) int {
	s.t.Helper()
	var b [4]byte
	_, n, err := s.Getsockopt(level, opt, b[:])
	ok(s.t, "getsockopt", err)
	if n != 4 {
		s.t.Errorf("getsockopt %d returned %d bytes", opt, n)
	}
	return int(int32(binary.NativeEndian.Uint32(b[:])))
}

// poll returns which of events hold now.
func (s *sock) poll(events int) int {
	s.t.Helper()
	got, err := s.Poll(events, 0)
	ok(s.t, "poll", err)
	return got
}

// polled waits until one of events holds.
func (s *sock) polled(events int) int {
	s.t.Helper()
	got, err := s.Poll(events, patience)
	ok(s.t, "poll", err)
	if got == 0 {
		s.t.Fatalf("poll for %#x: nothing", events)
	}
	return got
}

func ok(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// want checks that a call failed with exactly this errno.
func want(t *testing.T, what string, err error, errno syscall.Errno) {
	t.Helper()
	if err != error(errno) {
		t.Errorf("%s: %v, want %v", what, err, errno)
	}
}

// nobody returns an address at which there is no daemon, so a peer that does not answer.
func nobody() netip.AddrPort { return netip.AddrPortFrom(newAddress(), 4000) }

// bytesOf returns n bytes whose values depend on their place.
func bytesOf(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)*7 + byte(i>>8) + seed
	}
	return b
}
