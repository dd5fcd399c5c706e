package rpc

import (
	"context"
	"net/netip"
	"sync/atomic"

	"github.com/rdsd/rdsd/rds"
)

// Memory is memory of a Caller that servers write large answers into, by RDMA. It serves
// one call after the other: see Caller.CallInto.
//
// A server can write to the memory for as long as the Memory exists, once a call has
// named it. So what is in it is trusted as far as the servers that were called with it
// are. Use a Memory with one server, or copy the answer before the next call.
type Memory struct {
	size   int
	buf    *rds.Buffer
	region *rds.Region
	busy   atomic.Bool // in use by a call, or spoilt by one
}

// NewMemory makes a Memory of size bytes, at least 1. It makes calls to the daemon:
// make it once, use it often. Errors: those of rds.Client.Alloc and
// rds.Socket.Register.
func (c *Caller) NewMemory(size int) (*Memory, error) {
	return c.newMemory(size, rds.AllowWrite)
}

func (c *Caller) newMemory(size int, a rds.Access) (*Memory, error) {
	buf, err := c.s.Client().Alloc(size)
	if err != nil {
		return nil, err
	}
	region, err := c.s.Register(buf, 0, size, a)
	if err != nil {
		_ = buf.Free()
		return nil, err
	}
	return &Memory{size: size, buf: buf, region: region}, nil
}

// Bytes returns the memory, nil after Free. See rds.Buffer.Bytes.
func (m *Memory) Bytes() []byte { return m.buf.Bytes() }

// Free takes the memory back from all servers and frees it. When it returns, no server
// can write to it any more. If ctx ends first, that goes on by itself. Errors: those of
// rds.Region.Release and rds.Buffer.FreeWait.
func (m *Memory) Free(ctx context.Context) error {
	m.busy.Store(true)
	err := m.region.Release(ctx)
	if e := m.buf.FreeWait(ctx); err == nil {
		err = e
	}
	return err
}

// release is Free for memory that only one call knows.
func (m *Memory) release(ctx context.Context) { _ = m.Free(ctx) }

// lend makes memory with the request req, which the host of the socket at to may read.
func (c *Caller) lend(ctx context.Context, to netip.AddrPort, req []byte) (*Memory, error) {
	m, err := c.newMemory(len(req), rds.AllowRead)
	if err != nil {
		return nil, err
	}
	copy(m.Bytes(), req)
	if err := m.region.Expose(ctx, to); err != nil {
		m.release(ctx)
		return nil, err
	}
	return m, nil
}

// CallInto is Call whose answer comes into m, and returns how many bytes it has. The
// server writes an answer of more than 32 KiB there by RDMA: the message that tells of
// the answer arrives when the memory is complete, and there is no copy at the caller.
// A shorter answer travels in the message and is copied. ErrTooLarge if the answer is
// longer than m.
//
// ErrMemory if m is in use by another call. After an error that is no Error, the server
// may still write to m, and m cannot be used again: later calls fail with ErrMemory.
// Free it.
func (c *Caller) CallInto(ctx context.Context, to netip.AddrPort, method string, req []byte, m *Memory) (int, error) {
	b, err := c.Do(ctx, &Request{Method: method, To: to, Body: req, mem: m})
	return len(b), err
}

func (c *Caller) callInto(ctx context.Context, r *Request) (int, error) {
	m := r.mem
	if !m.busy.CompareAndSwap(false, true) {
		return 0, ErrMemory
	}
	p, err := c.do(ctx, r)
	if err != nil {
		if _, is := err.(*Error); is {
			m.busy.Store(false) // the server has finished
		}
		return 0, err
	}
	n := int(p.total)
	if !p.written {
		copy(m.Bytes(), p.buf)
	}
	m.busy.Store(false)
	c.recycle(p)
	return n, nil
}
