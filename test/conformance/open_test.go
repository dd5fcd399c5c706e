package conformance

import (
	"testing"

	"github.com/rdsd/rdsd/cmsg"
)

func groupN() []statement {
	return []statement{
		{n: 205, kind: "k", by: byCalls, text: "a key of GET_MR is good for every socket that shows the cookie, however it came by it", check: cookieIsEnough},
		{n: 206, kind: "r", by: byCalls, text: "a key of GET_MR_FOR_DEST or RDMA_MAP is REMOTE_ERROR for others (kernel: good)", check: cookieIsNotEnough},
	}
}

// uses has s write to the target's memory with a cookie, and returns the status.
func (r *rdma) uses(s *sock, cookie uint64) int32 {
	r.t.Helper()
	x := &rdma{t: r.t, s: s, to: r.to, cookie: cookie}
	mem, at := alloc(r.t, s.k, 4096+vecRoom)
	x.local, x.localAt, x.vec, x.vecAt = mem[:4096], at, mem[4096:], at+4096
	copy(x.local, "shown")
	return x.do(nil, cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite}, 0, 5).Status
}

func cookieIsEnough(t *testing.T, e *env) {
	r := newRDMA(t, e, 4096)
	cookie, err := getMR(r.to, r.remoteAt, 4096, 0)
	ok(t, "GET_MR", err)
	for _, k := range []*kernel{e.ka, newKernel(t, e.a), e.kb, newKernel(t, e.b)} {
		clear(r.remote)
		if st := r.uses(k.bound(t), cookie); st != cmsg.StatusSuccess || string(r.remote[:5]) != "shown" {
			t.Errorf("status %d, memory %q", st, r.remote[:5])
		}
	}
	ok(t, "FREE_MR", r.free(cookie, 0))
	for _, k := range []*kernel{e.ka, e.kb} {
		if st := r.uses(k.bound(t), cookie); st != cmsg.StatusRemoteError {
			t.Errorf("a key that was freed: status %d", st)
		}
	}
}

func cookieIsNotEnough(t *testing.T, e *env) {
	r := newRDMA(t, e, 4096)
	cookie, err := getMRFor(r.to, r.s, r.remoteAt, 4096)
	ok(t, "GET_MR_FOR_DEST", err)
	for _, c := range []uint64{cookie, r.cookie} {
		for _, k := range []*kernel{e.ka, e.kb} {
			if st := r.uses(k.bound(t), c); st != cmsg.StatusRemoteError || r.remote[0] != 0 {
				t.Errorf("status %d, memory %q", st, r.remote[:5])
			}
		}
	}
}
