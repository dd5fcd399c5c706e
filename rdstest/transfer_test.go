package rdstest_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

// pattern fills b with bytes that tell their place.
func pattern(b []byte, salt byte) {
	for i := range b {
		b[i] = byte(i) ^ byte(i>>8) ^ byte(i>>16) ^ salt
	}
}

// scattered is n bytes of buf in segments of different lengths.
func scattered(buf *rds.Buffer, n int) (local []rds.Segment) {
	for at, i := 0, 0; at < n; i++ {
		g := rds.Segment{Buf: buf, Off: at, Len: min(1+i*i%70_000, n-at)}
		local = append(local, g)
		at += g.Len
	}
	return local
}

// granted is the cookie of a region of memory whose grant has reached the host of a.
func granted(t *testing.T, a, b *rds.Socket, cb *rds.Client, memory *rds.Buffer) rds.Cookie {
	t.Helper()
	cookie := cookieOf(t, a, b, cb, memory)
	if _, err := b.SendTo([]byte("granted"), a.LocalAddrPort()); err != nil { // the grant goes ahead of it
		t.Fatal(err)
	}
	if _, _, err := a.RecvFrom(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	return cookie
}

// TestLongTransfer: a read and a write of more than one operation moves are one call with one
// outcome. While the connection is reset again and again that may be that it was dropped.
func TestLongTransfer(t *testing.T) {
	const size = 24<<20 + 12345
	d := rdstest.StartDaemons(t, 2)
	ca, cb := d[0].Open(t), d[1].Open(t)
	a, b := d[0].Bind(t, ca, 0), d[1].Bind(t, cb, 0)
	far, err := cb.Alloc(size + 100)
	if err != nil {
		t.Fatal(err)
	}
	near, err := ca.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	cookie := granted(t, a, b, cb, far)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	op := &rds.RDMA{Cookie: cookie, RemoteOff: 77, Local: scattered(near, size)}
	// round writes and reads everything. What says that it worked has worked.
	round := func(salt byte, may error) {
		t.Helper()
		pattern(near.Bytes(), salt)
		want := bytes.Clone(near.Bytes())
		err := a.RDMAWrite(ctx, b.LocalAddrPort(), op)
		if err == nil && !bytes.Equal(far.Bytes()[77:][:size], want) {
			t.Fatal("the remote memory differs")
		}
		if err == nil {
			clear(near.Bytes())
			if err = a.RDMARead(ctx, b.LocalAddrPort(), op); err == nil && !bytes.Equal(near.Bytes(), want) {
				t.Fatal("the local memory differs")
			}
		}
		if err != nil && (may == nil || !errors.Is(err, may)) {
			t.Fatal(err)
		}
		if n := a.Completions(make([]rds.Completion, 8)); n != 0 {
			t.Fatalf("%d completions are left", n)
		}
	}
	round(1, nil)
	var wg sync.WaitGroup
	over, stop := context.WithCancel(ctx)
	wg.Go(func() { reset(over, d[0], b.LocalAddrPort().Addr()) })
	for i := range byte(10) {
		round(2+i, rds.Dropped)
	}
	stop()
	wg.Wait()
	round(20, rds.Dropped) // the last reset may still come
	round(21, nil)
	if err := near.Free(); err != nil {
		t.Errorf("operations are left: %v", err)
	}
}

// reset breaks the connection to peer again and again.
func reset(ctx context.Context, d *rdstest.Daemon, peer netip.Addr) {
	for ctx.Err() == nil {
		_, _ = d.Reset(ctx, peer)
		select {
		case <-time.After(2 * time.Millisecond): // between two resets
		case <-ctx.Done():
		}
	}
}

// TestLongTransferFails: what fails in the middle has the error of the piece that failed, and
// nothing is in flight when the call returns. What is malformed moves nothing.
func TestLongTransferFails(t *testing.T) {
	const size = 20 << 20
	d := rdstest.StartDaemons(t, 2)
	ca, cb := d[0].Open(t), d[1].Open(t)
	a, b := d[0].Bind(t, ca, 0), d[1].Bind(t, cb, 0)
	far, err := cb.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	near, err := ca.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	cookie := granted(t, a, b, cb, far)
	for name, tc := range map[string]struct {
		op   rds.RDMA
		want error
		none bool // nothing was posted
	}{
		"beyond the region":  {rds.RDMA{Cookie: cookie, RemoteOff: 10<<20 + 1, Local: []rds.Segment{{Buf: near, Len: size}}}, syscall.ERANGE, false},
		"no such region":     {rds.RDMA{Cookie: 12345, Local: []rds.Segment{{Buf: near, Len: size}}}, rds.RemoteError, false},
		"no cookie":          {rds.RDMA{Local: []rds.Segment{{Buf: near, Len: size}}}, syscall.EINVAL, true},
		"too long":           {rds.RDMA{Cookie: cookie, Local: slices.Repeat([]rds.Segment{{Buf: near, Len: size}}, 60)}, syscall.EMSGSIZE, true},
		"outside the buffer": {rds.RDMA{Cookie: cookie, Local: []rds.Segment{{Buf: near, Len: size}, {Buf: near, Off: size - 1, Len: 2}}}, syscall.EINVAL, true},
		"an empty segment":   {rds.RDMA{Cookie: cookie, Local: []rds.Segment{{Buf: near, Len: size}, {Buf: near}}}, syscall.EINVAL, true},
		"another client's":   {rds.RDMA{Cookie: cookie, Local: []rds.Segment{{Buf: near, Len: size}, {Buf: far, Len: 1}}}, syscall.EINVAL, true},
	} {
		before := a.HWM(b.LocalAddrPort().Addr())
		err := a.RDMAWrite(t.Context(), b.LocalAddrPort(), &tc.op)
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
		if after := a.HWM(b.LocalAddrPort().Addr()); tc.none != (after == before) {
			t.Errorf("%s: high-water mark %d, before %d", name, after, before)
		}
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.RDMARead(done, b.LocalAddrPort(), &rds.RDMA{Cookie: cookie, Local: []rds.Segment{{Buf: near, Len: size}}}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v", err)
	}
	if n := a.Completions(make([]rds.Completion, 8)); n != 0 {
		t.Errorf("%d completions are left", n)
	}
	if err := near.Free(); err != nil {
		t.Errorf("operations are left: %v", err)
	}
}
