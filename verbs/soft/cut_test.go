package soft

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/guard"
)

// TestCutMemory: memory that its owner has cut short is sent as zeros, and received into. It breaks no connection.
func TestCutMemory(t *testing.T) {
	page := os.Getpagesize()
	fd, err := unix.MemfdCreate("cut", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	cut := func(to int) {
		t.Helper()
		if err := unix.Ftruncate(fd, int64(to)); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	for _, receives := range []bool{false, true} {
		cut(4 * page)
		mem, err := unix.Mmap(fd, 0, 4*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Munmap(mem) }()
		g, err := guard.Add(mem, uint64(page))
		if err != nil {
			t.Skip(err)
		}
		defer g.Remove()
		for i := range mem {
			mem[i] = 7
		}
		cut(2 * page)
		want := bytes.Repeat([]byte{5}, 4*page)
		if !receives {
			copy(want[:2*page], bytes.Repeat([]byte{7}, 2*page))
			clear(want[2*page:])
		}
		from, to := mem, make([]byte, 4*page)
		if receives {
			from, to = bytes.Clone(want), mem
		}
		var s scratch
		for sent := 0; sent < len(from); {
			s.set(0, from[sent:])
			n, err := s.sendmsg(pair[0], 1)
			if err != nil || n == 0 {
				t.Fatalf("sent %d, then %d: %v", sent, n, err)
			}
			sent += n
		}
		for got := 0; got < len(to); {
			s.set(0, to[got:])
			n, again, err := s.recvmsg(pair[1], 1)
			if err != nil || again {
				t.Fatalf("received %d, then %v: %v", got, again, err)
			}
			got += n
		}
		if !bytes.Equal(to, want) || !g.Hit() {
			t.Errorf("receives %v: other bytes, or no hit: %v", receives, g.Hit())
		}
	}
}
