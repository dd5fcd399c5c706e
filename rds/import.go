package rds

import (
	"context"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// Import makes a Buffer of memory that the program has: n bytes at offset off of the file
// fd, which is of memfd_create, of shm_open, or in a tmpfs or hugetlbfs. The file may be
// written, and is not sealed against writing. off is a multiple of the page size. The file may
// have huge pages if the program runs as root or as the daemon's user.
//
// Until Free its pages must stay: the session ends if the file is cut short or gets holes. Seal
// a memfd against shrinking (F_SEAL_SHRINK) if another program has it, too.
//
// The Buffer is a mapping of its own: what the program writes through other mappings of the
// file is in the Buffer, and the other way round. Holes of the file in that range are filled with
// zeros first, in the program's memory. The caller keeps fd and may close it at
// once. The memory counts against the same limits as that of Alloc. Free unmaps it.
//
// Errors: EINVAL for a file that is no memory, an offset inside a page, or a range that the
// file does not have; EPERM for seals and huge pages; EBADF; ENOMEM; ENOBUFS, the daemon's
// limits; EOPNOTSUPP if the daemon or its kernel is too old; ErrDaemonGone, ErrSession,
// ErrClosed.
func (c *Client) Import(fd int, off int64, n int) (*Buffer, error) {
	b, err := c.importMemory(fd, off, n)
	return b, opErr("import", netip.AddrPort{}, err)
}

func (c *Client) importMemory(fd int, off int64, n int) (*Buffer, error) {
	if off < 0 || n < 1 {
		return nil, invalid("%d bytes at %d", n, off)
	}
	i, err := shm.CheckImport(fd, uint64(off), uint64(n))
	if err != nil {
		return nil, err
	}
	m, err := shm.MapImport(i)
	if err != nil {
		return nil, err
	}
	if err := m.Populate(nil); err != nil {
		_ = m.Close()
		return nil, err
	}
	b := &Buffer{c: c, fd: -1, off: uint64(off)}
	if c.buffers.keeps {
		if b.fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			_ = m.Close()
			return nil, err
		}
	}
	err = c.control(context.Background(), func() error { return b.imported(m, fd, n) })
	if err != nil {
		b.closeFD()
		_ = m.Close()
		return nil, err
	}
	return b, nil
}

// imported asks the daemon to import n bytes of fd, which are mapped by m. It is called in
// an attempt. After an error m is the caller's.
func (b *Buffer) imported(m *shm.Mapping, fd, n int) error {
	c := b.c
	if !c.imports {
		return errNoImport
	}
	resp, _, err := c.call(&ipc.Import{Off: b.off, Len: uint64(n)}, fd)
	if err != nil {
		return err
	}
	ok, is := resp.(*ipc.ImportOK)
	if !is {
		return c.broken("answer %T to Import", resp)
	}
	mem, err := c.mem.keep(m)
	if err != nil {
		return err
	}
	b.id, b.mem, b.whole = ok.Buffer, mem[:n:n], mem
	c.buffers.add(b)
	return nil
}
