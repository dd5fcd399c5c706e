package conformance

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/rdsd/rdsd/afrds"
	"github.com/rdsd/rdsd/cmsg"
)

// alloc returns memory of a process and its address.
func alloc(t *testing.T, k *kernel, size int) ([]byte, uint64) {
	t.Helper()
	b, at, err := k.Alloc(size)
	ok(t, "alloc", err)
	return b.Bytes(), at
}

// sendControl returns s as a control buffer. Unlike Send.Append it does not check s, because a
// check must be able to send what Append refuses.
func sendControl(t *testing.T, s cmsg.Send) (b []byte) {
	t.Helper()
	add := func(typ cmsg.Type, data []byte) {
		if s.Present.Has(typ) {
			b = cmsg.Append(b, cmsg.SOLRDS, typ, data)
		}
	}
	add(cmsg.TypeRDMAArgs, s.Args.Append(nil))
	add(cmsg.TypeRDMADest, binary.NativeEndian.AppendUint64(nil, s.Dest))
	add(cmsg.TypeRDMAMap, s.Map.Append(nil))
	for typ := cmsg.TypeAtomicFAdd; typ <= cmsg.TypeMaskedAtomicCSwp; typ++ {
		add(typ, s.Atomic.Append(nil))
	}
	add(cmsg.TypeZcopyCookie, binary.NativeEndian.AppendUint32(nil, s.ZcopyCookie))
	return b
}

// rdma is an initiator on host a and a target on host b. The initiator has the cookie of the
// target's memory.
type rdma struct {
	t        *testing.T
	s, to    *sock
	local    []byte // the initiator's memory
	localAt  uint64
	vecAt    uint64 // behind local: room for 1024 rds_iovecs
	vec      []byte
	remote   []byte // the target's memory
	remoteAt uint64
	cookie   uint64
	token    uint64
}

const vecRoom = 1025 * cmsg.IOVecSize

// newRDMA makes both, over the network.
func newRDMA(t *testing.T, e *env, size int) *rdma {
	t.Helper()
	return newRDMABetween(t, e.ka.bound(t), e.kb.bound(t), size, 0)
}

func newRDMABetween(t *testing.T, s, to *sock, size int, flags uint64) *rdma {
	t.Helper()
	r := &rdma{t: t, s: s, to: to}
	mem, at := alloc(t, s.k, size+vecRoom)
	r.local, r.localAt = mem[:size], at
	r.vec, r.vecAt = mem[size:], at+uint64(size)
	r.remote, r.remoteAt = alloc(t, to.k, size)
	r.cookie = r.expose(flags)
	return r
}

// expose maps the target's memory in a message to the initiator, which gets the cookie with it.
func (r *rdma) expose(flags uint64) uint64 {
	r.t.Helper()
	ctl := sendControl(r.t, cmsg.Send{Present: cmsg.Of(cmsg.TypeRDMAMap),
		Map: cmsg.GetMRArgs{Vec: cmsg.IOVec{Addr: r.remoteAt, Bytes: uint64(len(r.remote))}, Flags: flags | cmsg.FlagReadWrite}})
	r.to.mustSend(nil, r.s.local(), ctl...)
	g := r.s.recv()
	if g.control.Dest == 0 {
		r.t.Fatalf("no cookie came: %+v", g.control)
	}
	return g.control.Dest
}

// vectors writes the local vector of an operation.
func (r *rdma) vectors(vs ...cmsg.IOVec) {
	b := r.vec[:0]
	for _, v := range vs {
		b = v.Append(b)
	}
}

// args returns the control data of an operation on n bytes at off, of the local and of the
// remote memory. It does not change fields that a has already.
func (r *rdma) args(a cmsg.RDMAArgs, off, n uint64) []byte {
	r.vectors(cmsg.IOVec{Addr: r.localAt + off, Bytes: n})
	if a.Cookie == 0 {
		a.Cookie = r.cookie
	}
	if a.RemoteVec == (cmsg.IOVec{}) {
		a.RemoteVec = cmsg.IOVec{Addr: off, Bytes: n}
	}
	if a.LocalVecAddr == 0 {
		a.LocalVecAddr = r.vecAt
	}
	if a.NrLocal == 0 {
		a.NrLocal = 1
	}
	return argsControl(a)
}

func argsControl(a cmsg.RDMAArgs) []byte {
	return cmsg.Append(nil, cmsg.SOLRDS, cmsg.TypeRDMAArgs, a.Append(nil))
}

// do sends one operation with a message and returns its status.
func (r *rdma) do(payload []byte, a cmsg.RDMAArgs, off, n uint64) cmsg.Notify {
	r.t.Helper()
	r.token++
	a.Flags |= cmsg.FlagNotifyMe
	if a.UserToken == 0 {
		a.UserToken = r.token
	}
	r.s.mustSend(payload, r.to.local(), r.args(a, off, n)...)
	return r.s.status()
}

// free frees a region of the target.
func (r *rdma) free(cookie, flags uint64) error {
	return r.to.Setsockopt(cmsg.SOLRDS, cmsg.OptFreeMR, cmsg.FreeMRArgs{Cookie: cookie, Flags: flags}.Append(nil))
}

// getMR registers n bytes at an address and returns the cookie.
func getMR(s *sock, at, n, flags uint64) (uint64, error) {
	s.t.Helper()
	mem, cookieAt := alloc(s.t, s.k, 8)
	a := cmsg.GetMRArgs{Vec: cmsg.IOVec{Addr: at, Bytes: n}, CookieAddr: cookieAt, Flags: flags}
	err := s.Setsockopt(cmsg.SOLRDS, cmsg.OptGetMR, a.Append(nil))
	return binary.NativeEndian.Uint64(mem), err
}

// barrier returns the mark of the operations to a host, after waiting for id.
func barrier(s *sock, to netip.Addr, id uint64, flags uint32) (uint64, error) {
	s.t.Helper()
	mem, at := alloc(s.t, s.k, 8)
	a := afrds.BarrierArgs{Dest: to, Flags: flags, RDMAIDAddr: at, WaitRDMAID: id}
	err := s.Setsockopt(cmsg.SOLRDS, cmsg.OptBarrier, a.Append(nil))
	return binary.NativeEndian.Uint64(mem), err
}

// mark returns the present high-water mark.
func mark(s *sock, to netip.Addr) uint64 {
	s.t.Helper()
	hwm, err := barrier(s, to, 0, 0)
	ok(s.t, "barrier", err)
	return hwm
}
