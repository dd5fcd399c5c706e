package afrds

import (
	"errors"
	"net/netip"
	"syscall"

	"github.com/rdsd/rdsd/rds"
)

// BarrierArgsSize is the size of struct rds_barrier_args of the first RDS: the
// big-endian IPv4 address of the destination, u32 flags, the u64 address at which
// the mark is stored, and the u64 id to wait for.
const BarrierArgsSize = 24

// BarrierArgs is struct rds_barrier_args.
type BarrierArgs struct {
	Dest       netip.Addr // IPv4
	Flags      uint32     // MSG_DONTWAIT
	RDMAIDAddr uint64     // address at which the high-water mark is stored; 0: nowhere
	WaitRDMAID uint64     // id to wait for; 0: none
}

// Append appends a in its layout.
func (a *BarrierArgs) Append(b []byte) []byte {
	ip := a.Dest.Unmap().As4()
	b = append(b, ip[:]...)
	b = host.AppendUint32(b, a.Flags)
	b = host.AppendUint64(b, a.RDMAIDAddr)
	return host.AppendUint64(b, a.WaitRDMAID)
}

// Parse decodes b. EINVAL: b does not have BarrierArgsSize bytes.
func (a *BarrierArgs) Parse(b []byte) error {
	if len(b) != BarrierArgsSize {
		return syscall.EINVAL
	}
	*a = BarrierArgs{netip.AddrFrom4([4]byte(b)), host.Uint32(b[4:]), host.Uint64(b[8:]), host.Uint64(b[16:])}
	return nil
}

// barrier is RDS_BARRIER, which Linux does not have any more. It stores the
// high-water mark of the socket's operations to the destination, and waits until the
// mark has reached WaitRDMAID. Ids count 1, 2, ... per destination in the order of
// the sends.
//
// EINVAL: the size, or an id that was not issued. ENOTCONN: the socket is not bound.
// EFAULT: there is no memory for the mark. In all other cases the mark is stored.
// EAGAIN: the mark has not reached the id, with MSG_DONTWAIT; poll reports when it
// has. EINTR: Interrupt.
func (s *Socket) barrier(val []byte) error {
	var a BarrierArgs
	if err := a.Parse(val); err != nil {
		return err
	}
	rs, err := s.boundSocket()
	if err != nil {
		return err
	}
	ctx, cancel := s.patience(int(a.Flags), new(timeout))
	defer cancel()
	_, err = rs.Barrier(ctx, a.Dest, a.WaitRDMAID)
	if a.RDMAIDAddr != 0 && !errors.Is(err, rds.ErrInvalid) {
		if err := s.k.mem.write(a.RDMAIDAddr, host.AppendUint64(nil, rs.HWM(a.Dest))); err != nil {
			return err
		}
	}
	if err == nil {
		s.disarm(a.Dest, a.WaitRDMAID)
		return nil
	}
	if wouldBlock(err) {
		s.mu.Lock()
		s.armed[a.Dest] = a.WaitRDMAID
		s.mu.Unlock()
		_, _ = s.repoll()
		return syscall.EAGAIN
	}
	return s.waited(ctx, err)
}

// disarm ends the wait of poll for a barrier, because the application has asked for
// it.
func (s *Socket) disarm(to netip.Addr, id uint64) {
	s.mu.Lock()
	armed, ok := s.armed[to]
	if ok = ok && int64(id-armed) >= 0; ok {
		delete(s.armed, to)
	}
	s.mu.Unlock()
	if ok {
		_, _ = s.repoll()
	}
}
