package conformance

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/cmsg"
)

func writeBeforeReply(t *testing.T, e *env) {
	const size, rounds = 32 << 10, 400
	r := newRDMA(t, e, size)
	for i := range rounds {
		n := 1 + rand.IntN(size)
		fill := byte(i)
		for j := range r.local[:n] {
			r.local[j] = fill + byte(j>>8)
		}
		r.s.mustSend(binary.BigEndian.AppendUint32(nil, uint32(n)), r.to.local(), r.args(cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite}, 0, uint64(n))...)
		g := r.to.recv()
		got := int(binary.BigEndian.Uint32(g.data))
		for j, b := range r.remote[:got] {
			if b != fill+byte(j>>8) {
				t.Fatalf("round %d: byte %d of %d is %#x", i, j, got, b)
			}
		}
		hwm, err := barrier(r.s, r.to.local().Addr(), uint64(i+1), 0) // then the local buffer is ours again
		if err != nil || hwm < uint64(i+1) {
			t.Fatalf("mark %d, %v", hwm, err)
		}
	}
}

func readBeforeReply(t *testing.T, e *env) {
	const size, rounds = 32 << 10, 400
	r := newRDMA(t, e, size)
	for i := range rounds {
		copy(r.remote, bytesOf(size, byte(i)))
		r.s.mustSend(nil, r.to.local(), r.args(cmsg.RDMAArgs{Flags: cmsg.FlagFence}, 0, size)...)
		r.to.recv()
		clear(r.remote) // at once, because the local buffer is ours again
		if hwm, err := barrier(r.s, r.to.local().Addr(), uint64(i+1), 0); err != nil || hwm < uint64(i+1) {
			t.Fatalf("mark %d, %v", hwm, err)
		}
		if !slices.Equal(r.local, bytesOf(size, byte(i))) {
			t.Fatalf("round %d: the copy is not intact", i)
		}
	}
}

func emptyReply(t *testing.T, e *env) {
	r := newRDMA(t, e, 4096)
	r.s.mustSend(nil, r.to.local(), r.args(cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite}, 0, 1)...)
	if g := r.to.recv(); g.N != 0 || g.from != r.s.local() {
		t.Errorf("%d bytes from %v", g.N, g.from)
	}
}

func silentTransfers(t *testing.T, e *env) {
	r := newRDMA(t, e, 4096)
	r.local[0] = 5
	if n := r.do(nil, cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite | cmsg.FlagSilent}, 0, 1); n.Status != cmsg.StatusSuccess || r.remote[0] != 5 {
		t.Errorf("status %+v, byte %d", n, r.remote[0])
	}
	// Only messages sent after it are received after it.
	r.s.mustSend([]byte("next"), r.to.local())
	if g := r.to.recv(); string(g.data) != "next" {
		t.Errorf("received %q", g.data)
	}
}

func silentWithPayload(t *testing.T, e *env) {
	r := newRDMA(t, e, 4096)
	r.s.mustSend([]byte("reply"), r.to.local(), r.args(cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite | cmsg.FlagSilent}, 0, 1)...)
	if g := r.to.recv(); string(g.data) != "reply" {
		t.Errorf("received %q", g.data)
	}
	// If one of two operations is not silent, the message is delivered.
	both := slices.Concat(r.args(cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite | cmsg.FlagSilent}, 8, 8),
		atomicControl(cmsg.TypeAtomicFAdd, cmsg.AtomicArgs{Cookie: r.cookie, LocalAddr: r.localAt + 64}))
	r.s.mustSend(nil, r.to.local(), both...)
	if g := r.to.recv(); g.N != 0 {
		t.Errorf("received %q", g.data)
	}
}

func rdmaSizesAndPieces(t *testing.T, e *env) {
	const size = 1<<20 + 8192
	// A region has at most 1 MiB and a page, so the target gets one of its own.
	s, to := e.ka.bound(t), e.kb.bound(t)
	r := &rdma{t: t, s: s, to: to}
	mem, at := alloc(t, s.k, size+vecRoom)
	r.local, r.localAt, r.vec, r.vecAt = mem[:size], at, mem[size:], at+size
	r.remote, r.remoteAt = alloc(t, to.k, 1<<20+4096)
	r.cookie = r.expose(0)
	for _, n := range []int{1, 4095, 4096, 4097, 1 << 20} {
		for segs := 1; segs <= 17; segs += 4 {
			if segs > n {
				continue
			}
			for _, flags := range []uint64{cmsg.FlagReadWrite, 0} {
				r.transfer(n, segs, flags)
			}
		}
	}
}

// transfer moves n bytes in segments at odd offsets, to or from an odd address. It checks these
// bytes and the bytes around them.
func (r *rdma) transfer(n, segs int, flags uint64) {
	r.t.Helper()
	const off, step = 3, 257
	data := bytesOf(n, byte(n+segs))
	var vs []cmsg.IOVec
	var places [][]byte
	for at, left := 1, n; left > 0; {
		part := left
		if len(vs) < segs-1 {
			part = n / segs
		}
		vs = append(vs, cmsg.IOVec{Addr: r.localAt + uint64(at), Bytes: uint64(part)})
		places = append(places, r.local[at:at+part])
		at += part + step
		left -= part
	}
	clear(r.local)
	clear(r.remote)
	if flags&cmsg.FlagReadWrite == 0 {
		copy(r.remote[off:], data)
	} else {
		rest := data
		for _, p := range places {
			rest = rest[copy(p, rest):]
		}
	}
	r.vectors(vs...)
	a := cmsg.RDMAArgs{Cookie: r.cookie, RemoteVec: cmsg.IOVec{Addr: off, Bytes: uint64(n)}, LocalVecAddr: r.vecAt,
		NrLocal: uint64(len(vs)), Flags: flags | cmsg.FlagNotifyMe}
	r.s.mustSend(nil, r.to.local(), argsControl(a)...)
	if st := r.s.status(); st.Status != cmsg.StatusSuccess {
		r.t.Fatalf("%d bytes, %d segments: %+v", n, segs, st)
	}
	r.to.recv()
	if !slices.Equal(slices.Concat(places...), data) || !slices.Equal(r.remote[off:off+n], data) {
		r.t.Fatalf("%d bytes, %d segments, flags %#x: not what was sent", n, segs, flags)
	}
	if r.remote[off-1]|r.remote[off+n]|r.local[0] != 0 {
		r.t.Fatalf("%d bytes, %d segments: more was written", n, segs)
	}
}
