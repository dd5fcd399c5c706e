package conformance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/afrds"
	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/internal/stats"
)

func groupE() []statement {
	return []statement{
		{n: 71, kind: "k", by: byCalls, text: "RDMA_ARGS of 0 segments fails EINVAL, of 1025 EMSGSIZE, with an empty one EINVAL", check: rdmaSegmentCounts},
		{n: 72, kind: "k", by: byCalls, text: "more local than remote bytes fails EINVAL; fewer transfer the local sum", check: rdmaLocalSum},
		{n: 73, kind: "k", by: byCalls, text: "remote_vec.bytes of 1 MiB + 1 fails EMSGSIZE", check: rdmaSizeLimit},
		{n: 74, kind: "k", by: byCalls, text: "ARGS with DEST, two ARGS, MAP with DEST fail EINVAL; ARGS with an atomic works", check: controlCombinations},
		{n: 75, kind: "r", by: byCalls, text: "RDMA works on sockets of every transport (kernel: not on TCP or loopback)", check: rdmaOnEveryTransport},
		{n: 76, kind: "k", by: byCalls, text: "the lower half of a cookie is the key; remote address 0 is the first byte", check: cookieForm},
		{n: 77, kind: "k", by: byCalls, text: "RDMA_MAP stores the cookie that the peer gets as RDMA_DEST", check: mapStoresCookie},
		{n: 78, kind: "k", by: byCalls, text: "DEST with a key of another socket fails EINVAL", check: destOfOtherSocketFails},
		{n: 79, kind: "r", by: byCalls, text: "MAP works although nothing is connected yet (kernel: EAGAIN)", check: mapBeforeConnection},
		{n: 80, kind: "r", by: byCalls, text: "GET_MR and GET_MR_FOR_DEST work without a connection", check: getMRBeforeConnection},
		{n: 81, kind: "k", by: byCalls, text: "GET_MR: length 0 or wrapping EINVAL, 1 MiB + 2 pages EMSGSIZE, unbound ENOTCONN, a bad pointer EFAULT", check: getMRArguments},
		{n: 82, kind: "k", by: byCalls, text: "FREE_MR: a known cookie 0, again or unknown EINVAL, cookie 0 succeeds", check: freeMRCookies},
		{n: 83, kind: "r", by: byCalls, text: "after FREE_MR, with or without INVALIDATE, the key is of no use: REMOTE_ERROR", check: freedKeyIsUseless},
		{n: 84, kind: "k", by: byCalls, text: "a USE_ONCE key is gone before the reply is read: FREE_MR fails EINVAL", check: useOnceKeyGoesFirst},
		{n: 85, kind: "k", by: byCalls, text: "a reply to another socket that names the key does not free it", check: replyElsewhereKeepsKey},
		{n: 86, kind: "k", by: byCalls, text: "when the reply of a WRITE is received its data is complete", check: writeBeforeReply},
		{n: 87, kind: "k", by: byCalls, text: "when the reply of a READ is received the requester may overwrite its buffer", check: readBeforeReply},
		{n: 88, kind: "k", by: byCalls, text: "an empty reply arrives as an empty message", check: emptyReply},
		{n: 89, kind: "k", by: byCalls, text: "SILENT without payload or cookie: bytes are transferred, nothing is received", check: silentTransfers},
		{n: 90, kind: "k", by: byCalls, text: "SILENT with payload: the message arrives", check: silentWithPayload},
		{n: 91, kind: "k", by: byCalls, text: "unaligned addresses, 1 to 17 segments, sizes from 1 to 1 MiB transfer right", check: rdmaSizesAndPieces},
		{n: 92, kind: "k", by: byCalls, text: "NOTIFY_ME gives status 0 and the 64-bit token; without it nothing", check: notifyMeStatus},
		{n: 93, kind: "k", by: byCalls, text: "a bad key is REMOTE_ERROR; others' messages survive (here the connection too)", check: badKeyIsRemoteError},
		{n: 94, kind: "k", by: byCalls, text: "a remote offset out of range is REMOTE_ERROR", check: badOffsetIsRemoteError},
		{n: 95, kind: "k", by: byCalls, text: "a drop with operations in flight gives each exactly one status, SUCCESS or DROPPED", check: dropGivesOneStatus},
		{n: 96, kind: "r", by: byCalls, text: "DROPPED is raised although the peer stays away", check: droppedWithoutPeer},
		{n: 97, kind: "k", by: byCalls, text: "RECVERR without NOTIFY_ME: success is silent, a failure is reported", check: recvErrReports},
		{n: 98, kind: "k", by: byCalls, text: "an operation dropped on a bounce is not executed again", check: droppedNotRepeated},
		{n: 99, kind: "k", by: byCalls, text: "the message of a dropped operation is not delivered after the bounce", check: droppedNotDelivered},
		{n: 100, kind: "k", by: byCalls, text: "plain messages around dropped operations all arrive, in order, once", check: plainAroundDropped},
		{n: 101, kind: "k", by: byCalls, text: "RDMA messages still queued run after the reconnect", check: queuedRunsAfterReconnect},
		{n: 102, kind: "k", by: byCalls, text: "atomics return the old value at an aligned address, EFAULT at another; masks count", check: atomicResults},
		{n: 103, kind: "r", by: byCalls, text: "an atomic in flight at a bounce is never executed twice, and is reported", check: atomicNeverTwice},
		{n: 104, kind: "k", by: byCalls, text: "MSG_ZEROCOPY without a cookie fails EINVAL, with one it completes after the ack, on IB it fails EOPNOTSUPP", check: zeroCopyCookies},
		{n: 105, kind: "r", by: byCalls, text: "two processes of one daemon cannot use each other's keys", check: keysBelongToProcess},
		{n: 106, kind: "r", by: byCalls, text: "memory of a process that exits with operations in flight stays until they have ended, then it is freed", check: memoryOutlivesProcess},
	}
}

func rdmaSegmentCounts(t *testing.T, e *env) {
	r := newRDMA(t, e, 1<<16)
	to := r.to.local()
	a := cmsg.RDMAArgs{Cookie: r.cookie, RemoteVec: cmsg.IOVec{Bytes: 1 << 16}, LocalVecAddr: r.vecAt, Flags: cmsg.FlagReadWrite}
	vs := make([]cmsg.IOVec, 1025)
	for i := range vs {
		vs[i] = cmsg.IOVec{Addr: r.localAt + uint64(i), Bytes: 1}
	}
	r.vectors(vs...)
	for n, errno := range map[uint64]syscall.Errno{0: syscall.EINVAL, 1025: syscall.EMSGSIZE, 1 << 40: syscall.EMSGSIZE} {
		a.NrLocal = n
		want(t, fmt.Sprint(n), r.s.send(nil, to, argsControl(a)...), errno)
	}
	a.NrLocal = 1024
	r.s.mustSend(nil, to, argsControl(a)...)
	r.to.recv()
	a.NrLocal = 2
	r.vectors(cmsg.IOVec{Addr: r.localAt, Bytes: 5}, cmsg.IOVec{Addr: r.localAt})
	want(t, "an empty one", r.s.send(nil, to, argsControl(a)...), syscall.EINVAL)
	r.vectors(cmsg.IOVec{Addr: r.localAt, Bytes: 5}, cmsg.IOVec{Addr: r.localAt, Bytes: math.MaxUint64 - 8})
	want(t, "one that wraps", r.s.send(nil, to, argsControl(a)...), syscall.EINVAL)
	r.vectors(cmsg.IOVec{Addr: r.localAt, Bytes: 5}, cmsg.IOVec{Addr: 4096, Bytes: 5})
	want(t, "one that is no memory", r.s.send(nil, to, argsControl(a)...), syscall.EFAULT)
	a.LocalVecAddr = 4096
	want(t, "vector that is no memory", r.s.send(nil, to, argsControl(a)...), syscall.EFAULT)
	r.to.empty()
}

func rdmaLocalSum(t *testing.T, e *env) {
	r := newRDMA(t, e, 8192)
	to := r.to.local()
	a := cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite, RemoteVec: cmsg.IOVec{Bytes: 99}}
	want(t, "100 into 99", r.s.send(nil, to, r.args(a, 0, 100)...), syscall.EINVAL)
	copy(r.local, bytesOf(200, 1))
	a.RemoteVec.Bytes = 4000
	r.s.mustSend(nil, to, r.args(a, 0, 200)...)
	r.to.recv()
	if !slices.Equal(r.remote[:200], r.local[:200]) || r.remote[200] != 0 {
		t.Error("not 200 bytes were transferred")
	}
}

func rdmaSizeLimit(t *testing.T, e *env) {
	r := newRDMA(t, e, 4096)
	for _, n := range []uint64{cmsg.MaxMessage + 1, 1 << 40, math.MaxUint64} {
		a := cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite, RemoteVec: cmsg.IOVec{Bytes: n}}
		want(t, fmt.Sprint(n), r.s.send(nil, r.to.local(), r.args(a, 0, 100)...), syscall.EMSGSIZE)
	}
	a := cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite, RemoteVec: cmsg.IOVec{Bytes: cmsg.MaxMessage}}
	r.s.mustSend(nil, r.to.local(), r.args(a, 0, 100)...)
	r.to.recv()
}

func controlCombinations(t *testing.T, e *env) {
	r := newRDMA(t, e, 4096)
	to := r.to.local()
	own, err := getMR(r.s, r.localAt, 4096, 0)
	ok(t, "GET_MR", err)
	args := r.args(cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite}, 8, 8)
	dest := sendControl(t, cmsg.Send{Present: cmsg.Of(cmsg.TypeRDMADest), Dest: own})
	mapping := sendControl(t, cmsg.Send{Present: cmsg.Of(cmsg.TypeRDMAMap), Map: cmsg.GetMRArgs{Vec: cmsg.IOVec{Addr: r.localAt, Bytes: 8}}})
	atomic := atomicControl(cmsg.TypeAtomicFAdd, cmsg.AtomicArgs{Cookie: r.cookie, LocalAddr: r.localAt + 16, Word: [4]uint64{3}})
	for what, c := range map[string][]byte{
		"ARGS and DEST": slices.Concat(args, dest), "DEST and ARGS": slices.Concat(dest, args), "two ARGS": slices.Concat(args, args),
		"MAP and DEST": slices.Concat(mapping, dest), "atomic and MAP": slices.Concat(atomic, mapping), "two DEST": slices.Concat(dest, dest),
		"two atomics": slices.Concat(atomic, atomic),
	} {
		want(t, what, r.s.send(nil, to, c...), syscall.EINVAL)
	}
	r.to.empty()
	copy(r.local[8:], bytesOf(8, 5))
	binary.NativeEndian.PutUint64(r.remote, 40)
	r.s.mustSend([]byte("both"), to, slices.Concat(args, atomic)...)
	r.to.recv()
	if !slices.Equal(r.remote[8:16], r.local[8:16]) || binary.NativeEndian.Uint64(r.remote) != 43 {
		t.Errorf("remote memory %x", r.remote[:16])
	}
	eventually(t, "the old value", func() error {
		if v := binary.NativeEndian.Uint64(r.local[16:]); v != 40 {
			return fmt.Errorf("%d", v)
		}
		return nil
	})
}

func atomicControl(typ cmsg.Type, a cmsg.AtomicArgs) []byte {
	return cmsg.Append(nil, cmsg.SOLRDS, typ, a.Append(nil))
}

func rdmaOnEveryTransport(t *testing.T, e *env) {
	for name, transport := range map[string]int{"loop": -1, "IB": cmsg.TransportIB, "TCP": cmsg.TransportTCP} {
		s := e.ka.socket(t)
		if transport >= 0 {
			s.set(cmsg.SOLRDS, cmsg.OptTransport, i32(transport))
		}
		s.bind(e.a.at(0))
		r := newRDMABetween(t, s, e.kb.bound(t), 4096, 0)
		r.local[5] = 77
		if n := r.do(nil, cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite}, 0, 10); n.Status != cmsg.StatusSuccess || r.remote[5] != 77 {
			t.Errorf("%s: status %+v, byte %d", name, n, r.remote[5])
		}
	}
	// The same between two sockets of one host.
	r := newRDMABetween(t, e.ka.bound(t), e.ka.bound(t), 4096, 0)
	r.local[5] = 78
	if n := r.do(nil, cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite}, 0, 10); n.Status != cmsg.StatusSuccess || r.remote[5] != 78 {
		t.Errorf("one host: status %+v, byte %d", n, r.remote[5])
	}
}

func notifyMeStatus(t *testing.T, e *env) {
	r := newRDMA(t, e, 4096)
	const token = 0xfedc_ba98_7654_3210
	if n := r.do(nil, cmsg.RDMAArgs{UserToken: token, Flags: cmsg.FlagReadWrite}, 0, 1); n != (cmsg.Notify{UserToken: token}) {
		t.Errorf("status %+v", n)
	}
	r.s.mustSend(nil, r.to.local(), r.args(cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite, UserToken: 1}, 0, 1)...)
	if n := r.do(nil, cmsg.RDMAArgs{UserToken: 2}, 0, 1); n.UserToken != 2 {
		t.Errorf("status %+v without being asked for", n)
	}
	r.s.empty()
}

func badKeyIsRemoteError(t *testing.T, e *env) {
	r := newRDMA(t, e, 4096)
	s, to := flow(t, e)
	resets := e.a.counter(t, stats.ConnReset)
	for i := range 20 {
		s.deliver([]byte{byte(i)}, to.local())
		if n := r.do(nil, cmsg.RDMAArgs{Cookie: r.cookie ^ 0x55, Flags: cmsg.FlagReadWrite}, 0, 1); n.Status != cmsg.StatusRemoteError {
			t.Errorf("status %+v", n)
		}
	}
	for i := range 20 {
		if g := to.recv(); g.data[0] != byte(i) {
			t.Errorf("message %d: %x", i, g.data)
		}
	}
	if n := e.a.counter(t, stats.ConnReset); n != resets {
		t.Errorf("the connection was broken %d times", n-resets)
	}
	r.to.empty() // messages of failed operations are not delivered
}

func badOffsetIsRemoteError(t *testing.T, e *env) {
	r := newRDMA(t, e, 4096)
	r.local[0] = 1
	for _, off := range []uint64{4096, 4097 - 8, 1 << 40, math.MaxUint64 - 3} {
		a := cmsg.RDMAArgs{RemoteVec: cmsg.IOVec{Addr: off, Bytes: 8}, Flags: cmsg.FlagReadWrite}
		if n := r.do(nil, a, 0, 8); n.Status != cmsg.StatusRemoteError {
			t.Errorf("offset %#x: %+v", off, n)
		}
	}
	if !slices.Equal(r.remote, make([]byte, 4096)) {
		t.Error("memory was touched")
	}
}

func atomicResults(t *testing.T, e *env) {
	r := newRDMA(t, e, 4096)
	to := r.to.local()
	word := func(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }
	for _, c := range []struct {
		what     string
		typ      cmsg.Type
		words    [4]uint64
		was, now uint64
	}{
		{"fetch-add", cmsg.TypeAtomicFAdd, [4]uint64{5}, math.MaxUint64, 4},
		{"compare-swap", cmsg.TypeAtomicCSwp, [4]uint64{7, 9}, 7, 9},
		{"compare-swap that does not match", cmsg.TypeAtomicCSwp, [4]uint64{7, 9}, 8, 8},
		{"masked fetch-add", cmsg.TypeMaskedAtomicFAdd, [4]uint64{0x01_01, 0x80_80}, 0xff_ff, 0x00_00},
		{"masked fetch-add without fields", cmsg.TypeMaskedAtomicFAdd, [4]uint64{0x01_01, 0}, 0xff_ff, 0x1_01_00},
		{"masked compare-swap", cmsg.TypeMaskedAtomicCSwp, [4]uint64{0x12, 0xab_cd, 0xff, 0xff_00}, 0x34_12, 0xab_12},
		{"masked compare-swap that does not match", cmsg.TypeMaskedAtomicCSwp, [4]uint64{0x13, 0xab_cd, 0xff, 0xff_00}, 0x34_12, 0x34_12},
	} {
		binary.NativeEndian.PutUint64(r.remote[16:], c.was)
		clear(r.local)
		a := cmsg.AtomicArgs{Cookie: r.cookie, LocalAddr: r.localAt + 8, RemoteAddr: 16, Word: c.words, Flags: cmsg.FlagNotifyMe, UserToken: 3}
		r.s.mustSend(nil, to, atomicControl(c.typ, a)...)
		if n := r.s.status(); n != (cmsg.Notify{UserToken: 3}) {
			t.Errorf("%s: %+v", c.what, n)
		}
		r.to.recv()
		if old, now := word(r.local[8:]), word(r.remote[16:]); old != c.was || now != c.now {
			t.Errorf("%s: was %#x, is %#x, want %#x and %#x", c.what, old, now, c.was, c.now)
		}
	}
	a := cmsg.AtomicArgs{Cookie: r.cookie, LocalAddr: r.localAt + 4}
	want(t, "local address of 4", r.s.send(nil, to, atomicControl(cmsg.TypeAtomicFAdd, a)...), syscall.EFAULT)
	a.LocalAddr = 4096
	want(t, "local address of nothing", r.s.send(nil, to, atomicControl(cmsg.TypeAtomicFAdd, a)...), syscall.EFAULT)
	a = cmsg.AtomicArgs{Cookie: r.cookie, LocalAddr: r.localAt, RemoteAddr: 4, Flags: cmsg.FlagNotifyMe}
	r.s.mustSend(nil, to, atomicControl(cmsg.TypeAtomicFAdd, a)...)
	if n := r.s.status(); n.Status != cmsg.StatusRemoteError {
		t.Errorf("remote address of 4: %+v", n)
	}
	r.to.empty()
}

func zeroCopyCookies(t *testing.T, e *env) {
	s, to := flow(t, e)
	s.sndbuf(1 << 20)
	_, err := s.Sendmsg(nil, afrds.Sockaddr(to.local()), nil, msgZeroCopy)
	want(t, "flag without a cookie", err, syscall.EINVAL)
	want(t, "without SO_ZEROCOPY", zcopy(s, 10, to.local(), 1), syscall.EINVAL)
	s.set(syscall.SOL_SOCKET, soZeroCopy, i32(1))
	want(t, "cookie without the flag", s.send(nil, to.local(), sendControl(t, cmsg.Send{Present: cmsg.Of(cmsg.TypeZcopyCookie)})...), syscall.EINVAL)
	// A message that is not acked has no completion.
	dead := nobody()
	ok(t, "to a dead peer", zcopy(s, 5000, dead, 1))
	s.empty()
	for i := range 10 {
		ok(t, "zero copy", zcopy(s, 5000+i, to.local(), uint32(100+i)))
		if g := to.recv(); !slices.Equal(g.data, bytesOf(5000+i, byte(100+i))) {
			t.Errorf("message %d: %d bytes", i, g.N)
		}
	}
	var cookies []uint32
	for len(cookies) < 10 {
		s.polled(afrds.PollIn)
		if _, err := s.recvInto(nil, make([]byte, 51), syscall.MSG_DONTWAIT); !errors.Is(err, syscall.EAGAIN) {
			t.Errorf("without room for it: %v", err)
		}
		g, err := s.recvInto(nil, make([]byte, 56), syscall.MSG_DONTWAIT)
		ok(t, "recvmsg", err)
		if g.N != 0 || g.ControlLen != 56 {
			t.Errorf("%d bytes, control %x", g.N, g.raw)
		}
		z := g.control.Zcopy
		cookies = append(cookies, z.Cookies[:z.Num]...)
	}
	for i, c := range cookies {
		if c != uint32(100+i) {
			t.Errorf("cookies %v", cookies)
			break
		}
	}
	s.empty()
	s.cancel(dead)
	ib := e.ka.socket(t)
	ib.set(cmsg.SOLRDS, cmsg.OptTransport, i32(cmsg.TransportIB))
	ib.bind(e.a.at(0))
	ib.set(syscall.SOL_SOCKET, soZeroCopy, i32(1))
	want(t, "on IB", zcopy(ib, 10, to.local(), 1), syscall.EOPNOTSUPP)
}
