package conformance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/afrds"
	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/internal/stats"
)

func groupB() []statement {
	return []statement{
		{n: 19, kind: "k", by: byCalls, text: "sendmsg on an unbound socket fails ENOTCONN", check: sendUnboundFails},
		{n: 20, kind: "k", by: byCalls, text: "sendmsg without a name on a socket that is not connected fails ENOTCONN", check: sendWithoutNameFails},
		{n: 21, kind: "k", by: byCalls, text: "MSG_OOB, MSG_EOR, MSG_MORE and MSG_NOSIGNAL fail EOPNOTSUPP", check: sendFlagsFail},
		{n: 22, kind: "k", by: byCalls, text: "a name of 15 bytes or of 0.0.0.0 fails EINVAL", check: sendToBadNameFails},
		{n: 23, kind: "k", by: byCalls, text: "an IPv6 destination from an IPv4 socket fails EOPNOTSUPP", check: sendIPv6FromIPv4Fails},
		{n: 24, kind: "k", by: byCalls, text: "1 MiB + 1 fails EMSGSIZE; 1 MiB with a large SO_SNDBUF arrives whole", check: sendLargest},
		{n: 25, kind: "k", by: byCalls, text: "a payload above the SO_SNDBUF limit fails EMSGSIZE; one of it succeeds", check: sendBufferLimitsPayload},
		{n: 26, kind: "k", by: byCalls, text: "of messages of half the limit + 1 to a dead peer two are queued and the third fails EAGAIN", check: sendBufferFills},
		{n: 27, kind: "k", by: byCalls, text: "empty messages to a dead peer do not fail EAGAIN (here up to one destination's share of the process's message ids)", check: emptySendsAreFree},
		{n: 28, kind: "k", by: byCalls, text: "a send to an unreachable peer succeeds and no error is ever reported", check: sendToUnreachableSucceeds},
		{n: 29, kind: "k", by: byCalls, text: "a send blocked on a full queue fails ETIMEDOUT after SO_SNDTIMEO, EINTR when interrupted", check: blockedSendEnds},
		{n: 30, kind: "k", by: byCalls, text: "a non-blocking send to a congested port fails ENOBUFS", check: sendToCongestedFails},
		{n: 31, kind: "k", by: byCalls, text: "a blocking send to a congested port returns after relief; here SO_SNDTIMEO counts", check: sendWaitsForRelief},
		{n: 32, kind: "k", by: byCalls, text: "the return value counts payload, not RDMA bytes", check: sendReturnsPayload},
		{n: 33, kind: "k", by: byCalls, text: "an unknown SOL_RDS control message fails EINVAL; one of another level is ignored", check: unknownControlFails},
		{n: 34, kind: "k", by: byCalls, text: "a cmsg_len below its header or beyond the control data fails EINVAL", check: badControlLengthFails},
		{n: 35, kind: "k", by: byCalls, text: "messages of one socket to one destination arrive in order across bounces", check: orderAcrossBounces},
		{n: 36, kind: "k", by: byCalls, text: "a failed send leaves no trace: no bytes queued, no region, no sequence", check: failedSendLeavesNothing},
	}
}

func sendUnboundFails(t *testing.T, e *env) {
	s := e.ka.socket(t)
	want(t, "with a name", s.send(nil, e.b.at(4000)), syscall.ENOTCONN)
	ok(t, "connect", s.Connect(afrds.Sockaddr(e.b.at(4000))))
	_, err := s.Sendmsg(nil, nil, nil, 0)
	want(t, "connected", err, syscall.ENOTCONN)
}

func sendWithoutNameFails(t *testing.T, e *env) {
	s := e.ka.bound(t)
	_, err := s.Sendmsg(nil, nil, nil, 0)
	want(t, "sendmsg", err, syscall.ENOTCONN)
	to := e.kb.bound(t)
	ok(t, "connect", s.Connect(afrds.Sockaddr(to.local())))
	_, err = s.Sendmsg([]byte("x"), nil, nil, 0)
	ok(t, "connected", err)
	to.recv()
}

func sendFlagsFail(t *testing.T, e *env) {
	s, to := e.ka.bound(t), e.kb.bound(t)
	const more = 0x8000
	for _, f := range []int{syscall.MSG_OOB, syscall.MSG_EOR, more, syscall.MSG_NOSIGNAL, syscall.MSG_DONTROUTE} {
		_, err := s.Sendmsg(nil, afrds.Sockaddr(to.local()), nil, f)
		want(t, fmt.Sprintf("flag %#x", f), err, syscall.EOPNOTSUPP)
		// The flags are checked before everything else.
		_, err = e.ka.socket(t).Sendmsg(nil, []byte{1}, []byte{1}, f)
		want(t, fmt.Sprintf("flag %#x with everything else wrong", f), err, syscall.EOPNOTSUPP)
	}
	to.empty()
}

func sendToBadNameFails(t *testing.T, e *env) {
	s := e.ka.bound(t)
	good := afrds.Sockaddr(e.b.at(4000))
	unspec := slices.Clone(good)
	binary.NativeEndian.PutUint16(unspec, 7)
	for what, name := range map[string][]byte{
		"15 bytes": good[:15], "0.0.0.0": sockaddr("0.0.0.0:4000"), "broadcast": sockaddr("255.255.255.255:4000"),
		"multicast": sockaddr("224.0.0.1:4000"), "another family": unspec, "27 bytes of IPv6": sockaddr("[::1]:4000")[:27],
		"link-local without a scope": sockaddr("[fe80::1]:4000"), "::": sockaddr("[::]:4000"),
	} {
		_, err := s.Sendmsg(nil, name, nil, 0)
		want(t, what, err, syscall.EINVAL)
	}
}

func sendIPv6FromIPv4Fails(t *testing.T, e *env) {
	want(t, "IPv6 from IPv4", e.ka.bound(t).send(nil, netip.MustParseAddrPort("[::1]:4000")), syscall.EOPNOTSUPP)
}

func sendLargest(t *testing.T, e *env) {
	s, to := e.ka.bound(t), e.kb.bound(t)
	s.sndbuf(4 << 20)
	want(t, "1 MiB + 1", s.send(make([]byte, cmsg.MaxMessage+1), to.local()), syscall.EMSGSIZE)
	p := bytesOf(cmsg.MaxMessage, 3)
	s.mustSend(p, to.local())
	if g := to.recv(); g.N != len(p) || !slices.Equal(g.data, p) {
		t.Errorf("%d bytes arrived", g.N)
	}
}

func sendBufferLimitsPayload(t *testing.T, e *env) {
	s, to := e.ka.bound(t), e.kb.bound(t)
	const limit = 5000
	s.sndbuf(limit)
	if v := s.getint(syscall.SOL_SOCKET, soSndBuf); v != 2*limit {
		t.Errorf("SO_SNDBUF reads %d, want twice what was set", v)
	}
	want(t, "limit + 1", s.send(make([]byte, limit+1), to.local()), syscall.EMSGSIZE)
	s.mustSend(make([]byte, limit), to.local())
	if g := to.recv(); g.N != limit {
		t.Errorf("%d bytes arrived", g.N)
	}
	fresh, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM, 0) // has net.core.wmem_default
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fresh)
	usual, err := syscall.GetsockoptInt(fresh, syscall.SOL_SOCKET, syscall.SO_SNDBUF)
	if v := e.ka.socket(t).getint(syscall.SOL_SOCKET, soSndBuf); v != usual || err != nil {
		t.Errorf("SO_SNDBUF of a new socket: %d, want %d (%v)", v, usual, err)
	}
}

func sendBufferFills(t *testing.T, e *env) {
	s, to := e.ka.bound(t), nobody()
	const limit = 10000
	s.sndbuf(limit)
	for range 2 {
		s.mustSend(make([]byte, limit/2+1), to)
	}
	want(t, "the third", s.send(make([]byte, limit/2+1), to), syscall.EAGAIN)
	want(t, "an empty one", s.send(nil, to), syscall.EAGAIN) // the limit is compared with what is queued already
}

// emptySendsAreFree knows that EAGAIN may also mean a full submission ring, at which the daemon
// has not looked yet. A send that waits must then succeed, because the dead peer frees no room.
func emptySendsAreFree(t *testing.T, e *env) {
	s, to := e.ka.bound(t), nobody()
	s.timeo(soSndTimeo, patience)
	for i := range 1500 {
		err := s.send(nil, to)
		if errors.Is(err, syscall.EAGAIN) {
			_, err = s.Sendmsg(nil, afrds.Sockaddr(to), nil, 0)
		}
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
}

func sendToUnreachableSucceeds(t *testing.T, e *env) {
	s, to := e.ka.bound(t), nobody()
	s.mustSend([]byte("hello"), to) // send checks the length
	eventually(t, "attempts to connect", func() error {
		if p, _ := e.a.peer(t, to.Addr(), 0); p.LastError == "" {
			return errors.New("none has failed")
		}
		return nil
	})
	s.mustSend([]byte("hello again"), to)
	s.empty()
	if got := s.poll(afrds.PollIn | afrds.PollOut | afrds.PollErr); got != afrds.PollOut {
		t.Errorf("poll: %#x", got)
	}
}

// full fills the send buffer of s with messages to a dead peer.
func full(s *sock) netip.AddrPort {
	s.t.Helper()
	to := nobody()
	s.sndbuf(3000)
	s.mustSend(make([]byte, 3000), to)
	return to
}

func blockedSendEnds(t *testing.T, e *env) {
	s := e.ka.bound(t)
	to := full(s)
	s.timeo(soSndTimeo, 30*time.Millisecond)
	start := time.Now()
	_, err := s.Sendmsg([]byte("x"), afrds.Sockaddr(to), nil, 0)
	want(t, "SO_SNDTIMEO", err, syscall.ETIMEDOUT)
	if d := time.Since(start); d < 30*time.Millisecond {
		t.Errorf("after %v", d)
	}
	s.timeo(soSndTimeo, 0)
	interrupted(t, s, func() error {
		_, err := s.Sendmsg([]byte("x"), afrds.Sockaddr(to), nil, 0)
		return err
	})
}

// interrupted checks that a call waits, and that it returns EINTR when it is interrupted.
func interrupted(t *testing.T, s *sock, call func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case err := <-done:
		t.Errorf("did not wait: %v", err)
		return
	case <-time.After(20 * time.Millisecond): // nothing may happen in this time
	}
	for {
		s.Interrupt() // again and again, because the call may not wait yet
		select {
		case err := <-done:
			want(t, "interrupted", err, syscall.EINTR)
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// congest sends to a destination until it is congested. It returns how many messages were
// queued.
func congest(s *sock, to netip.AddrPort, size int) (n int) {
	s.t.Helper()
	s.sndbuf(1 << 20)
	eventually(s.t, "congestion", func() error {
		for {
			err := s.send(make([]byte, size), to)
			if errors.Is(err, syscall.ENOBUFS) {
				return nil
			}
			if err != nil {
				return err
			}
			n++
		}
	})
	return n
}

// drain receives n messages.
func (s *sock) drain(n int) {
	s.t.Helper()
	for range n {
		s.recv()
	}
}

func sendToCongestedFails(t *testing.T, e *env) {
	s, to := e.ka.bound(t), e.kb.bound(t)
	to.rcvbuf(4000)
	n := congest(s, to.local(), 1000)
	if n < 4 {
		t.Errorf("congested after %d messages of 1000 bytes", n)
	}
	want(t, "again", s.send(nil, to.local()), syscall.ENOBUFS)
	free := e.kb.bound(t)
	s.mustSend(nil, free.local())
	free.recv()
	to.drain(n)
}

func sendWaitsForRelief(t *testing.T, e *env) {
	s, to := e.ka.bound(t), e.kb.bound(t)
	to.rcvbuf(4000)
	n := congest(s, to.local(), 1000)
	s.timeo(soSndTimeo, 30*time.Millisecond)
	_, err := s.Sendmsg([]byte("late"), afrds.Sockaddr(to.local()), nil, 0)
	want(t, "SO_SNDTIMEO", err, syscall.ETIMEDOUT)
	s.timeo(soSndTimeo, 0)
	name := afrds.Sockaddr(to.local())
	done := make(chan error, 1)
	go func() {
		_, err := s.Sendmsg([]byte("relieved"), name, nil, 0)
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("before relief: %v", err)
	case <-time.After(20 * time.Millisecond): // nothing may happen in this time
	}
	to.drain(n)
	ok(t, "after relief", <-done)
	if g := to.recv(); string(g.data) != "relieved" {
		t.Errorf("received %q", g.data)
	}
}

func sendReturnsPayload(t *testing.T, e *env) {
	r := newRDMA(t, e, 1<<16)
	n, err := r.s.Sendmsg([]byte("payload"), afrds.Sockaddr(r.to.local()), r.args(cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite}, 0, 1<<16), 0)
	if n != 7 || err != nil {
		t.Errorf("returned %d, %v", n, err)
	}
	r.to.recv()
}

func unknownControlFails(t *testing.T, e *env) {
	s, to := e.ka.bound(t), e.kb.bound(t)
	for _, typ := range []cmsg.Type{0, cmsg.TypeRDMAStatus, cmsg.TypeCongUpdate, 10, cmsg.TypeRxPathLatency, 14, 99} {
		want(t, fmt.Sprintf("type %d", typ), s.send(nil, to.local(), cmsg.Append(nil, cmsg.SOLRDS, typ, make([]byte, 80))...), syscall.EINVAL)
	}
	to.empty()
	s.mustSend([]byte("other level"), to.local(), cmsg.Append(nil, syscall.SOL_SOCKET, 99, make([]byte, 4))...)
	if g := to.recv(); string(g.data) != "other level" {
		t.Errorf("received %q", g.data)
	}
}

func badControlLengthFails(t *testing.T, e *env) {
	s, to := e.ka.bound(t), e.kb.bound(t)
	for _, n := range []uint64{0, 15, 57, 1 << 40, 1<<64 - 1} {
		c := cmsg.Append(nil, syscall.SOL_SOCKET, 1, make([]byte, 40))
		binary.NativeEndian.PutUint64(c, n)
		want(t, fmt.Sprintf("cmsg_len %d of %d", n, len(c)), s.send(nil, to.local(), c...), syscall.EINVAL)
	}
	to.empty()
}

func orderAcrossBounces(t *testing.T, e *env) {
	p := pair(t)
	s, to := p.ka.bound(t), p.kb.bound(t)
	const n, bounces = 2000, 5
	s.sndbuf(64 << 10)
	go func() {
		for i := range n {
			msg := append(binary.BigEndian.AppendUint32(nil, uint32(i)), make([]byte, i%3000)...)
			if _, err := s.Sendmsg(msg, afrds.Sockaddr(to.local()), nil, 0); err != nil {
				t.Errorf("message %d: %v", i, err)
				return
			}
		}
	}()
	for i := range n {
		g := to.recv()
		if g.N < 4 || binary.BigEndian.Uint32(g.data) != uint32(i) {
			t.Fatalf("message %d: %d bytes, %x", i, g.N, g.data[:min(4, len(g.data))])
		}
		if i%(n/bounces) == n/bounces/2 {
			p.a.reset(t, p.b)
		}
	}
	to.empty()
	if r := p.a.counter(t, stats.ConnReset); r < 3 {
		t.Errorf("%d bounces", r)
	}
}

func failedSendLeavesNothing(t *testing.T, e *env) {
	p := pair(t)
	s, to := p.ka.bound(t), p.kb.bound(t)
	s.sndbuf(5000)
	s.mustSend([]byte("first"), to.local())
	to.recv()
	_, at := alloc(t, p.ka, 1<<16)
	before, _ := p.a.peer(t, p.b.addr(), 0)
	mapArgs := cmsg.GetMRArgs{Vec: cmsg.IOVec{Addr: at, Bytes: 4096}}
	withMap := sendControl(t, cmsg.Send{Present: cmsg.Of(cmsg.TypeRDMAMap), Map: mapArgs})
	// Each send fails at another step.
	want(t, "size", s.send(make([]byte, 5001), to.local(), withMap...), syscall.EMSGSIZE)
	bad := mapArgs
	bad.CookieAddr = 8
	want(t, "cookie address", s.send(nil, to.local(), sendControl(t, cmsg.Send{Present: cmsg.Of(cmsg.TypeRDMAMap), Map: bad})...), syscall.EFAULT)
	want(t, "two MAPs", s.send(nil, to.local(), append(slices.Clone(withMap), withMap...)...), syscall.EINVAL)
	dead := full(s)
	want(t, "full", s.send([]byte("x"), dead, withMap...), syscall.EAGAIN)
	want(t, "full, other destination", s.send([]byte("x"), to.local(), withMap...), syscall.EAGAIN)
	ok(t, "cancel", s.Setsockopt(cmsg.SOLRDS, cmsg.OptCancelSentTo, afrds.Sockaddr(dead)))

	eventually(t, "regions", func() error {
		if n := p.a.counter(t, stats.Regions); n != 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
	s.polled(afrds.PollOut)
	s.sndbuf(5000)
	s.mustSend(make([]byte, 5000), to.local())
	if g := to.recv(); g.N != 5000 || g.control.Present != 0 {
		t.Errorf("received %d bytes, %+v", g.N, g.control)
	}
	to.empty()
	eventually(t, "sequence", func() error {
		after, _ := p.a.peer(t, p.b.addr(), 0)
		if after.NextTxSeq != before.NextTxSeq+1 {
			return fmt.Errorf("next sequence %d, was %d: one message was sent", after.NextTxSeq, before.NextTxSeq)
		}
		return nil
	})
}
