package afrds

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"syscall"

	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/internal/krds"
	"github.com/rdsd/rdsd/rds"
)

const (
	pageSize = 4096
	// maxPages is how many pages beyond the first a region may have
	// (RDS_MAX_MSG_SIZE >> PAGE_SHIFT).
	maxPages = cmsg.MaxMessage / pageSize
)

// getMR is RDS_GET_MR. EINVAL: val does not have 32 bytes. Other errors are those of
// register. The key is granted to the sockets to which this socket sends it.
func (s *Socket) getMR(val []byte) error {
	var a cmsg.GetMRArgs
	if len(val) != cmsg.GetMRArgsSize {
		return syscall.EINVAL
	}
	if err := a.Parse(val); err != nil {
		return errno(err)
	}
	region, err := s.registerBound(&a, rds.Access(krds.Open))
	if err != nil {
		return err
	}
	s.own(region, a.Flags, netip.Addr{})
	return nil
}

// getMRForDest is RDS_GET_MR_FOR_DEST: as getMR, and the key is granted to the
// destination, which the kernel ignores.
func (s *Socket) getMRForDest(val []byte) error {
	var a cmsg.GetMRForDestArgs
	if len(val) != cmsg.GetMRForDestArgsSize {
		return syscall.EINVAL
	}
	if err := a.Parse(val); err != nil {
		return errno(err)
	}
	region, err := s.registerBound(&a.GetMRArgs, 0)
	if err != nil {
		return err
	}
	if err := region.Expose(context.Background(), a.Dest); err != nil {
		_ = region.Release(context.Background()) // nobody was told of the key
		return errno(err)
	}
	s.own(region, a.Flags, a.Dest.Addr())
	return nil
}

func (s *Socket) registerBound(a *cmsg.GetMRArgs, open rds.Access) (*rds.Region, error) {
	rs, err := s.boundSocket()
	if err != nil {
		return nil, err
	}
	return s.register(rs, a, open)
}

// register makes a region and stores its cookie (rdma.c __rds_rdma_map). EINVAL: the range
// is empty or wraps around. EMSGSIZE: it is longer than 1 MiB and a page. EFAULT: the range,
// or the place for the cookie, is not in a buffer. ENOBUFS, ENOMEM: limits of the daemon.
func (s *Socket) register(rs *rds.Socket, a *cmsg.GetMRArgs, open rds.Access) (*rds.Region, error) {
	end := a.Vec.Addr + a.Vec.Bytes
	pages := (end+pageSize-1)/pageSize - a.Vec.Addr/pageSize
	switch {
	case end < a.Vec.Addr, end > math.MaxUint64-pageSize+1, a.Vec.Bytes == 0, a.Vec.Bytes > math.MaxUint32:
		return nil, syscall.EINVAL
	case pages-1 > maxPages:
		return nil, syscall.EMSGSIZE
	}
	seg, err := s.k.mem.segment(a.Vec.Addr, a.Vec.Bytes)
	if err != nil {
		return nil, err
	}
	// As in the kernel FlagReadWrite does not count: both, always.
	access := rds.AllowRead | rds.AllowWrite | rds.AllowAtomic | open
	if a.Flags&cmsg.FlagUseOnce != 0 {
		access |= rds.UseOnce
	}
	region, err := rs.Register(seg.Buf, seg.Off, seg.Len, access)
	if err != nil {
		return nil, errno(err)
	}
	if a.CookieAddr != 0 {
		if err := s.k.mem.write(a.CookieAddr, host.AppendUint64(nil, uint64(region.Cookie()))); err != nil {
			_ = region.Release(context.Background()) // nobody was told of the key
			return nil, err
		}
	}
	return region, nil
}

// mr is a region of a socket.
type mr struct {
	region *rds.Region
	once   bool
	to     netip.Addr // the first host that its cookie was for
}

func keyOf(cookie uint64) uint32 { return uint32(cookie) }

// own keeps a region under its key.
func (s *Socket) own(r *rds.Region, flags uint64, to netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mrs[keyOf(uint64(r.Cookie()))] = mr{r, flags&cmsg.FlagUseOnce != 0, to}
}

// offer checks that a message to a host may carry the cookie. A region for one use
// is granted to one host. For another host its cookie is EBUSY, because no notice
// would tell the failure later, or EINVAL once the region was used.
func (s *Socket) offer(cookie uint64, to netip.AddrPort) error {
	s.mu.Lock()
	r := s.mrs[keyOf(cookie)]
	first := r.to
	if r.once && !first.IsValid() {
		r.to = to.Addr()
		s.mrs[keyOf(cookie)] = r
	}
	s.mu.Unlock()
	if !r.once || !first.IsValid() || first == to.Addr() {
		return nil
	}
	return errno(r.region.Expose(context.Background(), to))
}

// owns reports whether the cookie's key is that of a region of this socket.
func (s *Socket) owns(cookie uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.mrs[keyOf(cookie)]
	return known
}

// freeMR is RDS_FREE_MR: when it returns, nobody can reach the memory through the
// key any more. Cookie 0 frees regions that are not used; there are none here.
// EINVAL: val does not have 16 bytes, the key is not known, or the region was for
// one use and has been used.
func (s *Socket) freeMR(val []byte) error {
	var a cmsg.FreeMRArgs
	if len(val) != cmsg.FreeMRArgsSize {
		return syscall.EINVAL
	}
	if err := a.Parse(val); err != nil {
		return errno(err)
	}
	s.mu.Lock()
	bound, self := s.rs != nil, s.bound.addrPort()
	r, known := s.mrs[keyOf(a.Cookie)]
	if a.Cookie != 0 {
		delete(s.mrs, keyOf(a.Cookie))
	}
	s.mu.Unlock()
	switch {
	case a.Cookie == 0 && bound:
		return nil
	case a.Cookie == 0 || !known:
		return syscall.EINVAL
	}
	ctx := context.Background()
	// A use-once region that was used is gone, which only a grant tells.
	used := r.once && errors.Is(r.region.Expose(ctx, self), syscall.EINVAL)
	err := r.region.Release(ctx)
	if used {
		return syscall.EINVAL
	}
	return errno(err)
}
