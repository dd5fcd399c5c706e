package rdstest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
	"golang.org/x/sys/unix"
)

// TestRemoteRegion: a remote region behaves as a file of fixed size does, for ranges of
// all lengths, from many goroutines.
func TestRemoteRegion(t *testing.T) {
	const size = 9<<20 + 123
	between(t, func(t *testing.T, a, b *rds.Socket, ca, cb *rds.Client) {
		memory, _ := grant(t, a, b, cb, size)
		r := a.Remote(context.Background(), b.LocalAddrPort(), cookieOf(t, a, b, cb, memory), size)
		whole := make([]byte, size)
		fill := rand.NewChaCha8([32]byte{1})
		_, _ = fill.Read(whole)
		if n, err := r.WriteAt(whole, 0); n != size || err != nil {
			t.Fatalf("WriteAt: %d, %v", n, err)
		}
		if !bytes.Equal(memory.Bytes(), whole) {
			t.Fatal("the memory is not what was written")
		}
		got, err := io.ReadAll(io.NewSectionReader(r, 0, size))
		if err != nil || !bytes.Equal(got, whole) {
			t.Fatalf("ReadAll: %d bytes, %v", len(got), err)
		}
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(i), 0))
				for range 10 {
					off := rnd.Int64N(size)
					p := make([]byte, rnd.IntN(3<<20))
					want := whole[off:min(size, off+int64(len(p)))]
					n, err := r.ReadAt(p, off)
					if n != len(want) || (err == io.EOF) != (n < len(p)) || err != nil && err != io.EOF || !bytes.Equal(p[:n], want) {
						t.Errorf("ReadAt of %d at %d: %d, %v", len(p), off, n, err)
					}
				}
			})
		}
		wg.Wait()
		outside(t, r, whole)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if n, err := a.Remote(ctx, b.LocalAddrPort(), 1, size).ReadAt(make([]byte, 1), 0); n != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("a context that has ended: %d, %v", n, err)
		}
	})
}

// cookieOf registers the whole of memory again, and exposes it to the socket a.
func cookieOf(t *testing.T, a, b *rds.Socket, _ *rds.Client, memory *rds.Buffer) rds.Cookie {
	return regionOf(t, a, b, memory).Cookie()
}

// regionOf makes all of memory a region of b that is exposed to a.
func regionOf(t *testing.T, a, b *rds.Socket, memory *rds.Buffer) *rds.Region {
	g, err := b.Register(memory, 0, len(memory.Bytes()), rds.AllowRead|rds.AllowWrite)
	if err == nil {
		err = g.Expose(soon(t), a.LocalAddrPort())
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func outside(t *testing.T, r *rds.RemoteRegion, whole []byte) {
	size := int64(len(whole))
	if n, err := r.WriteAt(whole, 1); n != 0 || !errors.Is(err, rds.ErrInvalid) {
		t.Errorf("WriteAt beyond the region: %d, %v", n, err)
	}
	for _, off := range []int64{size, size + 1} {
		if n, err := r.ReadAt(make([]byte, 1), off); n != 0 || err != io.EOF {
			t.Errorf("ReadAt at %d: %d, %v", off, n, err)
		}
	}
	if n, err := r.ReadAt(make([]byte, 1), -1); n != 0 || !errors.Is(err, rds.ErrInvalid) {
		t.Errorf("ReadAt at -1: %d, %v", n, err)
	}
	if n, err := r.ReadAt(nil, 0); n != 0 || err != nil {
		t.Errorf("ReadAt of nothing: %d, %v", n, err)
	}
}

// TestRemoteRegionErrors: a call says how much it moved ahead of the first operation
// that failed.
func TestRemoteRegionErrors(t *testing.T) {
	between(t, func(t *testing.T, a, b *rds.Socket, ca, cb *rds.Client) {
		memory, _ := grant(t, a, b, cb, 1<<20)
		region := regionOf(t, a, b, memory)
		r := a.Remote(context.Background(), b.LocalAddrPort(), region.Cookie(), 2<<20) // twice what there is
		n, err := r.ReadAt(make([]byte, 2<<20), 0)
		if n != 1<<20 || !errors.Is(err, rds.RemoteError) {
			t.Errorf("read beyond the end: %d, %v", n, err)
		}
		if n, err = a.Remote(context.Background(), b.LocalAddrPort(), 12345, 8).ReadAt(make([]byte, 8), 0); n != 0 || !errors.Is(err, rds.RemoteError) {
			t.Errorf("read without a region: %d, %v", n, err)
		}
		// After Close alone a read could still run until this host has heard of it.
		if err := region.Release(soon(t)); err != nil {
			t.Fatal(err)
		}
		if n, err = r.ReadAt(make([]byte, 8), 0); n != 0 || err == nil {
			t.Errorf("read of a released region: %d, %v", n, err)
		}
	})
}

// TestRemoteRegionAway: a call to a host that is away ends with its context, and its
// memory is not used for the next.
func TestRemoteRegionAway(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	a, cb := ds[0].Bind(t, ds[0].Open(t), 0), ds[1].Open(t)
	b := ds[1].Bind(t, cb, 0)
	memory, _ := grant(t, a, b, cb, 1<<20)
	ctx, cancel := context.WithCancel(context.Background())
	r := a.Remote(ctx, b.LocalAddrPort(), cookieOf(t, a, b, cb, memory), 1<<20)
	if _, err := r.ReadAt(make([]byte, 8), 0); err != nil {
		t.Fatal(err)
	}
	if err := ds[1].Stop(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = a.Wait(soon(t), rds.WaitSet{Notice: true}) // PeerDown
		cancel()
	}()
	if n, err := r.ReadAt(make([]byte, 1<<20), 0); n != 0 || err == nil {
		t.Errorf("read of a host that is away: %d, %v", n, err)
	}
}

// TestRemoteOfOther: a region of another socket than the one that is named is neither read
// nor written, though it is granted.
func TestRemoteOfOther(t *testing.T) {
	between(t, func(t *testing.T, a, b *rds.Socket, ca, cb *rds.Client) {
		memory, _ := grant(t, a, b, cb, 2<<20)
		copy(memory.Bytes(), "untouched")
		region := regionOf(t, a, b, memory)
		other, err := cb.Bind(netip.AddrPortFrom(b.LocalAddrPort().Addr(), 0))
		if err != nil {
			t.Fatal(err)
		}
		r := a.Remote(context.Background(), other.LocalAddrPort(), region.Cookie(), 2<<20)
		for _, n := range []int{9, 2 << 20} {
			refused := func(what string, err error) {
				if !errors.Is(err, rds.RemoteError) || !errors.Is(err, unix.EACCES) {
					t.Errorf("%s of %d bytes: %v, want EACCES", what, n, err)
				}
			}
			p := make([]byte, n)
			_, err := r.ReadAt(p, 0)
			refused("read", err)
			_, err = r.WriteAt(make([]byte, n), 0)
			refused("write", err)
			if bytes.Contains(p, []byte("untouched")) || string(memory.Bytes()[:9]) != "untouched" {
				t.Errorf("%d bytes were moved", n)
			}
		}
		p := make([]byte, 9)
		if _, err := a.Remote(context.Background(), b.LocalAddrPort(), region.Cookie(), 2<<20).ReadAt(p, 0); err != nil || string(p) != "untouched" {
			t.Errorf("the owner's: %q, %v", p, err)
		}
	})
}
