package fabric

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/netip"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

// play starts a role of tests/roles.c.
func play(t *testing.T, d *rdstest.Daemon, name string, peer netip.AddrPort) *program {
	t.Helper()
	return talk(t, command(build(t, ""), d, filepath.Join(build(t, ""), "roles"), d.Addr().String(), name, peer.Addr().String(), strconv.Itoa(int(peer.Port()))))
}

// TestMemory: remote memory, closing and attributes, of two endpoints of one process.
func TestMemory(t *testing.T) { sanitized(t, alone("memory"), "address,undefined") }

// TestOrder: a flag is never ahead of the data that was written before it, and a read not ahead of a write, though connections
// break again and again and operations are dropped.
func TestOrder(t *testing.T) {
	const least = 8
	ds := rdstest.StartDaemons(t, 2)
	target := play(t, ds[0], "target", netip.AddrPort{})
	port, err := strconv.Atoi(target.line())
	if err != nil {
		t.Fatal(err)
	}
	target.want("ready")
	writer := play(t, ds[1], "writer", netip.AddrPortFrom(ds[0].Addr(), uint16(port)))
	writer.want("ready")
	ended := make(chan struct{})
	go func() { // a program that finds a mistake ends
		defer close(ended)
		writer.out.Scan()
	}()
	for n := 0; n < least; {
		select {
		case <-ended:
			t.FailNow()
		case <-time.After(15 * time.Millisecond): // between two resets
		}
		b, err := ds[1].Reset(t.Context(), ds[0].Addr())
		if err != nil {
			t.Fatal(err)
		}
		n += b
	}
	writer.say("")
	<-ended
	writer.finish()
	target.say("")
	target.finish()
	if rounds, err := strconv.Atoi(writer.out.Text()); err != nil || rounds < least {
		t.Errorf("%d rounds, %v", rounds, err)
	}
}

// memory is a target that has the region of another socket, or one of its own, be used for what is written there. It returns how many
// writes came as messages, when the context has ended.
func memory(ctx context.Context, s *rds.Socket, cookie rds.Cookie) (writes int) {
	m := rds.Received{Payload: make([]byte, 1<<18)}
	for s.Recv(ctx, &m) == nil {
		var w wire
		if _, err := binary.Decode(m.Payload[:m.N], binary.NativeEndian, &w); err != nil || w.Kind != wWrite || w.Flags&last == 0 {
			continue
		}
		writes++
		ack := wire{Magic: 0x4672, Kind: wAck, ID: w.ID, Data: uint64(cookie)}
		b, err := binary.Append(nil, binary.NativeEndian, ack)
		if err != nil {
			return -1
		}
		if _, err := s.SendTo(b, m.Addr); err != nil {
			return -1
		}
	}
	return writes
}

// region makes memory of a socket that everybody may use.
func region(t *testing.T, s *rds.Socket, size int) (*rds.Buffer, rds.Cookie) {
	t.Helper()
	b, err := s.Client().Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Register(b, 0, size, rds.AllowRead|rds.AllowWrite)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Expose(t.Context(), netip.AddrPortFrom(netip.IPv6Unspecified(), 0)); err != nil {
		t.Fatal(err)
	}
	return b, r.Cookie()
}

// TestOthersCookie: a peer that names memory of another socket as its own does not get it written.
func TestOthersCookie(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	victim, peer := ds[1].Bind(t, ds[1].Open(t), 0), ds[1].Bind(t, ds[1].Open(t), 0)
	b, cookie := region(t, victim, 65536)
	ctx, cancel := context.WithCancel(t.Context())
	writes := make(chan int)
	go func() { writes <- memory(ctx, peer, cookie) }()
	p := play(t, ds[0], "twice", peer.LocalAddrPort())
	p.want("done")
	p.finish()
	cancel()
	if n := <-writes; n != 2 {
		t.Errorf("%d writes reached the peer, want 2", n)
	}
	if bytes.IndexByte(b.Bytes(), 'x') >= 0 {
		t.Error("memory of another socket was written")
	}
}

// TestOrderByTarget: what a peer says of where its memory is is made use of, but not by an endpoint that has an order of remote
// memory.
func TestOrderByTarget(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	for role, want := range map[string]int{"twice": 1, "ordered": 2} {
		peer := ds[1].Bind(t, ds[1].Open(t), 0)
		_, cookie := region(t, peer, 65536)
		ctx, cancel := context.WithCancel(t.Context())
		writes := make(chan int)
		go func() { writes <- memory(ctx, peer, cookie) }()
		p := play(t, ds[0], role, peer.LocalAddrPort())
		p.want("done")
		p.finish()
		cancel()
		if n := <-writes; n != want {
			t.Errorf("%s: %d writes were left to the peer, want %d", role, n, want)
		}
	}
}

// TestDeregisterWaits: the memory of an operation that waits for a host is not the program's until it has ended.
func TestDeregisterWaits(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for some seconds")
	}
	const limit = 6 * time.Second // that there is none is what this is about: there was one of 5 s
	ds := rdstest.StartDaemons(t, 2)
	peer := ds[1].Bind(t, ds[1].Open(t), 0)
	_, cookie := region(t, peer, 3<<20)
	go memory(t.Context(), peer, cookie)
	p := play(t, ds[0], "stuck", peer.LocalAddrPort())
	p.want("ready")
	if err := ds[1].Stop(); err != nil {
		t.Fatal(err)
	}
	p.say("")
	said := make(chan bool)
	go func() { said <- p.out.Scan() }()
	select {
	case ok := <-said:
		t.Fatalf("%q while an operation uses the memory (%v)", p.out.Text(), ok)
	case <-time.After(limit):
	}
	ds[1].Start(t)
	if !<-said || p.out.Text() != "closed" {
		t.Fatalf("the program says %q, want closed", p.out.Text())
	}
	p.want("ended")
	p.finish()
}

// TestCloseWithSignals: signals do not end the time that what an endpoint has sent has to arrive when the endpoint is closed.
func TestCloseWithSignals(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	peer := netip.AddrPortFrom(ds[1].Addr(), 4000)
	if err := ds[1].Stop(); err != nil { // so that it does not arrive
		t.Fatal(err)
	}
	p := play(t, ds[0], "parting", peer)
	p.want("waits")
	p.want("closed")
	p.finish()
}
