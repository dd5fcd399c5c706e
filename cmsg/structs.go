package cmsg

import "golang.org/x/sys/unix"

// Sizes of the kernel's structs in bytes.
const (
	IOVecSize            = 16  // struct rds_iovec
	GetMRArgsSize        = 32  // struct rds_get_mr_args
	GetMRForDestArgsSize = 160 // struct rds_get_mr_for_dest_args
	FreeMRArgsSize       = 16  // struct rds_free_mr_args
	RxTraceOptionSize    = 4   // struct rds_rx_trace_so
	RDMAArgsSize         = 56  // struct rds_rdma_args
	AtomicArgsSize       = 72  // struct rds_atomic_args
	NotifySize           = 16  // struct rds_rdma_notify
	RxTraceSize          = 32  // struct rds_cmsg_rx_trace
	ZcopyCookiesSize     = 36  // struct rds_zcopy_cookies
)

// IOVec is struct rds_iovec: a range of memory, or of a remote region.
type IOVec struct {
	Addr  uint64
	Bytes uint64
}

// Append appends v in the kernel's layout.
func (v IOVec) Append(b []byte) []byte {
	return order.AppendUint64(order.AppendUint64(b, v.Addr), v.Bytes)
}

func iovec(b []byte) IOVec { return IOVec{order.Uint64(b), order.Uint64(b[8:])} }

// ParseIOVecs decodes n consecutive struct rds_iovec and appends them to dst.
// EINVAL: b is shorter.
func ParseIOVecs(dst []IOVec, b []byte, n int) ([]IOVec, error) {
	if n < 0 || n > len(b)/IOVecSize {
		return dst, invalid("%d local segments in %d bytes", n, len(b))
	}
	for ; n > 0; n-- {
		dst = append(dst, iovec(b))
		b = b[IOVecSize:]
	}
	return dst, nil
}

// RDMAArgs is struct rds_rdma_args: an RDMA operation that runs ahead of the
// message.
type RDMAArgs struct {
	Cookie       uint64 // remote region: key | offset << 32
	RemoteVec    IOVec  // offset into the remote region, and bytes
	LocalVecAddr uint64 // address of NrLocal rds_iovecs
	NrLocal      uint64
	Flags        uint64 // FlagReadWrite, FlagFence, FlagNotifyMe, FlagSilent
	UserToken    uint64 // comes back in Notify
}

// Append appends a in the kernel's layout.
func (a *RDMAArgs) Append(b []byte) []byte {
	b = order.AppendUint64(b, a.Cookie)
	b = a.RemoteVec.Append(b)
	b = order.AppendUint64(b, a.LocalVecAddr)
	b = order.AppendUint64(b, a.NrLocal)
	b = order.AppendUint64(b, a.Flags)
	return order.AppendUint64(b, a.UserToken)
}

// Parse decodes b, of which it uses RDMAArgsSize bytes. EINVAL: too short.
func (a *RDMAArgs) Parse(b []byte) error {
	if err := need("RDMA_ARGS", b, RDMAArgsSize); err != nil {
		return err
	}
	*a = RDMAArgs{
		Cookie:       order.Uint64(b),
		RemoteVec:    iovec(b[8:]),
		LocalVecAddr: order.Uint64(b[24:]),
		NrLocal:      order.Uint64(b[32:]),
		Flags:        order.Uint64(b[40:]),
		UserToken:    order.Uint64(b[48:]),
	}
	return nil
}

// Check checks what does not depend on the local segments, in the order of the
// kernel. EMSGSIZE: more than MaxMessage remote bytes, or more than MaxLocalSegments
// segments. EINVAL: no local segment.
func (a *RDMAArgs) Check() error {
	switch {
	case a.RemoteVec.Bytes > MaxMessage:
		return tooLarge("RDMA of %d bytes, at most %d", a.RemoteVec.Bytes, MaxMessage)
	case a.NrLocal == 0:
		return invalid("RDMA without local segments")
	case a.NrLocal > MaxLocalSegments:
		return tooLarge("RDMA with %d local segments, at most %d", a.NrLocal, MaxLocalSegments)
	}
	return nil
}

// CheckLocal checks the local segments and returns how many bytes are transferred:
// their sum, which may be less than RemoteVec.Bytes. EINVAL: there are not NrLocal
// segments, one is empty or wraps around, or their sum exceeds RemoteVec.Bytes.
func (a *RDMAArgs) CheckLocal(local []IOVec) (uint64, error) {
	if uint64(len(local)) != a.NrLocal {
		return 0, invalid("%d local segments, nr_local is %d", len(local), a.NrLocal)
	}
	var sum uint64
	for i, v := range local {
		switch {
		case v.Bytes == 0:
			return 0, invalid("local segment %d is empty", i)
		case addOverflows(v.Addr, v.Bytes-1):
			return 0, invalid("local segment %d wraps around", i)
		case addOverflows(sum, v.Bytes) || sum+v.Bytes > a.RemoteVec.Bytes:
			return 0, invalid("local segments exceed the remote %d bytes", a.RemoteVec.Bytes)
		}
		sum += v.Bytes
	}
	return sum, nil
}

// AtomicArgs is struct rds_atomic_args. The meaning of Word depends on the type:
//
//	TypeAtomicFAdd        add
//	TypeAtomicCSwp        compare, swap
//	TypeMaskedAtomicFAdd  add, nocarry mask
//	TypeMaskedAtomicCSwp  compare, swap, compare mask, swap mask
type AtomicArgs struct {
	Cookie     uint64 // remote region
	LocalAddr  uint64 // where the old value goes, 8-aligned
	RemoteAddr uint64 // offset into the remote region
	Word       [4]uint64
	Flags      uint64 // FlagNotifyMe, FlagSilent
	UserToken  uint64
}

// Append appends a in the kernel's layout.
func (x *AtomicArgs) Append(b []byte) []byte {
	b = order.AppendUint64(b, x.Cookie)
	b = order.AppendUint64(b, x.LocalAddr)
	b = order.AppendUint64(b, x.RemoteAddr)
	for _, w := range x.Word {
		b = order.AppendUint64(b, w)
	}
	b = order.AppendUint64(b, x.Flags)
	return order.AppendUint64(b, x.UserToken)
}

// Parse decodes b, of which it uses AtomicArgsSize bytes. EINVAL: too short.
func (x *AtomicArgs) Parse(b []byte) error {
	if err := need("atomic", b, AtomicArgsSize); err != nil {
		return err
	}
	*x = AtomicArgs{
		Cookie:     order.Uint64(b),
		LocalAddr:  order.Uint64(b[8:]),
		RemoteAddr: order.Uint64(b[16:]),
		Flags:      order.Uint64(b[56:]),
		UserToken:  order.Uint64(b[64:]),
	}
	for i := range x.Word {
		x.Word[i] = order.Uint64(b[24+8*i:])
	}
	return nil
}

// Check returns EFAULT unless LocalAddr is a multiple of 8.
func (x *AtomicArgs) Check() error {
	if x.LocalAddr%8 != 0 {
		return &Error{unix.EFAULT, "local address of an atomic is not 8-aligned"}
	}
	return nil
}

// Notify is struct rds_rdma_notify: the status of an operation.
type Notify struct {
	UserToken uint64
	Status    int32 // Status…
}

// Append appends n in the kernel's layout, its padding zero.
func (n Notify) Append(b []byte) []byte {
	b = order.AppendUint64(b, n.UserToken)
	b = order.AppendUint32(b, uint32(n.Status))
	return append(b, 0, 0, 0, 0)
}

// Parse decodes b, of which it uses NotifySize bytes. EINVAL: too short.
func (n *Notify) Parse(b []byte) error {
	if err := need("RDMA_STATUS", b, NotifySize); err != nil {
		return err
	}
	*n = Notify{order.Uint64(b), int32(order.Uint32(b[8:]))}
	return nil
}

// RxTrace is struct rds_cmsg_rx_trace: how long a received message took on its way.
type RxTrace struct {
	Traces uint8             // used entries
	Pos    [RxTraceMax]uint8 // Rx… positions
	Nanos  [RxTraceMax]uint64
}

// Append appends r in the kernel's layout, its padding zero.
func (r *RxTrace) Append(b []byte) []byte {
	b = append(b, r.Traces, r.Pos[0], r.Pos[1], r.Pos[2], 0, 0, 0, 0)
	for _, n := range r.Nanos {
		b = order.AppendUint64(b, n)
	}
	return b
}

// Parse decodes b, of which it uses RxTraceSize bytes. EINVAL: too short, or
// more than RxTraceMax traces.
func (r *RxTrace) Parse(b []byte) error {
	if err := need("RXPATH_LATENCY", b, RxTraceSize); err != nil {
		return err
	}
	if b[0] > RxTraceMax {
		return invalid("RXPATH_LATENCY with %d traces, at most %d", b[0], RxTraceMax)
	}
	r.Traces = b[0]
	copy(r.Pos[:], b[1:])
	for i := range r.Nanos {
		r.Nanos[i] = order.Uint64(b[8+8*i:])
	}
	return nil
}

// ZcopyCookies is struct rds_zcopy_cookies: the cookies of zero-copy sends whose
// memory is free again.
type ZcopyCookies struct {
	Num     uint32 // used entries
	Cookies [MaxZcopyCookies]uint32
}

// Append appends z in the kernel's layout.
func (z *ZcopyCookies) Append(b []byte) []byte {
	b = order.AppendUint32(b, z.Num)
	for _, c := range z.Cookies {
		b = order.AppendUint32(b, c)
	}
	return b
}

// Parse decodes b, of which it uses ZcopyCookiesSize bytes. EINVAL: too short,
// or more than MaxZcopyCookies cookies.
func (z *ZcopyCookies) Parse(b []byte) error {
	if err := need("ZCOPY_COMPLETION", b, ZcopyCookiesSize); err != nil {
		return err
	}
	if n := order.Uint32(b); n > MaxZcopyCookies {
		return invalid("ZCOPY_COMPLETION with %d cookies, at most %d", n, MaxZcopyCookies)
	}
	z.Num = order.Uint32(b)
	for i := range z.Cookies {
		z.Cookies[i] = order.Uint32(b[4+4*i:])
	}
	return nil
}
