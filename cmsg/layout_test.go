package cmsg

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The values of linux/rds.h, which never change.
func TestConstants(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want int64
	}{
		{"AF_RDS", AFRDS, 21},
		{"AF_RDS of x/sys", AFRDS, unix.AF_RDS},
		{"SOL_RDS", SOLRDS, 276},
		{"SOL_RDS of x/sys", SOLRDS, unix.SOL_RDS},
		{"RDS_CANCEL_SENT_TO", OptCancelSentTo, 1},
		{"RDS_GET_MR", OptGetMR, 2},
		{"RDS_FREE_MR", OptFreeMR, 3},
		{"RDS_BARRIER", OptBarrier, 4},
		{"RDS_RECVERR", OptRecvErr, 5},
		{"RDS_CONG_MONITOR", OptCongMonitor, 6},
		{"RDS_GET_MR_FOR_DEST", OptGetMRForDest, 7},
		{"SO_RDS_TRANSPORT", OptTransport, 8},
		{"SO_RDS_MSG_RXPATH_LATENCY", OptRxPathLatency, 10},
		{"RDS_TRANS_NONE", TransportNone, -1},
		{"RDS_TRANS_IB", TransportIB, 0},
		{"RDS_TRANS_TCP", TransportTCP, 2},
		{"SIOCRDSSETTOS", IoctlSetTOS, 0x89e0},
		{"SIOCRDSGETTOS", IoctlGetTOS, 0x89e1},
		{"RDS_CMSG_RDMA_ARGS", int64(TypeRDMAArgs), 1},
		{"RDS_CMSG_RDMA_DEST", int64(TypeRDMADest), 2},
		{"RDS_CMSG_RDMA_MAP", int64(TypeRDMAMap), 3},
		{"RDS_CMSG_RDMA_STATUS", int64(TypeRDMAStatus), 4},
		{"RDS_CMSG_CONG_UPDATE", int64(TypeCongUpdate), 5},
		{"RDS_CMSG_ATOMIC_FADD", int64(TypeAtomicFAdd), 6},
		{"RDS_CMSG_ATOMIC_CSWP", int64(TypeAtomicCSwp), 7},
		{"RDS_CMSG_MASKED_ATOMIC_FADD", int64(TypeMaskedAtomicFAdd), 8},
		{"RDS_CMSG_MASKED_ATOMIC_CSWP", int64(TypeMaskedAtomicCSwp), 9},
		{"RDS_CMSG_RXPATH_LATENCY", int64(TypeRxPathLatency), 11},
		{"RDS_CMSG_ZCOPY_COOKIE", int64(TypeZcopyCookie), 12},
		{"RDS_CMSG_ZCOPY_COMPLETION", int64(TypeZcopyCompletion), 13},
		{"RDS_RDMA_READWRITE", int64(FlagReadWrite), 0x1},
		{"RDS_RDMA_FENCE", int64(FlagFence), 0x2},
		{"RDS_RDMA_INVALIDATE", int64(FlagInvalidate), 0x4},
		{"RDS_RDMA_USE_ONCE", int64(FlagUseOnce), 0x8},
		{"RDS_RDMA_DONTWAIT", int64(FlagDontWait), 0x10},
		{"RDS_RDMA_NOTIFY_ME", int64(FlagNotifyMe), 0x20},
		{"RDS_RDMA_SILENT", int64(FlagSilent), 0x40},
		{"RDS_RDMA_SUCCESS", int64(StatusSuccess), 0},
		{"RDS_RDMA_REMOTE_ERROR", int64(StatusRemoteError), 1},
		{"RDS_RDMA_CANCELED", int64(StatusCanceled), 2},
		{"RDS_RDMA_DROPPED", int64(StatusDropped), 3},
		{"RDS_RDMA_OTHER_ERROR", int64(StatusOtherError), 4},
		{"RDS_MAX_ZCOOKIES", MaxZcopyCookies, 8},
		{"RDS_MSG_RX_DGRAM_TRACE_MAX", RxTraceMax, 3},
		{"RDS_MSG_RX_HDR_TO_DGRAM_START", RxHdrToDgramStart, 0},
		{"RDS_MSG_RX_DGRAM_REASSEMBLE", RxDgramReassemble, 1},
		{"RDS_MSG_RX_DGRAM_DELIVERED", RxDgramDelivered, 2},
		{"UIO_MAXIOV", MaxLocalSegments, 1024},
		{"RDS_MAX_MSG_SIZE", MaxMessage, 1048576},
		{"CMSG_SPACE of RDMA_STATUS", int64(Space(NotifySize)), 32},
		{"CMSG_SPACE of RDMA_DEST", int64(Space(8)), 24},
		{"CMSG_SPACE of RXPATH_LATENCY", int64(Space(RxTraceSize)), 48},
		{"CMSG_SPACE of ZCOPY_COMPLETION", int64(Space(ZcopyCookiesSize)), 56},
		{"CMSG_LEN of ZCOPY_COMPLETION", int64(Len(ZcopyCookiesSize)), 52},
		{"CMSG_SPACE of RDMA_ARGS", int64(Space(RDMAArgsSize)), 72},
		{"CMSG_SPACE of x/sys", int64(Space(5)), int64(unix.CmsgSpace(5))},
		{"CMSG_LEN of x/sys", int64(Len(5)), int64(unix.CmsgLen(5))},
	} {
		if c.got != c.want {
			t.Errorf("%s is %d, want %d", c.name, c.got, c.want)
		}
	}
}

// parser is what every struct's pointer has.
type parser interface{ Parse([]byte) error }

const (
	vec  = "18171615141312112827262524232221"
	addr = "3837363534333231"
)

// The bytes are a C compiler's, for the same values in the structs of
// linux/rds.h on a little-endian machine.
var layouts = []struct {
	name   string
	value  any // the struct
	encode func() []byte
	size   int
	hex    string
}{
	{"rds_get_mr_args", getMR, func() []byte { return getMR.Append(nil) }, GetMRArgsSize,
		vec + addr + "0c00000000000000"},
	{"rds_get_mr_for_dest_args, IPv4", getMRFor4, func() []byte { return mustAppend(getMRFor4) }, GetMRForDestArgsSize,
		"020012340a010203" + strings.Repeat("00", 120) + vec + addr + "0800000000000000"},
	{"rds_get_mr_for_dest_args, IPv6", getMRFor6, func() []byte { return mustAppend(getMRFor6) }, GetMRForDestArgsSize,
		"0a00123400000000fe80000000000000000000000001000203000000" + strings.Repeat("00", 100) + vec + addr + "0800000000000000"},
	{"rds_free_mr_args", freeMR, func() []byte { return freeMR.Append(nil) }, FreeMRArgsSize,
		"18171615141312110400000000000000"},
	{"rds_rx_trace_so", rxOption, func() []byte { return rxOption.Append(nil) }, RxTraceOptionSize,
		"02010200"},
	{"rds_rdma_args", rdmaArgs, func() []byte { return rdmaArgs.Append(nil) }, RDMAArgsSize,
		"0807060504030201" + vec + addr + "484746454443424161000000000000005857565554535251"},
	{"rds_atomic_args", atomicArgs, func() []byte { return atomicArgs.Append(nil) }, AtomicArgsSize,
		"080706050403020118171615141312112827262524232221383736353433323148474645444342415857565554535251" +
			"686766656463626120000000000000007877767574737271"},
	{"rds_rdma_notify", notify, func() []byte { return notify.Append(nil) }, NotifySize,
		"1817161514131211feffffff00000000"},
	{"rds_cmsg_rx_trace", rxTrace, func() []byte { return rxTrace.Append(nil) }, RxTraceSize,
		"0300010200000000181716151413121128272625242322213837363534333231"},
	{"rds_zcopy_cookies", zcopy, func() []byte { return zcopy.Append(nil) }, ZcopyCookiesSize,
		"080000001013121111131211121312111313121114131211151312111613121117131211"},
}

var (
	someVec   = IOVec{0x1112131415161718, 0x2122232425262728}
	getMR     = GetMRArgs{someVec, 0x3132333435363738, FlagUseOnce | FlagInvalidate}
	getMRFor4 = GetMRForDestArgs{netip.MustParseAddrPort("10.1.2.3:4660"), GetMRArgs{someVec, 0x3132333435363738, FlagUseOnce}}
	getMRFor6 = GetMRForDestArgs{netip.MustParseAddrPort("[fe80::1:2%3]:4660"), GetMRArgs{someVec, 0x3132333435363738, FlagUseOnce}}
	freeMR    = FreeMRArgs{0x1112131415161718, FlagInvalidate}
	rxOption  = RxTraceOption{2, [3]uint8{1, 2, 0}}
	rdmaArgs  = RDMAArgs{0x0102030405060708, someVec, 0x3132333435363738, 0x4142434445464748,
		FlagReadWrite | FlagNotifyMe | FlagSilent, 0x5152535455565758}
	atomicArgs = AtomicArgs{0x0102030405060708, 0x1112131415161718, 0x2122232425262728,
		[4]uint64{0x3132333435363738, 0x4142434445464748, 0x5152535455565758, 0x6162636465666768},
		FlagNotifyMe, 0x7172737475767778}
	notify  = Notify{0x1112131415161718, -2}
	rxTrace = RxTrace{3, [3]uint8{0, 1, 2}, [3]uint64{0x1112131415161718, 0x2122232425262728, 0x3132333435363738}}
	zcopy   = ZcopyCookies{8, [8]uint32{0x11121310, 0x11121311, 0x11121312, 0x11121313, 0x11121314, 0x11121315, 0x11121316, 0x11121317}}
)

func mustAppend(a GetMRForDestArgs) []byte {
	b, err := a.Append(nil)
	if err != nil {
		panic(err)
	}
	return b
}

func TestLayout(t *testing.T) {
	for _, c := range layouts {
		want, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		if len(want) != c.size {
			t.Errorf("%s: %d bytes, the size is said to be %d", c.name, len(want), c.size)
		}
		if got := c.encode(); !bytes.Equal(got, want) {
			t.Errorf("%s encodes to\n%x, want\n%x", c.name, got, want)
		}
		p := reflect.New(reflect.TypeOf(c.value))
		if err := p.Interface().(parser).Parse(want); err != nil || p.Elem().Interface() != c.value {
			t.Errorf("%s decodes to\n%+v, %v, want\n%+v", c.name, p.Elem(), err, c.value)
		}
		p = reflect.New(reflect.TypeOf(c.value))
		errno := unix.EINVAL
		if c.size == RxTraceOptionSize {
			errno = unix.EFAULT
		}
		if err := p.Interface().(parser).Parse(want[:c.size-1]); !errors.Is(err, errno) || !p.Elem().IsZero() {
			t.Errorf("%s cut short: %v, want %v and no value", c.name, err, errno)
		}
	}
}

func TestBadValues(t *testing.T) {
	trace := rxTrace.Append(nil)
	trace[0] = 4
	cookies := zcopy.Append(nil)
	order.PutUint32(cookies, 9)
	unspec := mustAppend(getMRFor4)
	order.PutUint16(unspec, unix.AF_UNSPEC)
	for _, c := range []struct {
		name string
		into parser
		b    []byte
		want unix.Errno
	}{
		{"four traces", new(RxTrace), trace, unix.EINVAL},
		{"nine cookies", new(ZcopyCookies), cookies, unix.EINVAL},
		{"no address family", new(GetMRForDestArgs), unspec, unix.EINVAL},
		{"four positions", new(RxTraceOption), []byte{4, 0, 0, 0}, unix.EFAULT},
		{"unknown position", new(RxTraceOption), []byte{3, 0, 1, 3}, unix.EFAULT},
		{"option too long", new(RxTraceOption), []byte{1, 0, 0, 0, 0}, unix.EFAULT},
	} {
		if err := c.into.Parse(c.b); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if err := new(RxTraceOption).Parse([]byte{2, 0, 1, 99}); err != nil {
		t.Errorf("an unused position counts: %v", err)
	}
	for _, dest := range []netip.AddrPort{{}, netip.MustParseAddrPort("[fe80::1%eth0]:1")} {
		b, err := (&GetMRForDestArgs{Dest: dest}).Append([]byte("x"))
		if !errors.Is(err, unix.EINVAL) || string(b) != "x" {
			t.Errorf("destination %v: %q, %v", dest, b, err)
		}
	}
	mapped := GetMRForDestArgs{Dest: netip.MustParseAddrPort("[::ffff:1.2.3.4]:5")}
	var back GetMRForDestArgs
	if err := back.Parse(mustAppend(mapped)); err != nil || back != mapped {
		t.Errorf("v4-mapped came back as %v, %v", back.Dest, err)
	}
}

func TestRDMAArgsCheck(t *testing.T) {
	ok := RDMAArgs{RemoteVec: IOVec{Bytes: 100}, NrLocal: 2}
	edit := func(f func(*RDMAArgs)) RDMAArgs { a := ok; f(&a); return a }
	for _, c := range []struct {
		name string
		args RDMAArgs
		want unix.Errno
	}{
		{"good", ok, 0},
		{"1 MiB", edit(func(a *RDMAArgs) { a.RemoteVec.Bytes = MaxMessage }), 0},
		{"1 MiB + 1", edit(func(a *RDMAArgs) { a.RemoteVec.Bytes = MaxMessage + 1 }), unix.EMSGSIZE},
		{"4 GiB + 1", edit(func(a *RDMAArgs) { a.RemoteVec.Bytes = 1<<32 + 1 }), unix.EMSGSIZE},
		{"no segment", edit(func(a *RDMAArgs) { a.NrLocal = 0 }), unix.EINVAL},
		{"1024 segments", edit(func(a *RDMAArgs) { a.NrLocal = 1024 }), 0},
		{"1025 segments", edit(func(a *RDMAArgs) { a.NrLocal = 1025 }), unix.EMSGSIZE},
	} {
		if err := c.args.Check(); !is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	const top = ^uint64(0)
	for _, c := range []struct {
		name  string
		local []IOVec
		want  unix.Errno
		sum   uint64
	}{
		{"all of it", []IOVec{{1, 60}, {7, 40}}, 0, 100},
		{"less", []IOVec{{1, 1}, {7, 1}}, 0, 2},
		{"up to the last byte of memory", []IOVec{{top, 1}, {top - 9, 10}}, 0, 11},
		{"more", []IOVec{{1, 60}, {7, 41}}, unix.EINVAL, 0},
		{"an empty one", []IOVec{{1, 60}, {7, 0}}, unix.EINVAL, 0},
		{"wraps around", []IOVec{{1, 60}, {top, 2}}, unix.EINVAL, 0},
		{"the sum wraps around", []IOVec{{0, 60}, {0, top}}, unix.EINVAL, 0},
		{"one too few", []IOVec{{1, 60}}, unix.EINVAL, 0},
		{"one too many", []IOVec{{1, 1}, {1, 1}, {1, 1}}, unix.EINVAL, 0},
	} {
		if sum, err := ok.CheckLocal(c.local); !is(err, c.want) || sum != c.sum {
			t.Errorf("%s: %d, %v; want %d, %v", c.name, sum, err, c.sum, c.want)
		}
	}
}

func TestAtomicCheck(t *testing.T) {
	for a := range uint64(17) {
		want := unix.EFAULT
		if a%8 == 0 {
			want = 0
		}
		if err := (&AtomicArgs{LocalAddr: a}).Check(); !is(err, want) {
			t.Errorf("local address %d: %v", a, err)
		}
	}
}

func TestParseIOVecs(t *testing.T) {
	b := IOVec{3, 4}.Append(someVec.Append(nil))
	got, err := ParseIOVecs([]IOVec{{}}, b, 2)
	if want := []IOVec{{}, someVec, {3, 4}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, n := range []int{-1, 3, 1 << 60} {
		if _, err := ParseIOVecs(nil, b, n); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%d of two: %v", n, err)
		}
	}
}

// is reports whether err is errno, nil for 0.
func is(err error, errno unix.Errno) bool {
	if errno == 0 {
		return err == nil
	}
	return errors.Is(err, errno)
}
