package rdstest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

// patience is far above what anything here takes, on a loaded machine too.
const patience = 2 * time.Minute

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// TestRDMA: write and read with immediate data, between two hosts and on one:
// the message arrives with its data there, the mark and the status follow.
func TestRDMA(t *testing.T) {
	d := rdstest.StartDaemons(t, 2)
	for name, target := range map[string]*rdstest.Daemon{"two hosts": d[1], "same host": d[0]} {
		t.Run(name, func(t *testing.T) {
			ca, cb := d[0].Open(t), target.Open(t)
			a, b := d[0].Bind(t, ca, 0), target.Bind(t, cb, 0)
			const size = 1 << 20
			local, remote := alloc(t, ca, size), alloc(t, cb, size)
			r, err := b.Register(remote, 0, size, rds.AllowRead|rds.AllowWrite)
			if err != nil {
				t.Fatal(err)
			}
			// The cookie travels with a message, and is granted with it.
			if _, err := b.Send(context.Background(), &rds.Message{Payload: []byte("here"), Addr: a.LocalAddrPort(), Cookie: r.Cookie()}); err != nil {
				t.Fatal(err)
			}
			m := rds.Received{Payload: make([]byte, 10)}
			if err := a.Recv(context.Background(), &m); err != nil || m.Cookie != r.Cookie() {
				t.Fatalf("%+v, %v", m, err)
			}
			for i := range local.Bytes() {
				local.Bytes()[i] = byte(i * 7)
			}
			op := func(write bool, text string) uint64 {
				t.Helper()
				id, err := a.Send(context.Background(), &rds.Message{Payload: []byte(text), Addr: m.Addr, Op: &rds.RDMA{Write: write, Cookie: m.Cookie, Notify: true,
					Local: []rds.Segment{{Buf: local, Off: 0, Len: size / 2}, {Buf: local, Off: size / 2, Len: size / 2}}}})
				if err != nil {
					t.Fatal(err)
				}
				n, _, err := b.RecvFrom(m.Payload)
				if err != nil || string(m.Payload[:n]) != text || !bytes.Equal(local.Bytes(), remote.Bytes()) {
					t.Fatalf("%q, %v, or the data is not there", m.Payload[:n], err)
				}
				if hwm, err := a.Barrier(soon(t), m.Addr.Addr(), id); hwm != id || err != nil {
					t.Fatal(hwm, err)
				}
				if c, err := a.WaitOp(soon(t), m.Addr.Addr(), id); err != nil || c.Status != rds.Success {
					t.Fatal(c, err)
				}
				return id
			}
			op(true, "wrote")
			remote.Bytes()[5]++
			op(false, "read")

			if err := remote.Free(); !errors.Is(err, syscall.EBUSY) {
				t.Fatalf("free under a region: %v", err)
			}
			if err := r.Release(soon(t)); err != nil {
				t.Fatal(err)
			}
			id, err := a.Send(context.Background(), &rds.Message{Addr: m.Addr, Op: &rds.RDMA{Cookie: m.Cookie, Notify: true,
				Local: []rds.Segment{{Buf: local, Len: 8}}}})
			if err != nil {
				t.Fatal(err)
			}
			if c, err := a.WaitOp(soon(t), m.Addr.Addr(), id); err != nil || !errors.Is(c.Err(), rds.RemoteError) || c.Errno == 0 {
				t.Fatalf("operation on a released region: %+v, %v", c, err)
			}
			if err := errors.Join(a.BarrierAll(soon(t)), remote.Free(), local.Free()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func alloc(t testing.TB, c *rds.Client, n int) *rds.Buffer {
	t.Helper()
	b, err := c.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestManySockets: all sockets of two processes talk to all others at once,
// with receive buffers so small that congestion is the rule; nothing is lost,
// doubled or out of order.
func TestManySockets(t *testing.T) {
	d := rdstest.StartDaemons(t, 2)
	const socks, each = 10, 200
	var all []*rds.Socket
	for _, x := range d {
		c := x.Open(t)
		for range socks {
			s := x.Bind(t, c, 0)
			if err := s.SetRcvBuf(2000); err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		}
	}
	var wg sync.WaitGroup
	for i, s := range all {
		wg.Go(func() {
			for k := range each {
				for _, to := range all {
					if _, err := s.SendTo(fmt.Appendf(nil, "%d %d %0*d", i, k, k%300, 0), to.LocalAddrPort()); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
		wg.Go(func() {
			_ = s.SetReadDeadline(time.Now().Add(patience))
			next := map[int]int{}
			buf := make([]byte, 512)
			for range each * len(all) {
				n, _, err := s.RecvFrom(buf)
				if err != nil {
					t.Error(err)
					return
				}
				var from, k int
				if _, err := fmt.Sscanf(string(buf[:n]), "%d %d", &from, &k); err != nil || next[from] != k {
					t.Errorf("socket %d: message %d of %d, want %d (%v)", i, k, from, next[from], err)
					return
				}
				next[from]++
			}
		})
	}
	wg.Wait()
}
