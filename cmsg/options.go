package cmsg

import (
	"encoding/binary"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// sockaddrStorage is the size of struct sockaddr_storage.
const sockaddrStorage = 128

// GetMRArgs is struct rds_get_mr_args: it registers memory. OptGetMR takes exactly
// its size, TypeRDMAMap at least its size.
type GetMRArgs struct {
	Vec        IOVec
	CookieAddr uint64 // where the cookie is stored
	Flags      uint64 // FlagReadWrite, FlagInvalidate, FlagUseOnce
}

// Append appends a in the kernel's layout.
func (a *GetMRArgs) Append(b []byte) []byte {
	b = a.Vec.Append(b)
	b = order.AppendUint64(b, a.CookieAddr)
	return order.AppendUint64(b, a.Flags)
}

// Parse decodes b, of which it uses GetMRArgsSize bytes. EINVAL: too short.
func (a *GetMRArgs) Parse(b []byte) error {
	if err := need("rds_get_mr_args", b, GetMRArgsSize); err != nil {
		return err
	}
	*a = GetMRArgs{iovec(b), order.Uint64(b[16:]), order.Uint64(b[24:])}
	return nil
}

// GetMRForDestArgs is struct rds_get_mr_for_dest_args: it registers memory for one
// peer.
type GetMRForDestArgs struct {
	Dest netip.AddrPort // a zone is a numeric scope id
	GetMRArgs
}

// Append appends a in the kernel's layout. EINVAL: Dest is not an address, or its
// zone is not a scope id.
func (d *GetMRForDestArgs) Append(b []byte) ([]byte, error) {
	b, err := appendSockaddr(b, d.Dest)
	if err != nil {
		return b, err
	}
	return d.GetMRArgs.Append(b), nil
}

// Parse decodes b, of which it uses GetMRForDestArgsSize bytes. EINVAL: too
// short, or the destination is neither IPv4 nor IPv6.
func (d *GetMRForDestArgs) Parse(b []byte) error {
	if err := need("rds_get_mr_for_dest_args", b, GetMRForDestArgsSize); err != nil {
		return err
	}
	dest, err := parseSockaddr(b[:sockaddrStorage])
	if err != nil {
		return err
	}
	d.Dest = dest
	return d.GetMRArgs.Parse(b[sockaddrStorage:])
}

// FreeMRArgs is struct rds_free_mr_args: it frees one region, or with a Cookie of 0
// those that are not used.
type FreeMRArgs struct {
	Cookie uint64
	Flags  uint64 // FlagInvalidate
}

// Append appends a in the kernel's layout.
func (f FreeMRArgs) Append(b []byte) []byte {
	return order.AppendUint64(order.AppendUint64(b, f.Cookie), f.Flags)
}

// Parse decodes b, of which it uses FreeMRArgsSize bytes. EINVAL: too short.
func (f *FreeMRArgs) Parse(b []byte) error {
	if err := need("rds_free_mr_args", b, FreeMRArgsSize); err != nil {
		return err
	}
	*f = FreeMRArgs{order.Uint64(b), order.Uint64(b[8:])}
	return nil
}

// RxTraceOption is struct rds_rx_trace_so: which positions are traced.
type RxTraceOption struct {
	Traces uint8
	Pos    [RxTraceMax]uint8 // Rx… positions
}

// Append appends o in the kernel's layout.
func (o RxTraceOption) Append(b []byte) []byte {
	return append(b, o.Traces, o.Pos[0], o.Pos[1], o.Pos[2])
}

// Parse decodes b. As in the kernel every mistake is EFAULT: a length other than
// RxTraceOptionSize, more than RxTraceMax positions, or an unknown position.
func (o *RxTraceOption) Parse(b []byte) error {
	if len(b) != RxTraceOptionSize || b[0] > RxTraceMax {
		return &Error{unix.EFAULT, "malformed rds_rx_trace_so"}
	}
	for _, p := range b[1 : 1+b[0]] {
		if p > RxDgramDelivered {
			return &Error{unix.EFAULT, "unknown position in rds_rx_trace_so"}
		}
	}
	o.Traces = b[0]
	copy(o.Pos[:], b[1:])
	return nil
}

// appendSockaddr appends a sockaddr_in or sockaddr_in6, zero-padded to a
// sockaddr_storage. A v4-mapped address stays IPv6.
func appendSockaddr(b []byte, ap netip.AddrPort) ([]byte, error) {
	var s [sockaddrStorage]byte
	addr := ap.Addr()
	binary.BigEndian.PutUint16(s[2:], ap.Port())
	switch {
	case addr.Is4():
		order.PutUint16(s[:], unix.AF_INET)
		a := addr.As4()
		copy(s[4:], a[:])
	case addr.Is6():
		order.PutUint16(s[:], unix.AF_INET6)
		a := addr.As16()
		copy(s[8:], a[:])
		if zone := addr.Zone(); zone != "" {
			scope, err := strconv.ParseUint(zone, 10, 32)
			if err != nil {
				return b, invalid("zone %q is not a scope id", zone)
			}
			order.PutUint32(s[24:], uint32(scope))
		}
	default:
		return b, invalid("destination is not an address")
	}
	return append(b, s[:]...), nil
}

func parseSockaddr(s []byte) (netip.AddrPort, error) {
	port := binary.BigEndian.Uint16(s[2:])
	switch family := order.Uint16(s); family {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(s[4:8])), port), nil
	case unix.AF_INET6:
		addr := netip.AddrFrom16([16]byte(s[8:24]))
		if scope := order.Uint32(s[24:]); scope != 0 {
			addr = addr.WithZone(strconv.FormatUint(uint64(scope), 10))
		}
		return netip.AddrPortFrom(addr, port), nil
	default:
		return netip.AddrPort{}, invalid("address family %d", family)
	}
}
