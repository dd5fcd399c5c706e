package conformance

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/afrds"
	"github.com/rdsd/rdsd/cmsg"
)

// Statements 95 to 101 and 103: operations and bounces.

// settled takes n statuses and returns them by token. It fails the test if an operation has two.
func (r *rdma) settled(n int) map[uint64]int32 {
	r.t.Helper()
	got := map[uint64]int32{}
	for len(got) < n {
		g := r.s.recv()
		for _, st := range g.control.Status {
			if _, twice := got[st.UserToken]; twice {
				r.t.Errorf("two statuses for operation %d", st.UserToken)
			}
			got[st.UserToken] = st.Status
		}
	}
	return got
}

// bounced breaks the connection while n operations are in progress, and returns their statuses.
// Message i carries the number i.
func (r *rdma) bounced(p *env, n int, control func(i int) []byte) map[uint64]int32 {
	r.t.Helper()
	for i := range n {
		r.s.deliver2(binary.BigEndian.AppendUint32(nil, uint32(i+1)), r.to.local(), control(i))
		if i == n/2 {
			p.a.reset(r.t, p.b)
		}
	}
	return r.settled(n)
}

// deliver2 is deliver with control data.
func (s *sock) deliver2(p []byte, to netip.AddrPort, control []byte) {
	s.t.Helper()
	_, err := s.Sendmsg(p, afrds.Sockaddr(to), control, 0)
	ok(s.t, "sendmsg", err)
}

// writes returns the control data of WRITE i, of 8 KiB.
func (r *rdma) writes(i int) []byte {
	return r.args(cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite | cmsg.FlagNotifyMe, UserToken: uint64(i + 1)}, 0, 8192)
}

func dropGivesOneStatus(t *testing.T, e *env) {
	p := pair(t)
	r := newRDMA(t, p, 8192)
	const n = 200
	got := r.bounced(p, n, r.writes)
	dropped := 0
	for token, st := range got {
		switch st {
		case cmsg.StatusSuccess:
		case cmsg.StatusDropped:
			dropped++
		default:
			t.Errorf("operation %d: status %d", token, st)
		}
	}
	// There is a message for each success, and for nothing else.
	for range n - dropped {
		g := r.to.recv()
		token := uint64(binary.BigEndian.Uint32(g.data))
		if got[token] != cmsg.StatusSuccess {
			t.Errorf("operation %d was delivered, its status is %d", token, got[token])
		}
	}
	r.s.empty()
	r.to.empty()
}

func droppedWithoutPeer(t *testing.T, e *env) {
	p := pair(t)
	r := newRDMA(t, p, 8192)
	p.b.pause(t)
	const n = 3
	for i := range n {
		r.s.deliver2(nil, r.to.local(), r.writes(i))
	}
	hwm, err := barrier(r.s, r.to.local().Addr(), 0, 0)
	if err != nil {
		t.Errorf("mark %d, %v", hwm, err)
	}
	p.b.kill(t) // the daemon stays away
	for token, st := range r.settled(n) {
		if st != cmsg.StatusDropped {
			t.Errorf("operation %d: status %d", token, st)
		}
	}
}

func recvErrReports(t *testing.T, e *env) {
	r := newRDMA(t, e, 4096)
	r.s.set(cmsg.SOLRDS, cmsg.OptRecvErr, i32(1))
	r.s.mustSend(nil, r.to.local(), r.args(cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite, UserToken: 1}, 0, 1)...)
	r.to.recv()
	r.s.mustSend(nil, r.to.local(), r.args(cmsg.RDMAArgs{Cookie: r.cookie ^ 1, Flags: cmsg.FlagReadWrite, UserToken: 2}, 0, 1)...)
	if n := r.s.status(); n.UserToken != 2 || n.Status == cmsg.StatusSuccess {
		t.Errorf("status %+v", n)
	}
	r.s.empty()
	r.s.set(cmsg.SOLRDS, cmsg.OptRecvErr, i32(0))
	r.s.mustSend(nil, r.to.local(), r.args(cmsg.RDMAArgs{Cookie: r.cookie ^ 1, Flags: cmsg.FlagReadWrite, UserToken: 3}, 0, 1)...)
	if n := r.do(nil, cmsg.RDMAArgs{UserToken: 4}, 0, 1); n.UserToken != 4 {
		t.Errorf("off: status %+v", n)
	}
}

// unacked returns a socket whose operation has run at a peer. The connection broke before the
// peer acked the message.
func unacked(t *testing.T, e *env, control func(r *rdma) []byte) (*peer, *rdma, remote, inFrame) {
	t.Helper()
	p := newPeer(t, e.a)
	p.listen()
	s := e.ka.bound(t)
	s.mustSend(nil, p.at(5))
	p.accept(p.request())
	p.data()
	target := p.target(4096)
	p.grant(s.local().Port(), target)
	p.mute = true
	local, at := alloc(t, e.ka, 4096)
	r := &rdma{t: t, s: s, local: local, localAt: at, vec: local[1024:], vecAt: at + 1024, cookie: target.cookie}
	s.mustSend([]byte("operation"), p.at(5), control(r)...)
	f := p.data()
	return p, r, target, f
}

// again lets the daemon connect to a peer that has not received the message. It checks that the
// operation is DROPPED, once, and that its message is gone.
func (r *rdma) again(p *peer, f inFrame) {
	r.t.Helper()
	p.drop()
	p.last = f.Seq - 1
	req := p.request()
	p.mute = false
	p.accept(req)
	if n := r.s.status(); n != (cmsg.Notify{UserToken: 7, Status: cmsg.StatusDropped}) {
		r.t.Errorf("status %+v", n)
	}
	r.s.mustSend([]byte("behind it"), p.at(5))
	if g := p.data(); string(g.body) != "behind it" || g.Seq <= f.Seq {
		r.t.Errorf("received %q, sequence %d behind %d", g.body, g.Seq, f.Seq)
	}
	r.s.empty()
}

func droppedNotRepeated(t *testing.T, e *env) {
	p1, r1, target, f := unacked(t, e, func(r *rdma) []byte {
		r.local[0] = 9
		return r.args(cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite | cmsg.FlagNotifyMe, UserToken: 7}, 0, 1)
	})
	if target.mem[0] != 9 {
		t.Error("it did not run")
	}
	target.mem[0] = 0
	if r1.again(p1, f); target.mem[0] != 0 {
		t.Error("it ran again")
	}
	droppedOnBounces(t)
}

// droppedOnBounces checks the same with many operations between two daemons.
func droppedOnBounces(t *testing.T) {
	p := pair(t)
	r := newRDMA(t, p, 8192)
	// Each WRITE leaves its number. When the message of a later WRITE has been received, an
	// earlier number must not come back.
	const n = 100
	numbered := func(i int) []byte {
		binary.NativeEndian.PutUint64(r.local[8*i:], uint64(i+1))
		r.vectors(cmsg.IOVec{Addr: r.localAt + 8*uint64(i), Bytes: 8})
		return argsControl(cmsg.RDMAArgs{Cookie: r.cookie, RemoteVec: cmsg.IOVec{Bytes: 8}, LocalVecAddr: r.vecAt, NrLocal: 1,
			Flags: cmsg.FlagReadWrite | cmsg.FlagNotifyMe, UserToken: uint64(i + 1)})
	}
	got := r.bounced(p, n, numbered)
	last := uint64(0)
	for _, st := range got {
		if st != cmsg.StatusSuccess {
			continue
		}
		g := r.to.recv()
		token := uint64(binary.BigEndian.Uint32(g.data))
		if seen := binary.NativeEndian.Uint64(r.remote); seen < token || token <= last {
			t.Errorf("message %d after %d, memory of %d", token, last, seen)
		}
		last = token
	}
	clear(r.remote[:8])
	// Nothing is in progress any more. A dropped operation that still ran would show now.
	if st := r.do(nil, cmsg.RDMAArgs{RemoteVec: cmsg.IOVec{Addr: 0, Bytes: 8}, UserToken: 999}, 0, 8); st.Status != cmsg.StatusSuccess {
		t.Errorf("status %+v", st)
	}
	if v := binary.NativeEndian.Uint64(r.local); v != 0 {
		t.Errorf("operation %d was executed after its status", v)
	}
}

func droppedNotDelivered(t *testing.T, e *env) {
	p1, r1, _, f := unacked(t, e, func(r *rdma) []byte {
		return r.args(cmsg.RDMAArgs{Flags: cmsg.FlagNotifyMe, UserToken: 7}, 0, 64) // a READ
	})
	r1.again(p1, f)
	p := pair(t)
	r := newRDMA(t, p, 8192)
	p.b.pause(t)
	const n = 5
	for i := range n {
		r.s.deliver2([]byte{byte(i + 1)}, r.to.local(), r.writes(i))
	}
	eventually(t, "posted", func() error {
		if hwm := mark(r.s, r.to.local().Addr()); hwm < n {
			return fmt.Errorf("mark %d", hwm)
		}
		return nil
	})
	// The peer has read none of it. When a connection with unread data is closed, all of that
	// data is lost.
	p.a.reset(t, p.b)
	r.s.mustSend([]byte("last"), r.to.local())
	p.b.Resume()
	got := r.settled(n)
	delivered := map[uint64]bool{}
	for {
		g := r.to.recv()
		if string(g.data) == "last" {
			break
		}
		delivered[uint64(g.data[0])] = true
	}
	for token, st := range got {
		if (st == cmsg.StatusSuccess) != delivered[token] {
			t.Errorf("operation %d: status %d, delivered %v", token, st, delivered[token])
		}
	}
	r.to.empty()
}

func plainAroundDropped(t *testing.T, e *env) {
	p := pair(t)
	r := newRDMA(t, p, 8192)
	plain := p.ka.bound(t) // a socket of its own, on the same connection
	const n = 200
	for i := range n {
		plain.deliver(binary.BigEndian.AppendUint32(nil, uint32(i)), r.to.local())
		r.s.deliver2(nil, r.to.local(), r.writes(i))
		if i == n/2 {
			p.a.reset(t, p.b)
		}
	}
	r.settled(n)
	for next := 0; next < n; {
		g := r.to.recv()
		if g.from != plain.local() {
			continue
		}
		if got := binary.BigEndian.Uint32(g.data); got != uint32(next) {
			t.Fatalf("message %d where %d was due", got, next)
		}
		next++
	}
}

func queuedRunsAfterReconnect(t *testing.T, e *env) {
	p := pair(t)
	r := newRDMA(t, p, 8192)
	to := r.to.local()
	// The daemon ends and its addresses stay, so messages that are queued now have never been
	// posted. The region's owner ends with its daemon. So this is about the sockets of a peer
	// that loses only its connection.
	p.b.pause(t)
	p.a.reset(t, p.b)
	const n = 5
	for i := range n {
		r.s.deliver2([]byte{byte(i + 1)}, to, r.writes(i))
	}
	p.b.Resume()
	for token, st := range r.settled(n) {
		if st != cmsg.StatusSuccess {
			t.Errorf("operation %d: status %d", token, st)
		}
	}
	for i := range n {
		if g := r.to.recv(); !slices.Equal(g.data, []byte{byte(i + 1)}) {
			t.Errorf("message %d: %x", i, g.data)
		}
	}
}

func atomicNeverTwice(t *testing.T, e *env) {
	p1, r1, target, f := unacked(t, e, func(r *rdma) []byte {
		return atomicControl(cmsg.TypeAtomicFAdd, cmsg.AtomicArgs{Cookie: r.cookie, LocalAddr: r.localAt, Word: [4]uint64{1},
			Flags: cmsg.FlagNotifyMe, UserToken: 7})
	})
	r1.again(p1, f)
	if v := binary.NativeEndian.Uint64(target.mem); v != 1 {
		t.Errorf("it ran %d times", v)
	}
	p := pair(t)
	r := newRDMA(t, p, 8192)
	const n = 200
	got := r.bounced(p, n, func(i int) []byte {
		return atomicControl(cmsg.TypeAtomicFAdd, cmsg.AtomicArgs{Cookie: r.cookie, LocalAddr: r.localAt + 8*uint64(i), Word: [4]uint64{1},
			Flags: cmsg.FlagNotifyMe, UserToken: uint64(i + 1)})
	})
	succeeded := uint64(0)
	for token, st := range got {
		switch st {
		case cmsg.StatusSuccess:
			succeeded++
		case cmsg.StatusDropped:
		default:
			t.Errorf("operation %d: status %d", token, st)
		}
	}
	for range succeeded {
		r.to.recv()
	}
	// Each operation ran at most once, and exactly once if it succeeded.
	if v := binary.NativeEndian.Uint64(r.remote); v < succeeded || v > n {
		t.Errorf("%d additions of %d, %d of them a success", v, n, succeeded)
	}
	olds := map[uint64]int{}
	for token, st := range got {
		if st == cmsg.StatusSuccess {
			olds[binary.NativeEndian.Uint64(r.local[8*(token-1):])]++
		}
	}
	for old, times := range olds {
		if times > 1 {
			t.Errorf("old value %d was returned %d times", old, times)
		}
	}
}
