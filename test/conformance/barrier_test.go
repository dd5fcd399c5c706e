package conformance

import (
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/afrds"
	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/rds"
)

func groupF() []statement {
	return []statement{
		{n: 107, kind: "r", by: byAPI, text: "ids per destination start at 1 and rise by 1; the send call returns the id", check: operationIDsRise},
		{n: 108, kind: "r", by: byCalls, text: "the mark is at least N after success of operation N and all before", check: markCoversSuccess},
		{n: 109, kind: "r", by: byCalls, text: "the mark rises for an operation that failed with REMOTE_ERROR", check: markRisesOnRemoteError},
		{n: 110, kind: "r", by: byCalls, text: "the mark rises for all operations tossed on a bounce, without a reconnect", check: markRisesOnBounce},
		{n: 111, kind: "r", by: byCalls, text: "the mark does not rise while the buffers may still be touched", check: markWaitsForBuffers},
		{n: 112, kind: "r", by: byCalls, text: "an empty message raises it as well, and SILENT", check: markRisesWithEmptyAndSilent},
		{n: 113, kind: "r", by: byCalls, text: "a query never waits and returns the mark; of an unknown destination it is 0", check: markQueryNeverWaits},
		{n: 114, kind: "r", by: byCalls, text: "a wait returns when the mark is there, EINTR when interrupted; without blocking EAGAIN, and poll is armed", check: barrierWaits},
		{n: 115, kind: "r", by: byCalls, text: "an armed socket becomes readable when its id is reached, another does not", check: armedBarrierWakesPoll},
		{n: 116, kind: "r", by: byCalls, text: "a status known when the mark passes its operation can be taken then", check: statusComesWithMark},
		{n: 117, kind: "r", by: byCalls, text: "ids of one destination are not affected by another's failure", check: idsOfDestinationsAreApart},
		{n: 118, kind: "r", by: byTest, text: "ids compare by signed difference: nothing happens at 2^63", check: idsWrap},
		{n: 119, kind: "r", by: byTest, text: "RDMA requests are unsignaled; one signaled SEND raises the mark", check: operationsAreUnsignaled},
	}
}

func operationIDsRise(t *testing.T, e *env) {
	r := newRDMA(t, e, 4096)
	c := e.ka.c
	s, err := c.Bind(e.a.at(0))
	ok(t, "bind", err)
	defer s.Close()
	b, err := c.Alloc(4096)
	ok(t, "alloc", err)
	for _, to := range []netip.AddrPort{r.to.local(), nobody(), e.b.at(4001)} {
		for want := uint64(1); want <= 3; want++ {
			// The key is unknown: ids do not depend on success.
			op := &rds.RDMA{Write: true, Cookie: 1, Local: []rds.Segment{{Buf: b, Len: 8}}}
			if to.Port() == 4001 { // on the host of the first destination
				want += 3
			}
			id, err := s.Send(context.Background(), &rds.Message{Addr: to, Op: op})
			if id != want || err != nil {
				t.Errorf("%v: id %d, %v, want %d", to, id, err, want)
			}
			if to.Port() == 4001 {
				want -= 3
			}
		}
	}
}

// write sends n small WRITEs.
func (r *rdma) write(n int, flags uint64) {
	r.t.Helper()
	for i := range n {
		r.s.mustSend(nil, r.to.local(), r.args(cmsg.RDMAArgs{Flags: flags | cmsg.FlagReadWrite, UserToken: uint64(i + 1)}, 0, 64)...)
	}
}

// reached waits until the mark is at id.
func (r *rdma) reached(id uint64) {
	r.t.Helper()
	if hwm, err := barrier(r.s, r.to.local().Addr(), id, 0); err != nil || hwm < id {
		r.t.Fatalf("mark %d, %v, want %d", hwm, err, id)
	}
}

func markCoversSuccess(t *testing.T, e *env) {
	r := newRDMA(t, e, 4096)
	for id := uint64(1); id <= 20; id++ {
		r.do(nil, cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite * (id % 2)}, 0, 64)
		eventually(t, "the mark", func() error {
			hwm := mark(r.s, r.to.local().Addr())
			return errOf(hwm != id, "%d after success of %d", hwm, id)
		})
	}
}

func markRisesOnRemoteError(t *testing.T, e *env) {
	r := newRDMA(t, e, 4096)
	if n := r.do(nil, cmsg.RDMAArgs{Cookie: r.cookie ^ 1, Flags: cmsg.FlagReadWrite}, 0, 64); n.Status != cmsg.StatusRemoteError {
		t.Errorf("status %+v", n)
	}
	r.reached(1)
	// The next operation fails at the target, because its key is taken back while it is in
	// progress.
	r.write(1, 0)
	ok(t, "FREE_MR", r.free(r.cookie, 0))
	r.write(1, 0)
	r.reached(3)
}

// stopped returns an initiator with n READs posted. The daemon of its target is stopped.
func stopped(t *testing.T, p *env, n int) *rdma {
	t.Helper()
	r := newRDMA(t, p, 8192)
	copy(r.remote, bytesOf(8192, 7))
	p.b.pause(t)
	for i := range n {
		r.s.mustSend(nil, r.to.local(), r.args(cmsg.RDMAArgs{Flags: cmsg.FlagNotifyMe, UserToken: uint64(i + 1)}, 0, 8192)...)
	}
	return r
}

func markRisesOnBounce(t *testing.T, e *env) {
	p := pair(t)
	r := stopped(t, p, 10)
	if hwm := mark(r.s, r.to.local().Addr()); hwm != 0 {
		t.Errorf("mark %d at first", hwm)
	}
	p.b.kill(t) // and the daemon stays away
	r.reached(10)
	r.s.empty() // when the operations are dropped; their statuses come after the settle time
	if c, _ := p.a.peer(t, p.b.addr(), 0); c.State == "up" {
		t.Error("there is a connection")
	}
}

func markWaitsForBuffers(t *testing.T, e *env) {
	p := pair(t)
	r := stopped(t, p, 3)
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
		if hwm := mark(r.s, r.to.local().Addr()); hwm != 0 {
			t.Fatalf("mark %d while the data is still to come", hwm)
		}
	}
	p.b.Resume()
	r.reached(3)
	if !slices.Equal(r.local, bytesOf(8192, 7)) {
		t.Error("the mark was there before the data")
	}
	mine := bytesOf(8192, 99)
	copy(r.local, mine) // the local buffer is ours again
	r.settled(3)
	for range 3 {
		r.to.recv()
	}
	if !slices.Equal(r.local, mine) {
		t.Error("the buffer was touched after the mark")
	}
	// In these tests the provider keeps the buffers as long as the test wants.
	goTest(t, "../../rdmaop", "TestHWM", "TestHWMHistories")
}

func markRisesWithEmptyAndSilent(t *testing.T, e *env) {
	r := newRDMA(t, e, 4096)
	r.write(1, 0)
	r.reached(1)
	r.write(3, cmsg.FlagSilent)
	r.reached(4)
	r.to.recv()
	r.to.empty()
}

func markQueryNeverWaits(t *testing.T, e *env) {
	r := newRDMA(t, e, 4096)
	if hwm := mark(r.s, newAddress()); hwm != 0 {
		t.Errorf("unknown destination: %d", hwm)
	}
	p := pair(t)
	st := stopped(t, p, 2)
	// The target is stopped, so a query that waited would not return.
	if hwm := mark(st.s, st.to.local().Addr()); hwm != 0 {
		t.Errorf("mark %d", hwm)
	}
	r.write(2, 0)
	r.reached(2)
	if hwm := mark(r.s, r.to.local().Addr()); hwm != 2 {
		t.Errorf("mark %d", hwm)
	}
	_, err := barrier(r.s, r.to.local().Addr(), 3, 0)
	want(t, "an id not issued", err, syscall.EINVAL)
	_, err = barrier(e.ka.socket(t), newAddress(), 0, 0)
	want(t, "unbound", err, syscall.ENOTCONN)
	want(t, "23 bytes", r.s.Setsockopt(cmsg.SOLRDS, cmsg.OptBarrier, make([]byte, 23)), syscall.EINVAL)
}

func barrierWaits(t *testing.T, e *env) {
	p := pair(t)
	r := stopped(t, p, 2)
	to := r.to.local().Addr()
	hwm, err := barrier(r.s, to, 2, syscall.MSG_DONTWAIT)
	if hwm != 0 {
		t.Errorf("mark %d", hwm)
	}
	want(t, "without blocking", err, syscall.EAGAIN)
	if got := r.s.poll(afrds.PollIn); got != 0 {
		t.Errorf("poll: %#x", got)
	}
	mem, at := alloc(t, p.ka, 8)
	arg := afrds.BarrierArgs{Dest: to, RDMAIDAddr: at, WaitRDMAID: 2}
	wait := func() error { return r.s.Setsockopt(cmsg.SOLRDS, cmsg.OptBarrier, arg.Append(nil)) }
	interrupted(t, r.s, wait)
	done := make(chan error, 1)
	go func() { done <- wait() }()
	p.b.Resume()
	ok(t, "wait", <-done)
	if v := binary.NativeEndian.Uint64(mem); v < 2 {
		t.Errorf("mark %d stored", v)
	}
}

func armedBarrierWakesPoll(t *testing.T, e *env) {
	p := pair(t)
	r := stopped(t, p, 0)
	other := p.ka.bound(t)
	to := r.to.local()
	r.s.mustSend(nil, to, r.args(cmsg.RDMAArgs{}, 0, 64)...) // the operation asks for no status
	_, err := barrier(r.s, to.Addr(), 1, syscall.MSG_DONTWAIT)
	want(t, "arming", err, syscall.EAGAIN)
	if r.s.poll(afrds.PollIn) != 0 || other.poll(afrds.PollIn) != 0 {
		t.Error("readable at first")
	}
	p.b.Resume()
	r.s.polled(afrds.PollIn)
	if other.poll(afrds.PollIn) != 0 {
		t.Error("the other socket is readable")
	}
	_, err = barrier(r.s, to.Addr(), 1, syscall.MSG_DONTWAIT)
	ok(t, "the mark", err)
	if r.s.poll(afrds.PollIn) != 0 {
		t.Error("still readable after the mark was taken")
	}
}

func statusComesWithMark(t *testing.T, e *env) {
	r := newRDMA(t, e, 4096)
	for id := uint64(1); id <= 100; id++ {
		// The operation is refused before it is posted, so its status is known at once.
		a := cmsg.RDMAArgs{Cookie: r.cookie ^ 1, Flags: cmsg.FlagReadWrite | cmsg.FlagNotifyMe, UserToken: id}
		r.s.mustSend(nil, r.to.local(), r.args(a, 0, 64)...)
		r.reached(id)
		g, err := r.s.recvInto(nil, make([]byte, 64), syscall.MSG_DONTWAIT)
		if err != nil || len(g.control.Status) != 1 || g.control.Status[0].UserToken != id {
			t.Fatalf("operation %d: %+v, %v", id, g.control, err)
		}
	}
}

func idsOfDestinationsAreApart(t *testing.T, e *env) {
	r := newRDMA(t, e, 4096)
	dead := nobody()
	for range 3 {
		a := r.args(cmsg.RDMAArgs{Flags: cmsg.FlagReadWrite}, 0, 64)
		if err := r.s.send(nil, dead, a...); err != nil {
			t.Fatal(err)
		}
	}
	r.write(3, 0)
	r.reached(3)
	// The same from another socket: each socket has ids of its own.
	other := newRDMABetween(t, e.ka.bound(t), r.to, 4096, 0)
	other.write(1, 0)
	other.reached(1)
	if hwm := mark(r.s, r.to.local().Addr()); hwm != 3 {
		t.Errorf("mark %d", hwm)
	}
	for range 4 {
		r.to.recv()
	}
}

func idsWrap(t *testing.T, e *env) { goTest(t, "../../barrier", "TestWrap", "TestModel") }

func operationsAreUnsignaled(t *testing.T, e *env) {
	goTest(t, "../../conn", "TestOperationBatch", "TestTwoOperations", "TestSilentAndUnfenced")
}
