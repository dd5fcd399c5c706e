package engine

import (
	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/rdmaop"
	"golang.org/x/sys/unix"
)

// localSegments resolves the operation's local memory, and the operands of an
// atomic.
func (tx *sender) localSegments(t *txMsg, o *txOp, d *shm.SubOp) unix.Errno {
	if o.Kind.Atomic() {
		b, w := t.sock.cl.sent(uint64(d.SegChunk)*shm.Unit, uint64(shm.AtomicEntrySize))
		if w == nil {
			return unix.EFAULT
		}
		a := shm.ReadAtomicEntry(b)
		o.Atomic = rdmaop.AtomicArgs{CompareAdd: a.CompareAdd, Swap: a.Swap, CompareMask: a.CompareMask, SwapMask: a.SwapMask}
		if d.NSeg != 1 {
			return unix.EINVAL
		}
	}
	if d.NSeg == 0 || d.NSeg > abi.MaxSegs {
		return unix.EINVAL
	}
	if d.NSeg == 1 {
		return tx.addSegment(t, o, d.Region, d.Off, d.Len)
	}
	list, w := t.sock.cl.sent(uint64(d.SegChunk)*shm.Unit, uint64(int(d.NSeg)*shm.SegEntrySize))
	if w == nil {
		return unix.EFAULT
	}
	sum := uint64(0)
	for i := 0; i < int(d.NSeg); i++ {
		s := shm.ReadSegEntry(list[i*shm.SegEntrySize:])
		if errno := tx.addSegment(t, o, s.Region, s.Off, s.Len); errno != 0 {
			return errno
		}
		sum += s.Len
	}
	if sum != d.Len {
		return unix.EINVAL
	}
	return 0
}

// sent returns n bytes of the client's send arena from addr on and the window that they are in. It
// returns nil if there are not so many in one window.
func (c *Client) sent(addr, n uint64) ([]byte, *window) {
	w, in := addr/shm.WindowSize, addr%shm.WindowSize
	if w >= uint64(len(c.send)) || in+n > shm.WindowSize {
		return nil, nil
	}
	return c.send[w].mem[in : in+n : in+n], &c.send[w]
}

func (tx *sender) addSegment(t *txMsg, o *txOp, id uint32, off, n uint64) unix.Errno {
	b := t.sock.cl.buffers[id]
	switch {
	case b == nil || b.freeing:
		return unix.EFAULT
	case n == 0 || n > 1<<31:
		return unix.EINVAL
	case !b.has(off, n):
		return unix.EFAULT
	}
	if errno := tx.e.users.maySegment(t.sock.cl); errno != 0 {
		return errno
	}
	tx.e.users.useSegment(t.sock.cl, o, b, off, uint32(n))
	return 0
}
