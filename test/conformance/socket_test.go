package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/afrds"
	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/internal/stats"
)

func groupA() []statement {
	return []statement{
		{n: 1, kind: "k", by: byCalls, text: "socket(AF_RDS, SOCK_SEQPACKET, 0) works; another type or protocol fails ESOCKTNOSUPPORT", check: socketTypes},
		{n: 2, kind: "k", by: byCalls, text: "listen, accept, shutdown and socketpair fail EOPNOTSUPP", check: streamCallsFail},
		{n: 3, kind: "k", by: byCalls, text: "bind to 0.0.0.0, 255.255.255.255 or 224.0.0.1 fails EINVAL", check: bindToNoUnicastFails},
		{n: 4, kind: "k", by: byCalls, text: "bind with 15 bytes of sockaddr_in or 27 of sockaddr_in6 fails EINVAL", check: bindWithShortNameFails},
		{n: 5, kind: "k", by: byCalls, text: "bind to an address of another host fails EADDRNOTAVAIL", check: bindElsewhereFails},
		{n: 6, kind: "k", by: byCalls, text: "bind to port 1 fails EINVAL", check: bindToPortOneFails},
		{n: 7, kind: "k", by: byCalls, text: "a second bind of a socket fails EINVAL", check: secondBindFails},
		{n: 8, kind: "k", by: byCalls, text: "a taken address and port fails EADDRINUSE, SO_REUSEADDR or not; the port at another address is free", check: takenPortFails},
		{n: 9, kind: "k", by: byCalls, text: "port 0 takes a port from 2 to 65535, which getsockname tells; 65,534 exhaust an address and the next fails EADDRINUSE", check: portZeroTakesFreePort},
		{n: 10, kind: "k", by: byCalls, text: "SO_RDS_TRANSPORT reads 3 on a loopback address and -1 before bind", check: transportReads},
		{n: 11, kind: "k", by: byCalls, text: "SO_RDS_TRANSPORT can be chosen once, before bind; again or after bind it fails EOPNOTSUPP", check: transportChosenOnce},
		{n: 12, kind: "k", by: byCalls, text: "SO_RDS_TRANSPORT of 3 or -1, or not of 4 bytes, fails EINVAL", check: badTransportFails},
		{n: 13, kind: "k", by: byCalls, text: "bind to an IPv6 link-local address without a scope fails EINVAL", check: bindLinkLocalWithoutScopeFails},
		{n: 14, kind: "k", by: byCalls, text: "bind to ::ffff:a.b.c.d is bind to a.b.c.d", check: bindMappedIPv4},
		{n: 15, kind: "k", by: byCalls, text: "connect to 0.0.0.0 fails EDESTADDRREQ, to multicast EINVAL, to AF_UNSPEC EAFNOSUPPORT", check: connectToNoUnicastFails},
		{n: 16, kind: "k", by: byCalls, text: "connect sends nothing, succeeds for an unreachable peer, and may be repeated", check: connectSendsNothing},
		{n: 17, kind: "k", by: byCalls, text: "getpeername before connect fails ENOTCONN; getsockname before bind tells AF_UNSPEC in 16 bytes", check: namesBeforeBindAndConnect},
		{n: 18, kind: "k", by: byCalls, text: "a connected socket receives from any peer", check: connectedReceivesFromAny},
	}
}

func socketTypes(t *testing.T, e *env) {
	e.ka.socket(t)
	for _, c := range []struct{ typ, proto int }{{syscall.SOCK_STREAM, 0}, {syscall.SOCK_DGRAM, 0}, {syscall.SOCK_SEQPACKET, 1}} {
		_, err := e.ka.Socket(cmsg.AFRDS, c.typ, c.proto)
		want(t, fmt.Sprintf("socket type %d protocol %d", c.typ, c.proto), err, syscall.ESOCKTNOSUPPORT)
	}
}

func streamCallsFail(t *testing.T, e *env) {
	s := e.ka.bound(t)
	want(t, "listen", s.Listen(1), syscall.EOPNOTSUPP)
	want(t, "accept", s.Accept(), syscall.EOPNOTSUPP)
	want(t, "shutdown", s.Shutdown(syscall.SHUT_RDWR), syscall.EOPNOTSUPP)
	want(t, "socketpair", e.ka.Socketpair(cmsg.AFRDS, syscall.SOCK_SEQPACKET, 0), syscall.EOPNOTSUPP)
	to := e.kb.bound(t)
	s.mustSend([]byte("still"), to.local()) // none of the calls had an effect
	to.recv()
}

// bindOf binds a new socket and returns the error.
func bindOf(t *testing.T, k *kernel, addr []byte) error {
	t.Helper()
	return k.socket(t).Bind(addr)
}

func sockaddr(s string) []byte { return afrds.Sockaddr(netip.MustParseAddrPort(s)) }

func bindToNoUnicastFails(t *testing.T, e *env) {
	for _, a := range []string{"0.0.0.0:4000", "255.255.255.255:4000", "224.0.0.1:4000", "[::]:4000", "[ff02::1]:4000"} {
		want(t, a, bindOf(t, e.ka, sockaddr(a)), syscall.EINVAL)
	}
}

func bindWithShortNameFails(t *testing.T, e *env) {
	full := afrds.Sockaddr(e.a.at(0))
	want(t, "15 bytes", bindOf(t, e.ka, full[:15]), syscall.EINVAL)
	want(t, "27 bytes", bindOf(t, e.ka, sockaddr("[::1]:0")[:27]), syscall.EINVAL)
	want(t, "1 byte", bindOf(t, e.ka, full[:1]), syscall.EINVAL)
	ok(t, "16 bytes", bindOf(t, e.ka, full))
	ok(t, "more bytes", bindOf(t, e.ka, append(slices.Clone(full), 1, 2, 3)))
}

func bindElsewhereFails(t *testing.T, e *env) {
	want(t, "foreign", bindOf(t, e.ka, sockaddr("192.0.2.77:4000")), syscall.EADDRNOTAVAIL)
	want(t, "the other daemon's", bindOf(t, e.ka, afrds.Sockaddr(e.b.at(4000))), syscall.EADDRNOTAVAIL)
	s := e.ka.socket(t)
	s.set(cmsg.SOLRDS, cmsg.OptTransport, i32(cmsg.TransportTCP))
	want(t, "foreign, of a chosen transport", s.Bind(sockaddr("192.0.2.77:4000")), syscall.ENOPROTOOPT)
}

func bindToPortOneFails(t *testing.T, e *env) {
	want(t, "port 1", bindOf(t, e.ka, afrds.Sockaddr(e.a.at(1))), syscall.EINVAL)
}

func secondBindFails(t *testing.T, e *env) {
	s := e.ka.bound(t)
	before := s.local()
	want(t, "the same again", s.Bind(afrds.Sockaddr(before)), syscall.EINVAL)
	want(t, "another port", s.Bind(afrds.Sockaddr(e.a.at(0))), syscall.EINVAL)
	if s.local() != before {
		t.Errorf("bound to %v, was %v", s.local(), before)
	}
}

func takenPortFails(t *testing.T, e *env) {
	first := e.ka.bound(t)
	at := first.local()
	want(t, "taken", bindOf(t, e.ka, afrds.Sockaddr(at)), syscall.EADDRINUSE)
	s := e.ka.socket(t)
	first.set(syscall.SOL_SOCKET, soReuseAddr, i32(1))
	s.set(syscall.SOL_SOCKET, soReuseAddr, i32(1))
	want(t, "taken, SO_REUSEADDR", s.Bind(afrds.Sockaddr(at)), syscall.EADDRINUSE)
	s.bind(netip.AddrPortFrom(e.a.addrs[1], at.Port()))
	want(t, "taken, for another process", bindOf(t, newKernel(t, e.a), afrds.Sockaddr(at)), syscall.EADDRINUSE)
}

// portZeroTakesFreePort uses up the ports of an address, at a daemon of its own.
func portZeroTakesFreePort(t *testing.T, e *env) {
	h := newHost(t, nil)
	k := newKernel(t, h)
	const all = 65534
	var mu sync.Mutex
	ports := make(map[uint16]bool, all)
	low, exhausted := 0, 0
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for {
				s, err := k.Socket(cmsg.AFRDS, syscall.SOCK_SEQPACKET, 0)
				if err == nil {
					err = s.Bind(afrds.Sockaddr(h.at(0)))
				}
				if err != nil {
					mu.Lock()
					exhausted++
					mu.Unlock()
					want(t, "bind", err, syscall.EADDRINUSE)
					return
				}
				name, err := s.Getsockname()
				at, err2 := afrds.ParseSockaddr(name)
				mu.Lock()
				if err != nil || err2 != nil || at.Port() < 2 || ports[at.Port()] {
					t.Errorf("port %d: %v, %v, taken %v", at.Port(), err, err2, ports[at.Port()])
				}
				ports[at.Port()] = true
				if at.Port() < 1024 {
					low++
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	if len(ports) != all || low == 0 || exhausted == 0 {
		t.Errorf("%d ports, %d of them below 1024, want %d", len(ports), low, all)
	}
	eventually(t, "the daemon's count", func() error {
		n := h.counter(t, stats.Sockets)
		return errOf(n != all, "%d sockets", n)
	})
	_ = k.c.Close()
}

func transportReads(t *testing.T, e *env) {
	s := e.ka.socket(t)
	if v := s.getint(cmsg.SOLRDS, cmsg.OptTransport); v != -1 {
		t.Errorf("unbound: %d, want -1", v)
	}
	s.bind(e.a.at(0))
	if v := s.getint(cmsg.SOLRDS, cmsg.OptTransport); v != 3 {
		t.Errorf("on loopback: %d, want 3", v)
	}
}

func transportChosenOnce(t *testing.T, e *env) {
	s := e.ka.socket(t)
	s.set(cmsg.SOLRDS, cmsg.OptTransport, i32(2))
	want(t, "chosen again", s.Setsockopt(cmsg.SOLRDS, cmsg.OptTransport, i32(2)), syscall.EOPNOTSUPP)
	s.bind(e.a.at(0))
	if v := s.getint(cmsg.SOLRDS, cmsg.OptTransport); v != 2 {
		t.Errorf("chosen 2, reads %d", v)
	}
	want(t, "after bind", s.Setsockopt(cmsg.SOLRDS, cmsg.OptTransport, i32(0)), syscall.EOPNOTSUPP)
	want(t, "not chosen, after bind", e.ka.bound(t).Setsockopt(cmsg.SOLRDS, cmsg.OptTransport, i32(0)), syscall.EOPNOTSUPP)
}

func badTransportFails(t *testing.T, e *env) {
	s := e.ka.socket(t)
	for what, val := range map[string][]byte{"3": i32(3), "-1": i32(-1), "2 bytes": {2, 0}, "8 bytes": make([]byte, 8), "12 bytes": make([]byte, 12)} {
		want(t, what, s.Setsockopt(cmsg.SOLRDS, cmsg.OptTransport, val), syscall.EINVAL)
	}
	s.set(cmsg.SOLRDS, cmsg.OptTransport, i32(0)) // the calls before have chosen nothing
}

func bindLinkLocalWithoutScopeFails(t *testing.T, e *env) {
	want(t, "fe80::1", bindOf(t, e.ka, sockaddr("[fe80::1]:4000")), syscall.EINVAL)
	want(t, "fe80::1%1", bindOf(t, e.ka, sockaddr("[fe80::1%1]:4000")), syscall.EADDRNOTAVAIL)
}

// mapped returns an address as a sockaddr_in6 with an IPv4-mapped address.
func mapped(at netip.AddrPort) []byte {
	b := sockaddr("[::1]:1")
	b[2], b[3] = byte(at.Port()>>8), byte(at.Port())
	a16 := at.Addr().As16()
	copy(b[8:], a16[:])
	return b
}

func bindMappedIPv4(t *testing.T, e *env) {
	s := e.ka.socket(t)
	ok(t, "bind", s.Bind(mapped(e.a.at(0))))
	name, err := s.Getsockname()
	ok(t, "getsockname", err)
	at := s.local()
	if !slices.Equal(name, afrds.Sockaddr(at)) || len(name) != 16 || at.Addr() != e.a.addr() {
		t.Errorf("getsockname %x", name)
	}
	want(t, "the same as IPv4", bindOf(t, e.ka, afrds.Sockaddr(at)), syscall.EADDRINUSE)
	other := e.ka.bound(t)
	want(t, "an IPv4 one as mapped", bindOf(t, e.ka, mapped(other.local())), syscall.EADDRINUSE)
	other.mustSend([]byte("x"), at)
	if g := s.recv(); g.NameLen != 16 || g.from != other.local() {
		t.Errorf("received from %v in %d bytes", g.from, g.NameLen)
	}
}

func connectToNoUnicastFails(t *testing.T, e *env) {
	s := e.ka.socket(t)
	want(t, "0.0.0.0", s.Connect(sockaddr("0.0.0.0:1")), syscall.EDESTADDRREQ)
	want(t, "multicast", s.Connect(sockaddr("224.0.0.1:1")), syscall.EINVAL)
	want(t, "broadcast", s.Connect(sockaddr("255.255.255.255:1")), syscall.EINVAL)
	want(t, "AF_UNSPEC", s.Connect(make([]byte, 16)), syscall.EAFNOSUPPORT)
	want(t, "::", s.Connect(sockaddr("[::]:1")), syscall.EPROTOTYPE)
	want(t, "IPv6 multicast", s.Connect(sockaddr("[ff02::1]:1")), syscall.EPROTOTYPE)
	want(t, "15 bytes", s.Connect(sockaddr("127.0.0.1:1")[:15]), syscall.EINVAL)
	_, err := s.Getpeername()
	want(t, "getpeername", err, syscall.ENOTCONN)
}

func connectSendsNothing(t *testing.T, e *env) {
	s := e.ka.bound(t)
	to := nobody()
	for _, a := range []netip.AddrPort{to, e.b.at(4000), to} {
		ok(t, "connect", s.Connect(afrds.Sockaddr(a)))
	}
	name, err := s.Getpeername()
	ok(t, "getpeername", err)
	if !slices.Equal(name, afrds.Sockaddr(to)) {
		t.Errorf("getpeername %x", name)
	}
	if _, there := e.a.peer(t, to.Addr(), 0); there {
		t.Error("connect made a connection")
	}
	if _, err := s.Sendmsg(nil, nil, nil, syscall.MSG_DONTWAIT); err != nil {
		t.Errorf("send to it: %v", err)
	}
	eventually(t, "a connection, of the send", func() error {
		if _, there := e.a.peer(t, to.Addr(), 0); !there {
			return errors.New("none")
		}
		return nil
	})
}

func namesBeforeBindAndConnect(t *testing.T, e *env) {
	s := e.ka.socket(t)
	_, err := s.Getpeername()
	want(t, "getpeername", err, syscall.ENOTCONN)
	name, err := s.Getsockname()
	ok(t, "getsockname", err)
	if !slices.Equal(name, make([]byte, 16)) {
		t.Errorf("unbound: %x", name)
	}
	ok(t, "connect", s.Connect(sockaddr("[::1]:7")))
	name, err = s.Getsockname()
	ok(t, "getsockname", err)
	if !slices.Equal(name, sockaddr("[::]:0")) {
		t.Errorf("unbound, connected to IPv6: %x", name)
	}
}

func connectedReceivesFromAny(t *testing.T, e *env) {
	s, friend, other := e.ka.bound(t), e.kb.bound(t), e.kb.bound(t)
	ok(t, "connect", s.Connect(afrds.Sockaddr(friend.local())))
	payload := bytesOf(rand.IntN(100), 1)
	other.mustSend(payload, s.local())
	if g := s.recv(); g.from != other.local() || !slices.Equal(g.data, payload) {
		t.Errorf("received %x from %v", g.data, g.from)
	}
}
