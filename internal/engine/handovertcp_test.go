package engine

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/rdstcp"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/sim"
)

// passed is a listening socket that one engine after the other has.
type passed struct {
	*net.TCPListener
	mu   sync.Mutex // held while a connection is accepted, and while none may be
	left atomic.Bool
}

func (l *passed) AcceptTo(f func(net.Conn)) error {
	for {
		if err := l.acceptSoon(f); !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
}

func (l *passed) acceptSoon(f func(net.Conn)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left.Load() {
		return net.ErrClosed
	}
	_ = l.SetDeadline(time.Now().Add(time.Millisecond))
	c, err := l.Accept()
	if err == nil {
		f(c)
	}
	return err
}

func (l *passed) Close() error {
	l.left.Store(true)
	return nil
}

// tcpWorld is two hosts that reach each other by RDS/TCP, on real sockets and in real time.
type tcpWorld struct {
	*world
	sides [2]*opSide
	taken [2]int // messages that were given back
	lns   [2]*passed
	nets  [2]*rdstcp.Net
	begin time.Time
}

func newTCPWorld(t *testing.T) *tcpWorld {
	w := &tcpWorld{world: &world{t: t, net: sim.NewNetwork(1)}, begin: time.Now()}
	port := uint16(0)
	for i := range w.lns {
		ln, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(hostAddr(i), port)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		port = ln.Addr().(*net.TCPAddr).AddrPort().Port()
		w.lns[i] = &passed{TCPListener: ln}
	}
	w.tcp = func(e *Engine, i int) {
		n, err := rdstcp.New(rdstcp.Options{Port: port, Rand: e.cfg.Rand, Listen: func(context.Context, netip.AddrPort) (net.Listener, error) { return w.lns[i], nil }})
		if err != nil {
			t.Fatal(err)
		}
		w.nets[i] = n
		e.UseTCP(n, func(_, _ netip.Addr) bool { return true }, 4)
	}
	for i := range w.lns {
		w.es = append(w.es, w.boot(i, uint64(i)+1, Config{}))
	}
	t.Cleanup(func() {
		for _, n := range w.nets {
			n.Close()
		}
	})
	for i := range w.sides {
		w.sides[i] = w.opSide(i, 10)
		w.sides[i].open(w.sides[i].sock, 0, 0, hostAddr(1-i), 10)
	}
	return w
}

func (w *tcpWorld) turn() {
	for i, s := range w.sides {
		if s == nil {
			continue
		}
		for s.look(); w.taken[i] < len(s.msgs); w.taken[i]++ {
			s.gaveBack(s.msgs[w.taken[i]].RxID)
		}
	}
	for _, e := range w.es {
		now := int64(time.Since(w.begin)) + 1000
		e.Turn(now, Wall(now))
	}
}

func (w *tcpWorld) until(what string, done func() bool) {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); !done(); w.turn() {
		if time.Now().After(end) {
			w.t.Fatalf("never: %s; %+v, %+v", what, Conns(w.es[0]), Conns(w.es[1]))
		}
	}
}

// send submits the next message of side i: each is a byte longer than the one before.
func (w *tcpWorld) send(i int) {
	s := w.sides[i]
	s.submit(shm.Sub{Len: 1000 + s.nextID})
}

// replace has another engine take the place of host i's. A connection that is made in between
// waits in the listening socket.
func (w *tcpWorld) replace(i int) {
	ln := w.lns[i]
	ln.mu.Lock()
	w.es[i].Halt()
	w.until("an engine that stands still", w.es[i].Halted)
	old := w.nets[i]
	w.lns[i] = &passed{TCPListener: ln.TCPListener}
	w.lns[i].mu.Lock()
	w.succeed(i, func(d verbs.Device) verbs.Device { return d }, Config{}, w.sides[i])
	ln.left.Store(true)
	ln.mu.Unlock()
	old.Close()
	w.lns[i].mu.Unlock()
}

// TestHandoverTCP: engines with peers by RDS/TCP are replaced again and again, while messages are
// queued, on their way and half received. Each arrives once and in order. Sockets of a host whose
// engine is replaced are not told that the peer was away.
func TestHandoverTCP(t *testing.T) {
	for name, who := range map[string][]int{"the smaller address": {0}, "the larger address": {1}, "both": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			w := newTCPWorld(t)
			const n = 240 // as there are message ids
			for k := range n {
				w.send(0)
				w.send(1)
				for range k % 7 {
					w.turn()
				}
				if k%16 == 5 {
					if k < 48 { // these breaks are counted, however slow the machine is
						w.until("connections", func() bool { return w.es[0].peers.all[0].isUp && w.es[1].peers.all[0].isUp })
					}
					w.replace(who[k/16%len(who)])
				}
			}
			w.until("all messages", func() bool { return len(w.sides[0].msgs) >= n && len(w.sides[1].msgs) >= n })
			w.until("all acks", func() bool { return w.es[0].tx.queued.msgs+w.es[1].tx.queued.msgs == 0 })
			for i, s := range w.sides {
				for k, m := range s.msgs {
					if m.Len != uint32(1000+k) {
						t.Fatalf("host %d: message %d has %d bytes", i, k, m.Len)
					}
				}
				if p := w.es[i].peers.all[0]; len(s.msgs) != n || len(who) == 1 && (i == who[0]) != (p.downs <= 1) { // once: it had just met the peer
					t.Errorf("host %d: %d messages, the peer was down %d times", i, len(s.msgs), p.downs)
				}
			}
		})
	}
}

// TestHandoverTCPAccepted: an engine that has accepted a connection since it stands still is not
// handed over, because what has come on the connection would be lost. It may resume.
func TestHandoverTCPAccepted(t *testing.T) {
	w := newTCPWorld(t)
	w.es[1].Halt()
	w.until("an engine that stands still", w.es[1].Halted)
	w.send(0)
	w.until("a connection", func() bool { _, late := w.nets[1].Left(); return late > 0 })
	if err := w.es[1].Encode(handover.Write(handover.Newest), nil); !errors.Is(err, errAccepted) {
		t.Errorf("it is handed over: %v", err)
	}
	w.es[1].Resume()
	w.until("the message", func() bool { return len(w.sides[1].msgs) == 1 })
}
