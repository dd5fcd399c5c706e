package rdstest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// MakePair makes two packet connections that can reach each other by their
// addresses, and a function that ends both.
type MakePair func() (a, b net.PacketConn, stop func(), err error)

// TestPacketConn checks a net.PacketConn that delivers reliably and in order:
// message boundaries, deadlines in the past, present and future, Close, concurrent
// and racing use. It has the part of golang.org/x/net/nettest.TestConn that fits
// datagrams, and more. Run it with the race detector.
func TestPacketConn(t *testing.T, makePair MakePair) {
	for _, tt := range []struct {
		name string
		f    func(*testing.T, net.PacketConn, net.PacketConn)
	}{
		{"BasicIO", testBasicIO},
		{"PingPong", testPingPong},
		{"Boundaries", testBoundaries},
		{"Addrs", testAddrs},
		{"RacyRead", testRacyRead},
		{"RacyWrite", testRacyWrite},
		{"PastTimeout", testPastTimeout},
		{"PresentTimeout", testPresentTimeout},
		{"FutureTimeout", testFutureTimeout},
		{"CloseUnblocks", testCloseUnblocks},
		{"UseAfterClose", testUseAfterClose},
		{"ConcurrentMethods", testConcurrentMethods},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b, stop, err := makePair()
			if err != nil {
				t.Fatalf("make pair: %v", err)
			}
			defer stop()
			tt.f(t, a, b)
		})
	}
}

var longAgo = time.Unix(233431200, 0)

// testBasicIO sends numbered messages of all sizes one way: each arrives once,
// whole, in order.
func testBasicIO(t *testing.T, a, b net.PacketConn) {
	const n = 5000
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for i := range n {
			if _, err := a.WriteTo(numbered(i), b.LocalAddr()); err != nil {
				t.Errorf("write %d: %v", i, err)
				_ = b.SetReadDeadline(longAgo)
				return
			}
		}
	})
	buf := make([]byte, 8192)
	for i := range n {
		k, _, err := b.ReadFrom(buf)
		if err != nil || !bytes.Equal(buf[:k], numbered(i)) {
			t.Errorf("message %d: %d bytes, %v", i, k, err)
			_ = a.SetWriteDeadline(longAgo)
			return
		}
	}
}

// numbered is message i: up to 5000 bytes that say so.
func numbered(i int) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(i))
	return append(b, bytes.Repeat([]byte{byte(i)}, i*31%4997)...)
}

func testPingPong(t *testing.T, a, b net.PacketConn) {
	var wg sync.WaitGroup
	defer wg.Wait()
	play := func(c net.PacketConn, to net.Addr, serve bool) {
		buf := make([]byte, 8)
		if serve {
			if _, err := c.WriteTo(make([]byte, 8), to); err != nil {
				t.Error(err)
			}
		}
		for last := uint64(0); last < 2000; {
			n, from, err := c.ReadFrom(buf)
			if err != nil || n != 8 || from.String() != to.String() {
				t.Errorf("%d bytes from %v, %v", n, from, err)
				return
			}
			last = binary.LittleEndian.Uint64(buf)
			binary.LittleEndian.PutUint64(buf, last+1)
			if _, err := c.WriteTo(buf, from); err != nil {
				t.Error(err)
				return
			}
		}
	}
	wg.Go(func() { play(a, b.LocalAddr(), true) })
	wg.Go(func() { play(b, a.LocalAddr(), false) })
}

// testBoundaries: one write is one read; empty messages count; what does not
// fit the reader's buffer is cut off and gone.
func testBoundaries(t *testing.T, a, b net.PacketConn) {
	for _, p := range []string{"first", "", "a long one", "x"} {
		if n, err := a.WriteTo([]byte(p), b.LocalAddr()); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}
	for _, want := range []string{"first", "", "a lon", "x"} {
		buf := make([]byte, 5)
		n, from, err := b.ReadFrom(buf)
		if err != nil || string(buf[:n]) != want || from.String() != a.LocalAddr().String() {
			t.Fatalf("read %q from %v, %v; want %q", buf[:n], from, err, want)
		}
	}
}

type otherAddr struct{}

func (otherAddr) Network() string { return "other" }
func (otherAddr) String() string  { return "other" }

func testAddrs(t *testing.T, a, b net.PacketConn) {
	if a.LocalAddr().Network() == "" || a.LocalAddr().String() == b.LocalAddr().String() {
		t.Errorf("local addresses %v and %v", a.LocalAddr(), b.LocalAddr())
	}
	for _, to := range []net.Addr{nil, otherAddr{}} {
		if _, err := a.WriteTo([]byte("x"), to); err == nil {
			t.Errorf("write to %v succeeded", to)
		}
	}
}

// testRacyRead: many readers with short deadlines and one writer.
func testRacyRead(t *testing.T, a, b net.PacketConn) {
	var readers, writer sync.WaitGroup
	done := make(chan struct{})
	writer.Go(func() {
		_ = a.SetWriteDeadline(time.Time{})
		for {
			select {
			case <-done:
				return
			default:
			}
			_ = a.SetWriteDeadline(time.Now().Add(time.Millisecond))
			if _, err := a.WriteTo(make([]byte, 1024), b.LocalAddr()); err != nil {
				checkTimeout(t, err)
			}
		}
	})
	for range 10 {
		readers.Go(func() {
			buf := make([]byte, 1024)
			_ = b.SetReadDeadline(time.Now().Add(time.Millisecond))
			for range 100 {
				if _, _, err := b.ReadFrom(buf); err != nil {
					checkTimeout(t, err)
					_ = b.SetReadDeadline(time.Now().Add(time.Millisecond))
				}
			}
		})
	}
	readers.Wait()
	close(done)
	writer.Wait()
}

// testRacyWrite: many writers with short deadlines and one reader.
func testRacyWrite(t *testing.T, a, b net.PacketConn) {
	var writers, reader sync.WaitGroup
	reader.Go(func() {
		buf := make([]byte, 1024)
		for {
			if _, _, err := b.ReadFrom(buf); err != nil {
				checkTimeout(t, err)
				return
			}
		}
	})
	for range 10 {
		writers.Go(func() {
			_ = a.SetWriteDeadline(time.Now().Add(time.Millisecond))
			for range 100 {
				if _, err := a.WriteTo(make([]byte, 1024), b.LocalAddr()); err != nil {
					checkTimeout(t, err)
					_ = a.SetWriteDeadline(time.Now().Add(time.Millisecond))
				}
			}
		})
	}
	writers.Wait()
	_ = b.SetReadDeadline(longAgo)
	reader.Wait()
}

// testPastTimeout: a deadline in the past fails calls at once, whatever there
// is to read, and is undone by a later one.
func testPastTimeout(t *testing.T, a, b net.PacketConn) {
	if _, err := b.WriteTo([]byte("x"), a.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	must(t, a.SetDeadline(longAgo))
	n, err := a.WriteTo(make([]byte, 100), b.LocalAddr())
	if n != 0 {
		t.Errorf("wrote %d bytes", n)
	}
	checkTimeout(t, err)
	n, _, err = a.ReadFrom(make([]byte, 100))
	if n != 0 {
		t.Errorf("read %d bytes", n)
	}
	checkTimeout(t, err)
	must(t, a.SetDeadline(time.Time{}))
	if n, _, err := a.ReadFrom(make([]byte, 100)); n != 1 || err != nil {
		t.Errorf("after the deadline was removed: %d, %v", n, err)
	}
	if _, err := a.WriteTo(nil, b.LocalAddr()); err != nil {
		t.Errorf("after the deadline was removed: %v", err)
	}
}

// testPresentTimeout: a deadline set to the past while calls wait ends them.
func testPresentTimeout(t *testing.T, a, b net.PacketConn) {
	var wg sync.WaitGroup
	defer wg.Wait()
	waiting := make(chan struct{}, 2)
	wg.Go(func() {
		waiting <- struct{}{}
		_, _, err := a.ReadFrom(make([]byte, 1024))
		checkTimeout(t, err)
	})
	wg.Go(func() {
		waiting <- struct{}{}
		var err error
		for err == nil { // until nothing more fits, or the deadline
			_, err = a.WriteTo(make([]byte, 1024), b.LocalAddr())
		}
		checkTimeout(t, err)
	})
	<-waiting
	<-waiting
	must(t, a.SetReadDeadline(longAgo))
	must(t, a.SetWriteDeadline(longAgo))
}

// testFutureTimeout: calls end when the deadline comes, not before, and again
// at once after it.
func testFutureTimeout(t *testing.T, a, b net.PacketConn) {
	const wait = 50 * time.Millisecond
	start := time.Now()
	must(t, a.SetDeadline(start.Add(wait)))
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _, err := a.ReadFrom(make([]byte, 1024))
		checkTimeout(t, err)
	})
	wg.Go(func() {
		var err error
		for err == nil {
			_, err = a.WriteTo(make([]byte, 1024), b.LocalAddr())
		}
		checkTimeout(t, err)
	})
	wg.Wait()
	if took := time.Since(start); took < wait {
		t.Errorf("ended after %v, before the deadline of %v", took, wait)
	}
	_, _, err := a.ReadFrom(make([]byte, 1024))
	checkTimeout(t, err)
}

// testCloseUnblocks: Close ends calls that wait, with net.ErrClosed.
func testCloseUnblocks(t *testing.T, a, b net.PacketConn) {
	var wg sync.WaitGroup
	waiting := make(chan struct{}, 4)
	for range 3 {
		wg.Go(func() {
			waiting <- struct{}{}
			_, _, err := a.ReadFrom(make([]byte, 1024))
			checkClosed(t, err)
		})
	}
	wg.Go(func() {
		waiting <- struct{}{}
		var err error
		for err == nil {
			_, err = a.WriteTo(make([]byte, 1024), b.LocalAddr())
		}
		checkClosed(t, err)
	})
	for range 4 {
		<-waiting
	}
	must(t, a.Close())
	wg.Wait()
}

func testUseAfterClose(t *testing.T, a, b net.PacketConn) {
	must(t, a.SetReadDeadline(longAgo)) // closed counts for more
	must(t, a.Close())
	_, _, err := a.ReadFrom(make([]byte, 1))
	checkClosed(t, err)
	_, err = a.WriteTo(make([]byte, 1), b.LocalAddr())
	checkClosed(t, err)
	checkClosed(t, a.SetDeadline(time.Now()))
	checkClosed(t, a.SetReadDeadline(time.Time{}))
	checkClosed(t, a.SetWriteDeadline(time.Time{}))
	checkClosed(t, a.Close())
	if a.LocalAddr() == nil {
		t.Error("no local address")
	}
}

// testConcurrentMethods calls everything at once.
func testConcurrentMethods(t *testing.T, a, b net.PacketConn) {
	var wg sync.WaitGroup
	for i := range 100 {
		p := fmt.Appendf(nil, "message %d", i)
		for _, f := range []func(){
			func() { _, _, _ = a.ReadFrom(make([]byte, 1024)) },
			func() { _, _ = a.WriteTo(p, b.LocalAddr()) },
			func() { _ = a.SetDeadline(time.Now().Add(10 * time.Millisecond)) },
			func() { _ = a.SetReadDeadline(longAgo) },
			func() { _ = a.SetWriteDeadline(longAgo) },
			func() { _ = a.LocalAddr() },
			func() { _, _ = b.WriteTo(p, a.LocalAddr()) },
		} {
			wg.Go(f)
		}
	}
	wg.Wait() // whichever deadline was set last, it passes
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func checkTimeout(t *testing.T, err error) {
	t.Helper()
	var ne net.Error
	if !errors.As(err, &ne) || !ne.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, want a timeout (os.ErrDeadlineExceeded)", err)
	}
}

func checkClosed(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v, want net.ErrClosed", err)
	}
}
