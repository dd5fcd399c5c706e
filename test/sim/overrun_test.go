package sim

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/rds"
)

// overrun is a run in which a kernel peer sends more to a socket than there is memory for.
// Sockets of this host wait to send to the same port.
type overrun struct {
	*kworld
	r       *rand.Rand
	user    *rds.Client
	deaf    *rds.Socket
	senders []*rds.Socket
	next    *rds.Socket
	got     map[netip.AddrPort]int
	kernel  int // messages of the kernel that the next owner got
}

const (
	overrunPort  = 150
	overrunEvent = "socket at port 150 closed: its owner does not read what this peer, a kernel, sends"
)

// TestSimOverrun has a kernel fill a socket that nobody reads until it ends. Its port is bound
// again, before or after the old socket is closed. The next owner starts without congestion and
// gets what the kernel and sockets of this host send to it. Sockets that waited to send to the
// port can send. Nothing is left at the end.
func TestSimOverrun(t *testing.T) {
	const name = "overrun"
	seeds := keptSeeds(t, name)
	for i := range max(scenarioSeeds(t), 20) { // each takes little time
		seeds = append(seeds, *first+uint64(i))
	}
	if *oneSeed != 0 {
		seeds = []uint64{*oneSeed}
	}
	saw := map[string]int{}
	for _, seed := range seeds {
		r := guarded(nil, func(*result) {
			o := newOverrun(t, seed)
			o.play()
			for k, n := range o.saw {
				saw[k] += n
			}
		})
		if r.err != nil {
			report(t, name, seed, r)
			return
		}
	}
	t.Logf("%d seeds: %d bound before the close, %d after; %d senders waited", len(seeds), saw["bound before"], saw["bound after"], saw["waited"])
	for _, what := range []string{"bound before", "bound after", "waited", "partial"} {
		if saw[what] == 0 && *oneSeed == 0 {
			t.Errorf("never saw %q", what)
		}
	}
}

func newOverrun(t *testing.T, seed uint64) *overrun {
	o := &overrun{kworld: newKworld(seed, 256<<10), got: map[netip.AddrPort]int{}}
	o.r = o.net.Rand(streamPlay)
	o.user = o.attach(1000)
	o.deaf = o.bind(o.user)
	must(o.deaf.SetRcvBuf(pick(o.r, 1000, 3000, 100_000)))
	for i := range 1 + o.r.IntN(3) {
		s, err := o.c.Bind(netip.AddrPortFrom(kwOurs, uint16(160+i)))
		must(err)
		o.senders = append(o.senders, s)
	}
	return o
}

func (o *overrun) bind(c *rds.Client) *rds.Socket {
	s, err := c.Bind(netip.AddrPortFrom(kwOurs, overrunPort))
	must(err)
	return s
}

func (o *overrun) port() netip.AddrPort { return netip.AddrPortFrom(kwOurs, overrunPort) }

func (o *overrun) play() {
	o.fillUp()
	before := o.r.IntN(2) == 0
	if before {
		o.saw["bound before"]++
		o.next = o.bind(o.owner())
	}
	o.pass(o.r.IntN(300))
	if o.r.IntN(2) == 0 {
		o.readAll()
	}
	if o.r.IntN(2) == 0 { // it may still have messages, and be full
		must(o.deaf.SetRcvBuf(pick(o.r, 500, 50_000)))
		o.pass(o.r.IntN(10))
	}
	if before {
		o.uncongested()
	}
	must(o.deaf.Close())
	if !before {
		o.saw["bound after"]++
		o.pass(o.r.IntN(300))
		o.next = o.bind(o.owner())
	}
	o.uncongested()
	o.serve()
	o.leave()
}

// uncongested checks that the port is not congested when its owner has read everything.
func (o *overrun) uncongested() {
	o.take()
	own, _ := engine.CongestionMap(o.e, kwOurs, kwKernel, 0, 0)
	for i := 0; own.Test(overrunPort); i++ {
		if i > 1000 {
			o.fatalf("the port stays congested for its next owner, who reads")
		}
		o.pass(1)
	}
}

// owner draws the process that binds the port next: the same one or another.
func (o *overrun) owner() *rds.Client {
	if o.r.IntN(2) == 0 {
		return o.c
	}
	return o.user
}

func (o *overrun) pass(steps int) {
	for range steps {
		o.step()
		o.take()
	}
}

// take reads the messages of the next owner. While the former owner still uses the memory of
// their user, the kernel can overrun the next one, too. Then take binds another.
func (o *overrun) take() {
	for o.next != nil {
		m := rds.Received{Payload: o.scr}
		switch err := o.next.Recv(rds.DontWait, &m); {
		case errors.Is(err, rds.ErrOverrun):
			o.saw["again"]++
			must(o.next.Close())
			o.next = o.bind(o.owner())
		case err != nil:
			return
		case m.Addr.Addr() == kwKernel:
			o.kernel++
		default:
			o.got[m.Addr]++
		}
	}
}

// fillUp has the kernel and sockets of this host send until the socket ends.
func (o *overrun) fillUp() {
	for i := 0; o.saw[overrunEvent] == 0; i++ {
		if i > 20_000 {
			o.fatalf("the socket holds %d messages of the kernel and goes on", i)
		}
		o.k.remote.Reset() // as if our map had not reached the kernel
		size := pick(o.r, 100, 4000, 4000, 60_000)
		if size > 4096 {
			o.saw["partial"]++
		}
		o.k.sendmsg(200, overrunPort, o.payload(uint64(i), size), 0, nil, uint64(i), nil)
		if o.r.IntN(8) == 0 {
			o.offer(o.senders[o.r.IntN(len(o.senders))])
		}
		o.pass(1 + o.r.IntN(10))
	}
}

// offer sends one message to the port. It returns false if the sender has to wait.
func (o *overrun) offer(s *rds.Socket) bool {
	m := rds.Message{Payload: make([]byte, 500), Addr: o.port()}
	_, err := s.Send(rds.DontWait, &m)
	switch {
	case err == nil:
		return true
	case errors.Is(err, rds.ErrCongested), errors.Is(err, rds.ErrWouldBlock):
		o.saw["waited"]++
		return false
	}
	o.fatalf("send to the port: %v", err)
	return false
}

// readAll reads all that the socket had received, and the error behind that.
func (o *overrun) readAll() {
	for i := 0; ; i++ {
		m := rds.Received{Payload: o.scr}
		switch err := o.deaf.Recv(rds.DontWait, &m); {
		case err == nil:
		case errors.Is(err, rds.ErrOverrun):
			return
		case !errors.Is(err, rds.ErrWouldBlock) || i > 200_000:
			o.fatalf("the socket that was overrun: %v", err)
		default:
			o.pass(1)
		}
	}
}

// serve checks that the kernel and every socket of this host reach the next owner.
func (o *overrun) serve() {
	sent := map[netip.AddrPort]bool{}
	kernel := false
	want := func() bool {
		for _, s := range o.senders {
			if o.got[s.LocalAddrPort()] == 0 {
				return false
			}
		}
		return o.kernel > 0
	}
	for i := 0; !want(); i++ {
		if i > 100_000 {
			o.fatalf("the port's next owner got %d messages of the kernel, %v of this host; sent %v", o.kernel, o.got, sent)
		}
		for _, s := range o.senders {
			if a := s.LocalAddrPort(); !sent[a] || o.toldNobody(s) {
				sent[a] = o.offer(s)
			}
		}
		if !kernel {
			kernel = o.k.sendmsg(201, overrunPort, o.payload(0, 100), 0, nil, 0, nil)
		}
		o.pass(1)
	}
}

// toldNobody reports whether s got a NoSocket notice: no socket was bound at the port, or
// another than the message was for. s may then send another message.
func (o *overrun) toldNobody(s *rds.Socket) bool {
	var n [8]rds.Notice
	for k := s.Notices(n[:]); k > 0; k = s.Notices(n[:]) {
		for _, x := range n[:k] {
			if x.Kind == rds.NoSocket {
				return true
			}
		}
	}
	return false
}

// leave closes everything and checks that only the kernel's connection is left.
func (o *overrun) leave() {
	must(o.next.Close())
	for _, s := range append(o.senders, o.socks...) {
		must(s.Close())
	}
	must(o.user.Close())
	must(o.c.Close())
	o.pass(2000)
	if left := engine.Leaks(o.e); len(left) > 0 {
		o.fatalf("left: %q", left)
	}
	if i := engine.Conns(o.e)[0]; i.Stats.ConnReset != 0 || i.Stats.RecvRefused != 0 {
		o.fatalf("%+v", i.Stats)
	}
}
