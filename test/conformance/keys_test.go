package conformance

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/afrds"
	"github.com/rdsd/rdsd/cmsg"
)

func cookieForm(t *testing.T, e *env) {
	r := newRDMA(t, e, 3*4096)
	const off = 4096 + 123
	cookie, err := getMRFor(r.to, r.s, r.remoteAt+off, 1000)
	ok(t, "GET_MR_FOR_DEST", err)
	other, err := getMRFor(r.to, r.s, r.remoteAt+off, 1000)
	ok(t, "GET_MR_FOR_DEST", err)
	if uint32(cookie) == uint32(other) {
		t.Errorf("two regions have the cookies %#x and %#x", cookie, other)
	}
	copy(r.local, bytesOf(1000, 4))
	r.to.mustSend(nil, r.s.local()) // the grant is there when the receiver has this message
	r.s.recv()
	a := cmsg.RDMAArgs{Cookie: cookie, Flags: cmsg.FlagReadWrite, RemoteVec: cmsg.IOVec{Addr: 0, Bytes: 1000}}
	if n := r.do(nil, a, 0, 1000); n.Status != cmsg.StatusSuccess {
		t.Errorf("status %+v", n)
	}
	if !slices.Equal(r.remote[off:off+1000], r.local[:1000]) || r.remote[off-1] != 0 || r.remote[off+1000] != 0 {
		t.Error("address 0 is not the first byte")
	}
}

// getMRFor registers memory for one peer and returns the cookie.
func getMRFor(s, peer *sock, at, n uint64) (uint64, error) {
	s.t.Helper()
	mem, cookieAt := alloc(s.t, s.k, 8)
	a := cmsg.GetMRForDestArgs{Dest: peer.local(), GetMRArgs: cmsg.GetMRArgs{Vec: cmsg.IOVec{Addr: at, Bytes: n}, CookieAddr: cookieAt}}
	b, err := a.Append(nil)
	ok(s.t, "encode", err)
	err = s.Setsockopt(cmsg.SOLRDS, cmsg.OptGetMRForDest, b)
	return binary.NativeEndian.Uint64(mem), err
}

func mapStoresCookie(t *testing.T, e *env) {
	s, to := flow(t, e)
	mem, at := alloc(t, e.ka, 8192)
	ctl := sendControl(t, cmsg.Send{Present: cmsg.Of(cmsg.TypeRDMAMap),
		Map: cmsg.GetMRArgs{Vec: cmsg.IOVec{Addr: at + 4096, Bytes: 100}, CookieAddr: at + 8}})
	s.mustSend([]byte("request"), to.local(), ctl...)
	cookie := binary.NativeEndian.Uint64(mem[8:])
	if g := to.recv(); cookie == 0 || g.control.Dest != cookie || g.ControlLen != 24 {
		t.Errorf("stored %#x, received %#x in %d bytes", cookie, g.control.Dest, g.ControlLen)
	}
}

func destOfOtherSocketFails(t *testing.T, e *env) {
	s, to := flow(t, e)
	other := e.ka.bound(t)
	_, at := alloc(t, e.ka, 4096)
	cookie, err := getMR(other, at, 4096, 0)
	ok(t, "GET_MR", err)
	ctl := sendControl(t, cmsg.Send{Present: cmsg.Of(cmsg.TypeRDMADest), Dest: cookie})
	want(t, "another socket's", s.send(nil, to.local(), ctl...), syscall.EINVAL)
	other.mustSend(nil, to.local(), ctl...)
	if g := to.recv(); g.control.Dest != cookie {
		t.Errorf("received %+v", g.control)
	}
	ok(t, "FREE_MR", other.Setsockopt(cmsg.SOLRDS, cmsg.OptFreeMR, cmsg.FreeMRArgs{Cookie: cookie}.Append(nil)))
	want(t, "freed", other.send(nil, to.local(), ctl...), syscall.EINVAL)
}

func mapBeforeConnection(t *testing.T, e *env) {
	p := pair(t)
	if _, there := p.b.peer(t, p.a.addr(), 0); there {
		t.Error("connected already")
	}
	r := newRDMA(t, p, 4096) // the MAP is the first message
	r.local[0] = 9
	if n := r.do(nil, cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite}, 0, 1); n.Status != cmsg.StatusSuccess || r.remote[0] != 9 {
		t.Errorf("status %+v", n)
	}
}

func getMRBeforeConnection(t *testing.T, e *env) {
	p := pair(t)
	s, to := p.ka.bound(t), p.kb.bound(t)
	mem, at := alloc(t, p.kb, 8192)
	plain, err := getMR(to, at, 4096, 0)
	ok(t, "GET_MR", err)
	granted, err := getMRFor(to, s, at+4096, 4096)
	ok(t, "GET_MR_FOR_DEST", err)
	r := newRDMABetween(t, s, to, 64, 0)
	// A key from GET_MR is granted with the DEST that carries it.
	to.mustSend(nil, s.local(), sendControl(t, cmsg.Send{Present: cmsg.Of(cmsg.TypeRDMADest), Dest: plain})...)
	if g := s.recv(); g.control.Dest != plain {
		t.Errorf("received %+v", g.control)
	}
	for i, cookie := range []uint64{plain, granted} {
		r.local[0] = byte(10 + i)
		if n := r.do(nil, cmsg.RDMAArgs{Cookie: cookie, Flags: cmsg.FlagReadWrite}, 0, 1); n.Status != cmsg.StatusSuccess || mem[4096*i] != byte(10+i) {
			t.Errorf("cookie %d: status %+v", i, n)
		}
	}
}

func getMRArguments(t *testing.T, e *env) {
	s := e.ka.bound(t)
	_, at := alloc(t, e.ka, 4<<20)
	for _, c := range []struct {
		what  string
		at, n uint64
		errno syscall.Errno
	}{
		{"length 0", at, 0, syscall.EINVAL},
		{"wrap", math.MaxUint64 - 10, 100, syscall.EINVAL},
		{"wrap of the last page", math.MaxUint64 - 10, 5, syscall.EINVAL},
		{"4 GiB", at, 1 << 32, syscall.EINVAL},
		{"1 MiB + 2 pages", at, 1<<20 + 2*4096, syscall.EMSGSIZE},
		{"1 MiB + 1 page, not aligned", at + 1, 1<<20 + 4096, syscall.EMSGSIZE},
		{"no memory", 4096, 100, syscall.EFAULT},
		{"beyond memory", at + 4<<20 - 10, 11, syscall.EFAULT},
	} {
		_, err := getMR(s, c.at, c.n, 0)
		want(t, c.what, err, c.errno)
	}
	for _, n := range []uint64{1, 1 << 20, 1<<20 + 4096} {
		_, err := getMR(s, at, n, 0)
		ok(t, fmt.Sprint(n), err)
	}
	_, err := getMR(e.ka.socket(t), at, 100, 0)
	want(t, "unbound", err, syscall.ENOTCONN)
	a := cmsg.GetMRArgs{Vec: cmsg.IOVec{Addr: at, Bytes: 100}, CookieAddr: 4096}
	want(t, "cookie address", s.Setsockopt(cmsg.SOLRDS, cmsg.OptGetMR, a.Append(nil)), syscall.EFAULT)
	want(t, "31 bytes", s.Setsockopt(cmsg.SOLRDS, cmsg.OptGetMR, a.Append(nil)[:31]), syscall.EINVAL)
}

func freeMRCookies(t *testing.T, e *env) {
	s := e.ka.bound(t)
	_, at := alloc(t, e.ka, 4096)
	cookie, err := getMR(s, at, 100, 0)
	ok(t, "GET_MR", err)
	free := func(c uint64) error {
		return s.Setsockopt(cmsg.SOLRDS, cmsg.OptFreeMR, cmsg.FreeMRArgs{Cookie: c}.Append(nil))
	}
	want(t, "unknown", free(cookie+1), syscall.EINVAL)
	ok(t, "0", free(0))
	ok(t, "known", free(cookie))
	want(t, "again", free(cookie), syscall.EINVAL)
	want(t, "8 bytes", s.Setsockopt(cmsg.SOLRDS, cmsg.OptFreeMR, make([]byte, 8)), syscall.EINVAL)
}

func freedKeyIsUseless(t *testing.T, e *env) {
	for _, flags := range []uint64{cmsg.FlagInvalidate, 0} {
		r := newRDMA(t, e, 4096)
		if n := r.do(nil, cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite}, 0, 1); n.Status != cmsg.StatusSuccess {
			t.Errorf("before: %+v", n)
		}
		ok(t, "FREE_MR", r.free(r.cookie, flags))
		clear(r.remote)
		r.local[0] = 9
		for _, dir := range []uint64{cmsg.FlagReadWrite, 0} {
			if n := r.do(nil, cmsg.RDMAArgs{Flags: dir}, 0, 1); n.Status != cmsg.StatusRemoteError {
				t.Errorf("flags %#x: %+v", flags, n)
			}
		}
		if r.remote[0] != 0 || r.local[0] != 9 {
			t.Error("memory was touched")
		}
	}
}

func useOnceKeyGoesFirst(t *testing.T, e *env) {
	r := newRDMABetween(t, e.ka.bound(t), e.kb.bound(t), 4096, cmsg.FlagUseOnce)
	second := r.expose(cmsg.FlagUseOnce)
	r.local[0] = 5
	r.s.mustSend([]byte("reply"), r.to.local(), r.args(cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite}, 0, 1)...)
	r.to.polled(afrds.PollIn) // queued and not read
	want(t, "FREE_MR of a used key", r.free(r.cookie, 0), syscall.EINVAL)
	if n := r.do(nil, cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite}, 0, 1); n.Status != cmsg.StatusRemoteError {
		t.Errorf("used again: %+v", n)
	}
	if r.to.recv(); r.remote[0] != 5 {
		t.Error("the first use did nothing")
	}
	ok(t, "FREE_MR of an unused key", r.free(second, 0))
}

func replyElsewhereKeepsKey(t *testing.T, e *env) {
	r := newRDMABetween(t, e.ka.bound(t), e.kb.bound(t), 4096, cmsg.FlagUseOnce)
	other := r.to.k.bound(t)
	r.s.mustSend(nil, other.local(), r.args(cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite | cmsg.FlagNotifyMe, UserToken: 1}, 0, 1)...)
	r.s.status()
	ok(t, "FREE_MR", r.free(r.cookie, 0)) // the region was not freed before
}

func keysBelongToProcess(t *testing.T, e *env) {
	victim := newRDMA(t, e, 4096) // its initiator has a grant of the key
	thief := newKernel(t, e.a)
	s := thief.bound(t)
	r := newRDMABetween(t, s, victim.to.k.bound(t), 4096, 0)
	copy(victim.remote, "secret")
	if n := r.do(nil, cmsg.RDMAArgs{Cookie: victim.cookie}, 0, 6); n.Status != cmsg.StatusRemoteError {
		t.Errorf("read: %+v", n)
	}
	if n := r.do(nil, cmsg.RDMAArgs{Cookie: victim.cookie, Flags: cmsg.FlagReadWrite}, 0, 6); n.Status != cmsg.StatusRemoteError {
		t.Errorf("write: %+v", n)
	}
	if string(victim.remote[:6]) != "secret" || strings.Contains(string(r.local), "secret") {
		t.Error("memory was touched")
	}
	want(t, "DEST of another process's key", s.send(nil, victim.to.local(),
		sendControl(t, cmsg.Send{Present: cmsg.Of(cmsg.TypeRDMADest), Dest: victim.cookie})...), syscall.EINVAL)
	own, err := getMR(victim.to, victim.remoteAt, 100, 0)
	ok(t, "GET_MR", err)
	want(t, "FREE_MR of another socket's key", r.free(own, 0), syscall.EINVAL)
}
