package rds

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/ipc"
)

// Buffer is memory for RDMA that the process shares with the daemon: made by Alloc, or the
// program's own and made known by Import. Operations move data between it and the network
// without a copy in the process.
type Buffer struct {
	c     *Client
	id    uint32     // changed with c.life and c.tx.mu held
	fd    int        // of the memory, for the next daemon; -1: none; guarded by buffers.mu
	off   uint64     // in fd
	mem   []byte     // what was asked for
	whole []byte     // as mapped
	mu    sync.Mutex // one Free at a time
	freed bool       // guarded by c.tx.mu
}

// Alloc makes a Buffer of size bytes, page aligned and zeroed. It is a call to the
// daemon: allocate once, use often. Errors: ENOMEM; EINVAL for a size below 1;
// ENOBUFS, the daemon's limits; ErrDaemonGone, ErrSession, ErrClosed.
func (c *Client) Alloc(size int) (*Buffer, error) {
	if size < 1 {
		return nil, opErr("alloc", netip.AddrPort{}, invalid("size %d", size))
	}
	b, err := c.alloc(size)
	return b, opErr("alloc", netip.AddrPort{}, err)
}

func (c *Client) alloc(size int) (b *Buffer, err error) {
	err = c.control(context.Background(), func() error {
		b, err = c.allocOnce(size)
		return err
	})
	return b, err
}

func (c *Client) allocOnce(size int) (*Buffer, error) {
	resp, fds, err := c.call(&ipc.Alloc{Size: uint64(size)})
	if err != nil {
		return nil, err
	}
	ok, is := resp.(*ipc.AllocOK)
	if !is || len(fds) != 1 || ok.Size < uint64(size) || ok.Size > 1<<40 {
		c.mem.closeFDs(fds)
		return nil, c.broken("answer %T with %d descriptors to Alloc of %d bytes", resp, len(fds), size)
	}
	defer c.mem.closeFDs(fds)
	mem, err := c.mem.open(fds[0], int(ok.Size), true)
	if err != nil {
		_, _, _ = c.call(&ipc.Free{Buffer: ok.Buffer})
		return nil, err
	}
	b := &Buffer{c: c, id: ok.Buffer, fd: -1, mem: mem[:size:size], whole: mem}
	if c.buffers.keeps && c.mem.local == nil {
		b.fd, fds[0] = fds[0], -1
	}
	c.buffers.add(b)
	return b, nil
}

// Bytes returns the memory; nil after Free. While an operation or a remote peer uses
// a part of the memory, that part may change at any moment. After Free, or the
// client's Close, access to the memory through an older slice is a fault.
func (b *Buffer) Bytes() []byte {
	b.c.tx.mu.Lock()
	defer b.c.tx.mu.Unlock()
	if b.freed {
		return nil
	}
	return b.mem
}

// Free unmaps the memory. It is a call to the daemon and takes effect behind all
// sends that returned before it.
//
// Errors: EBUSY while regions of the buffer are registered, operations use it, or
// messages sent From it are not acknowledged; the buffer is then unchanged.
// ErrClosed if it was freed before. A send that names the buffer while Free runs
// fails with ErrInvalid.
func (b *Buffer) Free() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := false
	err := b.c.atOnce(func() error {
		if first = b.setFreed(true); !first {
			return ErrClosed
		}
		_, _, err := b.c.call(&ipc.Free{Buffer: b.id})
		if _, away := err.(*outage); err == nil {
			b.unmap()
		} else if !away && b.c.Err() == nil {
			b.setFreed(false) // refused: it stays what it was
		}
		return err
	}, func() error {
		if !first && !b.setFreed(true) {
			return ErrClosed
		}
		return b.freeUnused()
	})
	return opErr("free", netip.AddrPort{}, err)
}

// freeUnused unmaps a buffer that counts as freed and that no daemon uses.
func (b *Buffer) freeUnused() error {
	b.unmap()
	return nil
}

func (b *Buffer) unmap() {
	b.c.buffers.remove(b)
	b.c.mem.close(b.whole)
}

// FreeWait waits until nothing uses the buffer and frees it then: no region of it is
// registered, and no operation or message sent From it is left, not even one of a
// closed socket. From its start no new region, operation or message can name the
// buffer.
//
// If ctx ends first, the error is the context's, and the memory is unmapped when its
// last use has ended. Other errors: ErrClosed if it was freed before; ErrDaemonGone,
// ErrSession.
func (b *Buffer) FreeWait(ctx context.Context) error {
	var err error
	b.mu.Lock() // not while a Free may find it busy
	b.c.life.RLock()
	id := b.id
	first := b.setFreed(true)
	epoch := b.c.tx.now()
	b.c.life.RUnlock()
	b.mu.Unlock()
	if !first {
		return opErr("free", netip.AddrPort{}, ErrClosed)
	}
	err = untilDone(ctx, func() error {
		return b.c.atOnce(func() error {
			if b.c.tx.now() != epoch {
				return b.freeUnused()
			}
			_, _, err := b.c.call(&ipc.Free{Buffer: id, Wait: 1})
			if err == nil {
				b.unmap()
			}
			return err
		}, b.freeUnused)
	})
	return opErr("free", netip.AddrPort{}, err)
}

// setFreed sets the state and reports whether that changed it.
func (b *Buffer) setFreed(freed bool) bool {
	b.c.tx.mu.Lock()
	defer b.c.tx.mu.Unlock()
	was := b.freed
	b.freed = freed
	return was != freed
}

// buffers are the buffers of a client that are mapped, if it opens again.
type buffers struct {
	keeps bool // the client opens again
	mu    sync.Mutex
	all   []*Buffer
}

func (x *buffers) add(b *Buffer) {
	if !x.keeps {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all = append(x.all, b)
}

// remove drops b and closes its descriptor.
func (x *buffers) remove(b *Buffer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if i := slices.Index(x.all, b); i >= 0 {
		x.all = slices.Delete(x.all, i, i+1)
		b.closeFD()
	}
}

func (b *Buffer) closeFD() {
	if b.fd >= 0 {
		_ = unix.Close(b.fd)
		b.fd = -1
	}
}

// descriptor returns a descriptor of b's memory that the caller has to close; -1 if it
// has none any more.
func (x *buffers) descriptor(b *Buffer) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if b.fd < 0 {
		return -1, nil
	}
	return unix.FcntlInt(uintptr(b.fd), unix.F_DUPFD_CLOEXEC, 0)
}

// list returns the buffers, those that count as freed included.
func (x *buffers) list() []*Buffer {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.all)
}

// mappings returns the first bytes of the buffers' memory.
func (x *buffers) mappings() map[*byte]bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	first := map[*byte]bool{}
	for _, b := range x.all {
		first[&b.whole[0]] = true
	}
	return first
}

// closeAll closes the descriptors.
func (x *buffers) closeAll() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, b := range x.all {
		b.closeFD()
	}
	x.all = nil
}
