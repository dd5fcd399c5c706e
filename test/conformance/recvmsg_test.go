package conformance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/afrds"
	"github.com/rdsd/rdsd/cmsg"
)

func groupC() []statement {
	return []statement{
		{n: 37, kind: "k", by: byCalls, text: "nothing there: EAGAIN with MSG_DONTWAIT, ETIMEDOUT with SO_RCVTIMEO", check: recvNothingThere},
		{n: 38, kind: "k", by: byCalls, text: "a short buffer loses the rest of the message, with MSG_TRUNC", check: recvShortBuffer},
		{n: 39, kind: "k", by: byCalls, text: "MSG_TRUNC as a flag returns the full length", check: recvTruncLength},
		{n: 40, kind: "k", by: byCalls, text: "MSG_PEEK returns the same message again; with MSG_TRUNC and no buffer its size", check: recvPeek},
		{n: 41, kind: "k", by: byCalls, text: "an empty message returns 0 with its source", check: recvEmptyMessage},
		{n: 42, kind: "k", by: byCalls, text: "msg_namelen is 16 for IPv4 peers, 28 for IPv6 peers", check: recvNameLength},
		{n: 43, kind: "k", by: byCalls, text: "a status is returned before data, with 0 bytes and no data", check: recvStatusFirst},
		{n: 44, kind: "k", by: byCalls, text: "of five statuses 64 bytes of control take two, in order", check: recvStatusesInPieces},
		{n: 45, kind: "r", by: byCalls, text: "without control room a status is kept, with MSG_CTRUNC", check: recvStatusWithoutRoom},
		{n: 46, kind: "k", by: byCalls, text: "SO_TIMESTAMP gives a SOL_SOCKET timestamp with data", check: recvTimestamp},
		{n: 47, kind: "k", by: byCalls, text: "the latency option with positions 0, 1, 2 gives three values in 48 bytes; position 3 or four of them fail EFAULT", check: recvPathLatency},
		{n: 48, kind: "k", by: byCalls, text: "MSG_OOB on receive returns 0", check: recvOOBReturnsZero},
		{n: 49, kind: "k", by: byCalls, text: "POLLOUT if less than the limit is queued, also when the peer is congested", check: pollOut},
		{n: 50, kind: "k", by: byCalls, text: "POLLIN on data, status, relief of congestion, zero-copy completion; never POLLHUP", check: pollIn},
		{n: 51, kind: "k", by: byCalls, text: "without the monitor one POLLIN|POLLWRBAND per change of the map, then quiet", check: pollWriteBand},
		{n: 52, kind: "k", by: byCalls, text: "epoll, edge and level triggered, sees each new message", check: epollSeesEach},
		{n: 53, kind: "k", by: byCalls, text: "two threads in recvmsg on one socket get different messages", check: twoReceivers},
		{n: 54, kind: "k", by: byCalls, text: "close with queued data frees the port at once", check: closeFreesPort},
		{n: 55, kind: "k", by: byCalls, text: "close cancels what was not sent: the peer never sees anything twice", check: closeCancelsUnsent},
	}
}

func recvNothingThere(t *testing.T, e *env) {
	s := e.ka.bound(t)
	s.empty()
	s.timeo(soRcvTimeo, 30*time.Millisecond)
	start := time.Now()
	_, err := s.recvInto(nil, nil, 0)
	want(t, "SO_RCVTIMEO", err, syscall.ETIMEDOUT)
	if d := time.Since(start); d < 30*time.Millisecond {
		t.Errorf("after %v", d)
	}
	s.timeo(soRcvTimeo, 0)
	interrupted(t, s, func() error { _, err := s.recvInto(nil, nil, 0); return err })
	e.ka.socket(t).empty() // not bound
}

// flow returns two sockets. The second one has messages from the first.
func flow(t *testing.T, e *env, payloads ...[]byte) (s, to *sock) {
	t.Helper()
	s, to = e.ka.bound(t), e.kb.bound(t)
	for _, p := range payloads {
		s.mustSend(p, to.local())
	}
	if len(payloads) > 0 {
		to.polled(afrds.PollIn)
	}
	return s, to
}

func recvShortBuffer(t *testing.T, e *env) {
	p := bytesOf(1000, 1)
	_, to := flow(t, e, p, []byte("next"))
	g, err := to.recvInto(make([]byte, 100), nil, 0)
	ok(t, "recvmsg", err)
	if g.N != 100 || g.Flags != syscall.MSG_TRUNC || !slices.Equal(g.data, p[:100]) {
		t.Errorf("returned %d, flags %#x", g.N, g.Flags)
	}
	if g := to.recv(); string(g.data) != "next" || g.Flags != 0 {
		t.Errorf("then %q, flags %#x", g.data, g.Flags)
	}
}

func recvTruncLength(t *testing.T, e *env) {
	_, to := flow(t, e, make([]byte, 1000))
	g, err := to.recvInto(make([]byte, 100), nil, syscall.MSG_TRUNC)
	ok(t, "recvmsg", err)
	if g.N != 1000 || g.Flags != syscall.MSG_TRUNC {
		t.Errorf("returned %d, flags %#x", g.N, g.Flags)
	}
	to.empty()
}

func recvPeek(t *testing.T, e *env) {
	p := bytesOf(1000, 9)
	_, to := flow(t, e, p)
	for range 2 {
		g, err := to.recvInto(make([]byte, 2000), nil, syscall.MSG_PEEK)
		ok(t, "peek", err)
		if !slices.Equal(g.data, p) || g.Flags != 0 {
			t.Errorf("peeked at %d bytes, flags %#x", g.N, g.Flags)
		}
	}
	g, err := to.recvInto(nil, nil, syscall.MSG_PEEK|syscall.MSG_TRUNC)
	ok(t, "peek at the size", err)
	if g.N != len(p) {
		t.Errorf("size %d", g.N)
	}
	if g := to.recv(); !slices.Equal(g.data, p) {
		t.Errorf("received %d bytes", g.N)
	}
	to.empty()
}

func recvEmptyMessage(t *testing.T, e *env) {
	s, to := flow(t, e, nil)
	if g := to.recv(); g.N != 0 || g.from != s.local() {
		t.Errorf("%d bytes from %v", g.N, g.from)
	}
}

// host6 starts a daemon with the IPv6 loopback address and an IPv4 address.
func host6(t *testing.T) *host {
	t.Helper()
	// There is only one IPv6 loopback address, so the port has to keep tests apart.
	return newHost(t, []netip.Addr{netip.IPv6Loopback(), newAddress()}, "-port", fmt.Sprint(20000+rand.IntN(20000)))
}

func recvNameLength(t *testing.T, e *env) {
	s, to := flow(t, e, nil)
	if g := to.recv(); g.NameLen != 16 || g.from != s.local() {
		t.Errorf("IPv4: from %v in %d bytes", g.from, g.NameLen)
	}
	k := newKernel(t, host6(t))
	s6, to6 := k.bound(t), k.bound(t)
	s6.mustSend(nil, to6.local())
	if g := to6.recv(); g.NameLen != 28 || g.from != s6.local() || !g.from.Addr().Is6() {
		t.Errorf("IPv6: from %v in %d bytes", g.from, g.NameLen)
	}
}

func recvStatusFirst(t *testing.T, e *env) {
	r := newRDMA(t, e, 4096)
	r.to.mustSend([]byte("data"), r.s.local())
	r.s.polled(afrds.PollIn)
	r.statuses(1)
	if n := r.s.status(); n != (cmsg.Notify{UserToken: 1}) {
		t.Errorf("status %+v", n)
	}
	if g := r.s.recv(); string(g.data) != "data" || len(g.control.Status) > 0 {
		t.Errorf("then %q, %+v", g.data, g.control)
	}
}

// statuses leaves n statuses at the initiator, with tokens from 1.
func (r *rdma) statuses(n int) {
	r.t.Helper()
	for i := range n {
		r.s.mustSend(nil, r.to.local(), r.args(cmsg.RDMAArgs{UserToken: uint64(i + 1), Flags: cmsg.FlagNotifyMe | cmsg.FlagReadWrite}, 0, 64)...)
	}
	hwm, err := barrier(r.s, r.to.local().Addr(), uint64(n), 0)
	if err != nil || hwm < uint64(n) {
		r.t.Fatalf("mark %d, %v", hwm, err)
	}
	for range n {
		r.to.recv()
	}
	eventually(r.t, "settled", func() error {
		if si, _ := r.s.k.h.socket(r.t, r.s.local()); si.Ops != 0 {
			return fmt.Errorf("%d operations are outstanding", si.Ops)
		}
		return nil
	})
}

func tokens(g got) (ts []uint64) {
	for _, n := range g.control.Status {
		ts = append(ts, n.UserToken)
	}
	return ts
}

func recvStatusesInPieces(t *testing.T, e *env) {
	r := newRDMA(t, e, 4096)
	r.statuses(5)
	for _, c := range []struct {
		room int
		want []uint64
	}{{64, []uint64{1, 2}}, {95, []uint64{3, 4}}, {512, []uint64{5}}} {
		g, err := r.s.recvInto(make([]byte, 10), make([]byte, c.room), syscall.MSG_DONTWAIT)
		ok(t, "recvmsg", err)
		if !slices.Equal(tokens(g), c.want) || g.N != 0 || g.Flags != 0 {
			t.Errorf("room %d: tokens %v, %d bytes, flags %#x", c.room, tokens(g), g.N, g.Flags)
		}
	}
	r.s.empty()
}

func recvStatusWithoutRoom(t *testing.T, e *env) {
	r := newRDMA(t, e, 4096)
	r.statuses(1)
	r.to.mustSend([]byte("data"), r.s.local())
	for _, room := range []int{0, 31} {
		g, err := r.s.recvInto(make([]byte, 10), make([]byte, room), syscall.MSG_DONTWAIT)
		ok(t, "recvmsg", err)
		if g.Flags != syscall.MSG_CTRUNC || g.N != 0 || g.NameLen != 0 || g.ControlLen != 0 {
			t.Errorf("room %d: flags %#x, %d bytes", room, g.Flags, g.N)
		}
		if r.s.poll(afrds.PollIn) == 0 {
			t.Error("poll does not tell of it any more")
		}
	}
	if n := r.s.status(); n.UserToken != 1 {
		t.Errorf("status %+v", n)
	}
	r.s.recv()
}

func recvTimestamp(t *testing.T, e *env) {
	s, to := flow(t, e)
	to.set(syscall.SOL_SOCKET, soTimestamp, i32(1))
	before := time.Now()
	s.mustSend([]byte("x"), to.local())
	g := to.recv()
	m, rest, more, err := cmsg.Next(g.raw)
	if err != nil || !more || len(rest) > 0 || m.Level != syscall.SOL_SOCKET || m.Type != soTimestamp || len(m.Data) != 16 {
		t.Fatalf("control %x", g.raw)
	}
	at := time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:]))*1000)
	if at.Before(before.Truncate(time.Microsecond)) || at.After(time.Now()) {
		t.Errorf("stamped %v, sent %v", at, before)
	}
	to.set(syscall.SOL_SOCKET, soTimestamp, i32(0))
	s.mustSend([]byte("x"), to.local())
	if g := to.recv(); g.ControlLen != 0 {
		t.Errorf("off: control %x", g.raw)
	}
}

func recvPathLatency(t *testing.T, e *env) {
	s, to := flow(t, e)
	for what, o := range map[string][]byte{"position 3": {1, 3, 0, 0}, "four": {4, 0, 1, 2}, "3 bytes": {1, 0, 0}, "5 bytes": {1, 0, 0, 0, 0}} {
		want(t, what, to.Setsockopt(cmsg.SOLRDS, cmsg.OptRxPathLatency, o), syscall.EFAULT)
	}
	to.set(cmsg.SOLRDS, cmsg.OptRxPathLatency, []byte{3, 0, 1, 2})
	start := time.Now()
	s.mustSend(make([]byte, 5000), to.local())
	to.polled(afrds.PollIn)
	time.Sleep(5 * time.Millisecond) // the time that the check measures
	g := to.recv()
	tr := g.control.Trace
	if g.ControlLen != 48 || tr.Traces != 3 || tr.Pos != [3]uint8{0, 1, 2} {
		t.Fatalf("control of %d bytes, %+v", g.ControlLen, tr)
	}
	all := time.Duration(tr.Nanos[0] + tr.Nanos[1] + tr.Nanos[2])
	if d := time.Duration(tr.Nanos[2]); d < 4*time.Millisecond || all > time.Since(start) {
		t.Errorf("%+v, of %v", tr, time.Since(start))
	}
}

func recvOOBReturnsZero(t *testing.T, e *env) {
	_, to := flow(t, e, []byte("x"))
	g, err := to.recvInto(make([]byte, 10), nil, syscall.MSG_OOB)
	if err != nil || g.N != 0 || g.NameLen != 0 {
		t.Errorf("%d bytes, %v", g.N, err)
	}
	to.recv() // the message is still there
}

// zcopy sends n bytes of fresh memory with MSG_ZEROCOPY.
func zcopy(s *sock, n int, to netip.AddrPort, cookie uint32) error {
	s.t.Helper()
	mem, _ := alloc(s.t, s.k, n)
	copy(mem, bytesOf(n, byte(cookie)))
	ctl := sendControl(s.t, cmsg.Send{Present: cmsg.Of(cmsg.TypeZcopyCookie), ZcopyCookie: cookie})
	_, err := s.Sendmsg(mem, afrds.Sockaddr(to), ctl, syscall.MSG_DONTWAIT|msgZeroCopy)
	return err
}

func twoReceivers(t *testing.T, e *env) {
	s, to := flow(t, e)
	const n = 400
	var mu sync.Mutex
	seen := map[uint32]int{}
	var readers sync.WaitGroup
	to.timeo(soRcvTimeo, patience)
	for range 2 {
		readers.Go(func() {
			for {
				g, err := to.recvInto(make([]byte, 8), nil, 0)
				if err != nil || g.N != 4 {
					return // interrupted, or at the end
				}
				mu.Lock()
				seen[binary.BigEndian.Uint32(g.data)]++
				mu.Unlock()
			}
		})
	}
	for i := range n {
		s.deliver(binary.BigEndian.AppendUint32(nil, uint32(i)), to.local())
	}
	s.deliver(nil, to.local()) // one message for each reader
	s.deliver(nil, to.local())
	readers.Wait()
	for i := range n {
		if seen[uint32(i)] != 1 {
			t.Errorf("message %d was received %d times", i, seen[uint32(i)])
		}
	}
}

func closeFreesPort(t *testing.T, e *env) {
	s, to := flow(t, e, []byte("unread"))
	s.mustSend(make([]byte, 50000), nobody()) // it stays unsent
	for _, x := range []*sock{s, to} {
		at := x.local()
		ok(t, "close", x.Close())
		again := x.k.socket(t)
		ok(t, "bind after close", again.Bind(afrds.Sockaddr(at)))
		again.empty()
	}
}

func closeCancelsUnsent(t *testing.T, e *env) {
	p := pair(t)
	to := p.kb.bound(t)
	to.rcvbuf(16 << 20)
	const rounds, per = 30, 40
	for round := range rounds {
		s := p.ka.bound(t)
		s.sndbuf(1 << 20)
		for i := range per {
			s.mustSend(append([]byte{byte(round), byte(i)}, make([]byte, 2000)...), to.local())
		}
		if round%10 == 5 {
			p.a.reset(t, p.b)
		}
		ok(t, "close", s.Close())
	}
	// A socket that stays sends the last message. Messages sent before it have arrived then.
	last := p.ka.bound(t)
	last.mustSend(nil, to.local())
	round, next := -1, 0
	for {
		g := to.recv()
		if g.N == 0 {
			break
		}
		r, i := int(g.data[0]), int(g.data[1])
		if r > round {
			round, next = r, 0
		}
		if r < round || i < next {
			t.Fatalf("message %d of socket %d after %d of %d: twice or out of order", i, r, next-1, round)
		}
		next = i + 1
	}
	to.empty()
	if _, err := to.recvInto(nil, nil, syscall.MSG_DONTWAIT); !errors.Is(err, syscall.EAGAIN) {
		t.Error(err)
	}
}
