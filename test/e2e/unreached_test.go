package e2e

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds"
)

// unreached checks that operations to addr that are waited for end with an errno of rds.Reason, without a
// limit of theirs, and that none has run. It returns the socket and an operation of it.
func unreached(t *testing.T, h *host, addr netip.Addr, errno syscall.Errno) (*rds.Socket, *rds.RDMA) {
	t.Helper()
	s := h.bind(h.open(), 0)
	buf, err := s.Client().Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	op := &rds.RDMA{Cookie: 1 << 40, Local: []rds.Segment{{Buf: buf, Len: 8}}}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	to := addrPortOf(addr, 4000)
	for range 2 {
		_, atomic := s.Atomic(ctx, to, &rds.Atomic{Cookie: 1 << 40, Add: 1})
		for _, err := range []error{s.RDMARead(ctx, to, op), s.RDMAWrite(ctx, to, op), atomic} {
			if reason, is := errors.AsType[rds.Reason](err); !is || !errors.Is(reason, errno) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, rds.Unknown) {
				t.Errorf("to %v: %v, want %v", addr, err, errno)
			}
		}
	}
	if err := s.BarrierAll(ctx); err != nil {
		t.Error(err)
	}
	return s, op
}

// TestUnreached: an operation that is waited for ends when its host is not reached, for whatever
// reason, and has not run. One that is only sent waits, and runs when the host is there.
func TestUnreached(t *testing.T) {
	isolated(t, func(t *testing.T) {
		h := newHost(t)
		t.Run("forbidden there", func(t *testing.T) { unreached(t, h, newHost(t, forbidding).addr(), syscall.EPERM) })
		t.Run("forbidden here", func(t *testing.T) { unreached(t, newHost(t, forbidding), h.addr(), syscall.EACCES) })
		t.Run("something else", func(t *testing.T) {
			there := newAddress(t)
			answering(t, there, []byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			unreached(t, h, there, syscall.ECONNREFUSED)
		})
		t.Run("silent", func(t *testing.T) {
			there := newAddress(t)
			l, err := net.Listen("tcp", addrPortOf(there, rdsPort).String())
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			unreached(t, h, there, syscall.EHOSTDOWN)
		})
		t.Run("later", func(t *testing.T) { reachedLater(t, h) })
	})
}

func reachedLater(t *testing.T, h *host) {
	there := newAddress(t)
	s, op := unreached(t, h, there, syscall.ECONNREFUSED)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	to := addrPortOf(there, 4000)
	waits := *op
	waits.Notify = true
	id, err := s.Send(ctx, &rds.Message{Addr: to, Op: &waits})
	if err != nil {
		t.Fatal(err)
	}
	far := newHost(t, withAddress(there))
	b := far.bind(far.open(), 4000)
	if c, err := s.WaitOp(ctx, there, id); err != nil || c.Status != rds.RemoteError || c.Errno != syscall.EINVAL { // its cookie is of no region
		t.Fatalf("the operation that waited: %+v, %v", c, err)
	}
	mem, err := b.Client().Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Register(mem, 0, 64, rds.AllowRead|rds.AllowWrite)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Expose(ctx, everybody); err != nil {
		t.Fatal(err)
	}
	mem.Bytes()[0] = 7
	op.Cookie = r.Cookie()
	if err := s.RDMARead(ctx, to, op); err != nil || op.Local[0].Buf.Bytes()[0] != 7 {
		t.Errorf("read %v: %v", op.Local[0].Buf.Bytes()[:8], err)
	}
	// It ends, and comes back while a program tries again and again.
	far.Signal(syscall.SIGKILL)
	far.wait()
	for err == nil || !errors.Is(err, syscall.ECONNREFUSED) {
		if err = s.RDMARead(ctx, to, op); ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	far.start()
	for errors.Is(err, syscall.ECONNREFUSED) {
		if err = s.RDMARead(ctx, to, op); ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // between two tries
	}
	if !errors.Is(err, rds.RemoteError) { // the region was of the daemon before
		t.Errorf("reached again: %v", err)
	}
}
