package model

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	testSpin   = 20 * time.Microsecond
	testRegion = 4 << 20
)

// kept are the files of all tests. They stay open, because a relay within a host does not end.
var kept []*Memory

// attach makes the memory of one host and maps it.
func attach(t *testing.T) *Host {
	t.Helper()
	m, err := NewMemory(testRegion)
	if err != nil {
		t.Fatal(err)
	}
	kept = append(kept, m)
	var fds [Descriptors]int
	for i, f := range m.Files {
		fds[i] = int(f.Fd())
	}
	h, err := Attach(fds, testRegion)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// connected are two hosts whose relays have a TCP connection. The relays end with the test.
func connected(t *testing.T) (a, b *Host) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dialed, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	hosts := [2]*Host{attach(t), attach(t)}
	ended := make(chan error, len(hosts))
	var files []int
	for i, c := range []net.Conn{dialed, accepted} {
		f, err := c.(*net.TCPConn).File()
		c.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		files = append(files, int(f.Fd()))
		r := NewRelay(hosts[i], files[i])
		go func() { ended <- r.Run(testSpin) }()
	}
	t.Cleanup(func() {
		_ = unix.Shutdown(files[0], unix.SHUT_RDWR)
		for range hosts {
			if err := <-ended; !errors.Is(err, io.EOF) && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("a relay ended with %v", err)
			}
		}
	})
	return hosts[0], hosts[1]
}

// local are two hosts with one relay, which stays until the process ends.
func local(t *testing.T) (a, b *Host) {
	t.Helper()
	a, b = attach(t), attach(t)
	go func() { _ = NewLocalRelay(a, b).Run(testSpin) }()
	return a, b
}

// ways are the ways between two applications, and ends makes the applications.
var ways = []struct {
	name string
	ends func(t *testing.T, spinA, spinB time.Duration) (a, b *App)
}{
	{"two relays", func(t *testing.T, spinA, spinB time.Duration) (a, b *App) {
		from, to := connected(t)
		return from.App(spinA), to.App(spinB)
	}},
	{"one relay", func(t *testing.T, spinA, spinB time.Duration) (a, b *App) {
		from, to := local(t)
		return from.App(spinA), to.App(spinB)
	}},
	{"no relay", func(t *testing.T, spinA, spinB time.Duration) (a, b *App) {
		h := attach(t)
		return h.App(spinA), h.Other(spinB)
	}},
}

// sizes are those of the test's datagrams: most are small, and each edge occurs.
type sizes struct{ *rand.Rand }

func newSizes() sizes { return sizes{rand.New(rand.NewPCG(1, 2))} }

func (s sizes) next() int {
	switch s.IntN(64) {
	case 0:
		return 0
	case 1:
		return MaxPayload
	case 2, 3:
		return s.IntN(MaxPayload)
	}
	return 1 + s.IntN(200)
}

// fill is what the i-th datagram contains.
func fill(p []byte, i int) {
	for k := range p {
		p[k] = byte(i*31 + k)
	}
}

// sendAll sends n datagrams as runs of different lengths.
func sendAll(a *App, n int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s, p := newSizes(), make([]byte, MaxPayload)
	for i := range n {
		size := s.next()
		fill(p[:size], i)
		a.Send(p[:size])
		if i%7 == 0 || i == n-1 {
			a.Publish()
		}
	}
}

// checkAll receives n datagrams and compares each with what was sent. pause runs before each.
func checkAll(t *testing.T, a *App, n int, pause func(i int)) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s, p, want := newSizes(), make([]byte, MaxPayload), make([]byte, MaxPayload)
	for i := range n {
		pause(i)
		a.Wait()
		if h, _ := a.in.peek(); h.seq != uint64(i) || h.to != 1 {
			t.Fatalf("datagram %d has the header %+v", i, h)
		}
		k, ok := a.Receive(p)
		size := s.next()
		fill(want[:size], i)
		if !ok || !bytes.Equal(p[:k], want[:size]) {
			t.Fatalf("datagram %d of %d bytes came as %d bytes, or changed", i, size, k)
		}
		if i%5 == 0 {
			a.Release()
		}
	}
	a.Release()
	if _, ok := a.Receive(p); ok {
		t.Error("a datagram more than was sent")
	}
}

// Every datagram arrives once, whole and in order, over each kind of relay, while the ring's
// end is crossed many times, and also when the receiver pauses until all rings are full.
func TestFramesArriveWhole(t *testing.T) {
	for _, c := range ways {
		for _, pauses := range []bool{false, true} {
			name := c.name
			if pauses {
				name += ", the receiver pauses"
			}
			t.Run(name, func(t *testing.T) {
				a, b := c.ends(t, testSpin, 0)
				const n = 20000
				sent := make(chan struct{})
				go func() { defer close(sent); sendAll(a, n) }()
				pause := func(int) {}
				if pauses {
					pause = func(i int) {
						for i == n/4 && a.out.blocked.Load() == 0 {
							runtime.Gosched() // until the sender sleeps behind full rings
						}
					}
				}
				checkAll(t, b, n, pause)
				<-sent
			})
		}
	}
}

// Datagrams go both ways at the same time, one by one: each side sleeps and is woken.
func TestRoundTrips(t *testing.T) {
	for _, c := range ways {
		t.Run(c.name, func(t *testing.T) {
			a, b := c.ends(t, 0, 0)
			const n, size = 500, 64
			echoed := make(chan struct{})
			go func() {
				defer close(echoed)
				p := make([]byte, size)
				for range n {
					b.Wait()
					b.Receive(p)
					b.Release()
					b.Send(p)
					b.Publish()
				}
			}()
			p, got := make([]byte, size), make([]byte, size)
			for i := range n {
				fill(p, i)
				a.Send(p)
				a.Publish()
				a.Wait()
				if k, ok := a.Receive(got); !ok || k != size || !bytes.Equal(p, got) {
					t.Fatalf("round trip %d: %d bytes, %v", i, k, ok)
				}
				a.Release()
			}
			<-echoed
		})
	}
}

// A write of the region arrives in the same place of the other host's, whether it is read into its
// place or comes with others, and is said once. The writer waits while as many as it may have are
// in progress.
func TestWrites(t *testing.T) {
	from, to := connected(t)
	a, b := from.App(testSpin), to.App(testSpin)
	fill(from.region, 7)
	sizes := []int{1 << 20, 1, directBytes - 1, directBytes, 0, 3 * directBytes, 100, 2 << 20}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		off := 0
		for _, n := range sizes {
			a.Write(off, n, 2)
			off += n
		}
	}()
	p, off := make([]byte, 1), 0
	for i, n := range sizes {
		b.Wait()
		if k, ok := b.Receive(p); !ok || k != 0 {
			t.Fatalf("write %d: a datagram of %d bytes, %v", i, k, ok)
		}
		if !bytes.Equal(to.region[off:off+n], from.region[off:off+n]) {
			t.Errorf("write %d of %d bytes at %d: other bytes have arrived", i, n, off)
		}
		off += n
		b.Release()
	}
	if slices.ContainsFunc(to.region[off:], func(x byte) bool { return x != 0 }) {
		t.Error("bytes behind the last write")
	}
	<-sent
	if _, ok := b.Receive(p); ok {
		t.Error("a datagram more than writes")
	}
}

// A frame that a relay cannot take ends the relay with an error that says what is wrong with it.
func TestRelayRefuses(t *testing.T) {
	for _, c := range []struct {
		header
		want string
	}{
		{header{n: MaxPayload + 1}, "a frame of 65537 bytes from the other relay, at most 65536 are expected"},
		{writeHeader(testRegion-1, 2), "a write from the other relay beyond the region of 4194304 bytes"},
	} {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fds[0])
		defer unix.Close(fds[1])
		b := make([]byte, headerSize)
		c.put(b)
		if _, err := unix.Write(fds[1], b); err != nil {
			t.Fatal(err)
		}
		if err = NewRelay(attach(t), fds[0]).Run(0); err == nil || err.Error() != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// A datagram costs no allocation.
func TestNoAllocations(t *testing.T) {
	h := attach(t)
	a := h.App(0)
	in, out := h.relayEnds()
	p := make([]byte, 64)
	if n := testing.AllocsPerRun(1000, func() {
		a.Send(p)
		a.Publish()
		head, payload := in.peek()
		copy(out.reserve(head), payload)
		in.drop(head)
		in.release()
		out.publish()
		a.Wait()
		a.Receive(p)
		a.Release()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
