package e2e

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
	"golang.org/x/sys/unix"
)

// rdsPort is the TCP port at which daemons listen for each other.
const rdsPort = 18634

// dialTCP connects to the daemon as a peer at the address from would.
func (h *host) dialTCP(from netip.Addr) *net.TCPConn {
	h.t.Helper()
	c, err := net.DialTCP("tcp", net.TCPAddrFromAddrPort(addrPortOf(from, 0)), net.TCPAddrFromAddrPort(h.at(rdsPort)))
	if err != nil {
		panic(err) // cannot happen on loopback
	}
	h.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// mpa returns a correct request of a peer that gives its address as claimed.
func (h *host) mpa(claimed netip.Addr) []byte {
	private := wire.AppendPrivate(nil, &wire.Private{Src: claimed, Dst: h.addr(), Major: 3, Minor: 1, MinorMask: 1, Ext: 1})
	m := iwarp.MPA{Rev: 2, Enhanced: true, P2P: true, RTRWrite: true, IRD: 8, ORD: 8, Private: private}
	return m.Append(nil)
}

// closed waits until the daemon has closed c.
func closed(c net.Conn) error {
	_, err := io.Copy(io.Discard, c)
	if err != nil && !errors.Is(err, unix.ECONNRESET) {
		return err
	}
	return nil
}

// TestGarbageTCP connects to a daemon without being a peer. Each connection must be closed and
// counted, and nothing else may be disturbed.
func TestGarbageTCP(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		h := hosts[0]
		l := startLoad(t, h, hosts[1], 5000)
		random := make([]byte, 10000)
		rng := rand.New(rand.NewPCG(3, 4))
		for i := range random {
			random[i] = byte(rng.Uint32())
		}
		stranger, liar := newAddress(t), newAddress(t)
		good := h.mpa(stranger)
		truncated := iwarp.MPA{Rev: 2, Enhanced: true, P2P: true, RTRWrite: true, IRD: 8, ORD: 8, Private: []byte("hello")}
		for _, tc := range []struct {
			name  string
			data  []byte
			close bool
			from  netip.Addr
		}{
			{"random", random, false, stranger},
			{"http", []byte("GET / HTTP/1.1\r\nHost: rds\r\n\r\n"), false, stranger},
			{"half a request", good[:len(good)-5], true, stranger},
			{"half a header", good[:11], true, stranger},
			{"private data of nobody", truncated.Append(nil), false, stranger},
			{"another's address", h.mpa(liar), false, stranger},
			{"the other daemon's address", h.mpa(hosts[1].addr()), false, stranger},
			{"early data", append(append([]byte{}, good...), random...), false, stranger},
		} {
			before := h.gauge(stats.BadHandshakes)
			c := h.dialTCP(tc.from)
			if _, err := c.Write(tc.data); err != nil {
				t.Fatal(err)
			}
			if tc.close {
				c.CloseWrite()
			}
			if err := closed(c); err != nil {
				t.Errorf("%s: not closed: %v", tc.name, err)
			}
			eventually(t, tc.name, func() error {
				if n := h.gauge(stats.BadHandshakes); n != before+1 {
					return fmt.Errorf("counted %d, before %d", n, before)
				}
				return nil
			})
		}
		// Many connections that say nothing: each is closed after a while, and peers still get
		// through.
		before := h.gauge(stats.BadHandshakes)
		var silent sync.WaitGroup
		const many = 20
		for i := range many {
			c := h.dialTCP(stranger)
			if i%2 == 0 {
				c.Write(good[:i])
			}
			silent.Go(func() {
				if err := closed(c); err != nil {
					t.Errorf("silence: not closed: %v", err)
				}
			})
		}
		hosts[1].restartConnection(t, h, l)
		silent.Wait()
		eventually(t, "silence", func() error {
			if n := h.gauge(stats.BadHandshakes); n != before+many {
				return fmt.Errorf("counted %d, before %d", n, before)
			}
			return nil
		})
		if n := h.logged("turned away") + h.logged("refused"); n == 0 || n > 8+many {
			t.Errorf("%d lines in the log:\n%s", n, h.Stderr.Tail())
		}
		l.progress(100)
		l.finish()
		l.audit.all(t, l.socks[0], l.socks[1])
	})
}

// restartConnection resets the connection and waits until the load goes on.
func (h *host) restartConnection(t *testing.T, to *host, l *load) {
	t.Helper()
	if err := h.reset(to); err != nil {
		t.Error(err)
	}
	l.progress(100)
}

// TestGarbageStream has a peer do the handshake and then send nonsense.
func TestGarbageStream(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		h := hosts[0]
		l := startLoad(t, h, hosts[1], 5000)
		var streams sync.WaitGroup
		for round := range 20 {
			streams.Go(func() { h.garbageStream(round, newAddress(t)) })
		}
		streams.Wait()
		if p := h.peer(hosts[1]); p.Resets > 0 {
			t.Errorf("an innocent connection was reset: %+v", p)
		}
		l.progress(100)
		l.finish()
		l.ops.onlySuccess(t)
		l.audit.all(t, l.socks[0], l.socks[1])
	})
}

// garbageStream is one such peer. The daemon must close its connection.
func (h *host) garbageStream(round int, from netip.Addr) {
	c := h.dialTCP(from)
	defer c.Close()
	if _, err := c.Write(h.mpa(from)); err != nil {
		h.t.Error(err)
		return
	}
	reply := make([]byte, 512)
	if _, err := io.ReadAtLeast(c, reply, iwarp.MPAHeaderLen); err != nil {
		h.t.Errorf("round %d: %v", round, err)
		return
	}
	rng := rand.New(rand.NewPCG(5, uint64(round)))
	junk := make([]byte, 2000)
	for i := range junk {
		junk[i] = byte(rng.Uint32())
	}
	if round%2 == 0 {
		// The length is right, the header is wrong.
		junk[0], junk[1] = 0, 60
	}
	c.Write(junk)
	if round%4 == 3 {
		c.CloseWrite()
	}
	if err := closed(c); err != nil {
		h.t.Errorf("round %d: not closed: %v", round, err)
	}
}

// TestGarbageUnix sends garbage to the control socket.
func TestGarbageUnix(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		h := hosts[0]
		h.expected = []string{"client ended"}
		l := startLoad(t, h, hosts[1], 5000)
		hello := ipc.AppendFrame(nil, 1, &ipc.Hello{Version: ipc.Version, Role: ipc.RoleClient, Name: "garbage"})
		fds := make([]int, 200)
		for i := range fds {
			fds[i] = 0
		}
		for _, tc := range []struct {
			name    string
			packets [][]byte
			fds     []int
		}{
			{"random", [][]byte{[]byte("hello, daemon, how are you?")}, nil},
			{"half a header", [][]byte{hello[:5]}, nil},
			{"half a hello", [][]byte{hello[:len(hello)-3]}, nil},
			{"hello of no magic", [][]byte{frame(1, 1, make([]byte, len(hello)-8))}, nil},
			{"unknown type", [][]byte{frame(99, 1, nil)}, nil},
			{"no hello", [][]byte{ipc.AppendFrame(nil, 1, &ipc.Bind{Addr: h.addr()})}, nil},
			{"unknown role", [][]byte{ipc.AppendFrame(nil, 1, &ipc.Hello{Version: ipc.Version, Role: 7})}, nil},
			{"descriptors", [][]byte{hello}, fds},
			{"garbage after hello", [][]byte{hello, []byte("garbage")}, nil},
			{"an answer", [][]byte{hello, ipc.AppendFrame(nil, 2, &ipc.OK{})}, nil},
			{"impossible sizes", [][]byte{ipc.AppendFrame(nil, 1, &ipc.Hello{Version: ipc.Version, Role: ipc.RoleClient, Params: hugeParams()})}, nil},
			{"too long", [][]byte{make([]byte, ipc.MaxFrame+1)}, nil},
			{"silence", nil, nil},
		} {
			counted, logged := h.gauge(stats.ClientViolations), h.logged("client ended")
			c := h.dialRaw()
			for _, p := range tc.packets {
				var oob []byte
				if tc.fds != nil {
					oob = unix.UnixRights(tc.fds...)
				}
				if _, _, err := c.WriteMsgUnix(p, oob, nil); err != nil && !errors.Is(err, unix.EPIPE) && !(tc.fds != nil && errors.Is(err, unix.EPERM)) { // SO_PASSRIGHTS
					t.Errorf("%s: %v", tc.name, err)
				}
			}
			drainUnix(c)
			eventually(t, tc.name, func() error {
				if n, m := h.gauge(stats.ClientViolations), h.logged("client ended"); n != counted+1 || m != logged+1 {
					return fmt.Errorf("counted %d, before %d; logged %d, before %d", n, counted, m, logged)
				}
				return nil
			})
			c.Close()
		}
		l.progress(50)
		neverReset(t, hosts...)
		l.finish()
		l.audit.all(t, l.socks[0], l.socks[1])
	})
}

// drainUnix reads to the end and closes the descriptors that it receives.
func drainUnix(c *net.UnixConn) {
	buf, oob := make([]byte, ipc.MaxFrame), make([]byte, 4096)
	for {
		n, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
		if scms, e := unix.ParseSocketControlMessage(oob[:oobn]); e == nil {
			for i := range scms {
				fds, _ := unix.ParseUnixRights(&scms[i])
				for _, fd := range fds {
					unix.Close(fd)
				}
			}
		}
		if err != nil && !errors.Is(err, unix.ECONNRESET) || n == 0 {
			return
		}
	}
}
