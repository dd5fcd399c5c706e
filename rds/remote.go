package rds

import (
	"context"
	"io"
	"net/netip"
)

// RemoteRegion is a region of another process, which that process has registered and
// granted to this host, as an [io.ReaderAt] and [io.WriterAt]. The other process is not
// told of reads and writes. All methods may be called from many goroutines at once. Each
// call is made of operations of up to 256 KiB, of which 16 are in flight at a time. So a
// call is not atomic: what else reads or writes the same bytes at the same time sees any mixture.
type RemoteRegion struct {
	ctx    context.Context
	s      *Socket
	to     netip.AddrPort
	cookie Cookie
	size   int64
}

var (
	_ io.ReaderAt = (*RemoteRegion)(nil)
	_ io.WriterAt = (*RemoteRegion)(nil)
)

// Remote returns the region of size bytes that c names, of the socket at to. Its calls wait
// until ctx ends, or until the host turns out not to be reached. A region of another socket fails at the first use, with RemoteError and
// EACCES: see RDMA.OwnerOnly. It sends nothing and holds nothing: whether the region exists
// shows at the first use.
func (s *Socket) Remote(ctx context.Context, to netip.AddrPort, c Cookie, size int64) *RemoteRegion {
	return &RemoteRegion{ctx: ctx, s: s, to: to, cookie: c, size: size}
}

// ReadAt reads len(p) bytes at offset off of the region into p and returns how
// many it read, all of them or those ahead of the first error. At the end of the region
// the error is io.EOF. The data takes a way through memory of the Client, and one copy;
// Socket.RDMARead has none.
//
// It waits until the context of Remote ends. When it returns, p is the caller's again.
// Errors: the context's; the Reason if the host is not reached; io.EOF;
// ErrInvalid for an offset below 0; those of Socket.RDMARead and Client.Alloc.
func (r *RemoteRegion) ReadAt(p []byte, off int64) (int, error) {
	var end error
	if off >= 0 && int64(len(p)) > r.size-off {
		p, end = p[:max(0, r.size-off)], io.EOF
	}
	n, err := r.move(&bounced{c: r.s.c, p: p}, len(p), off)
	if err == nil {
		return n, end
	}
	return n, r.s.opErr("read", r.to, err)
}

// WriteAt writes p at offset off of the region and returns how many bytes it
// wrote, all of them or those ahead of the first error. Bytes behind may be written, too.
// It writes nothing if p goes beyond the region. When it returns nil, the data is in the
// memory of the other process. It waits as ReadAt does. Other errors: ErrInvalid for a range
// outside the region; those of Socket.RDMAWrite and Client.Alloc.
func (r *RemoteRegion) WriteAt(p []byte, off int64) (int, error) {
	n, err := r.move(&bounced{c: r.s.c, p: p, writes: true}, len(p), off)
	return n, r.s.opErr("write", r.to, err)
}

// move moves n bytes at off of the region, see pieces.
func (r *RemoteRegion) move(mem *bounced, n int, off int64) (moved int, err error) {
	if off < 0 || int64(n) > r.size-off {
		if n == 0 && off >= 0 {
			return 0, nil // at the end, or behind it: there is nothing to read
		}
		return 0, invalid("%d bytes at %d of a region of %d", n, off, r.size)
	}
	c := pieces{s: r.s, to: r.to, cookie: r.cookie, off: uint64(off), mem: mem}
	return c.move(r.ctx, n)
}
