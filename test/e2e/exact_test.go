package e2e

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/rdsd/rdsd/rds"
)

// TestExactOutcomes sends messages with a write and a fetch-add, and resets the connection or
// kills the peer's daemon at a random moment. The statuses must be exact if the peer's instance
// stays the same, and UNKNOWN if it does not. The counter at the target outlives its daemon. It
// shows that nothing ran twice, and that no message was delivered whose status denies it.
// sim.TestExactOutcomes does the same at chosen steps.
func TestExactOutcomes(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		here, there := hosts[0], hosts[1]
		c := here.open()
		s := here.bind(c, 0)
		local, err := c.Alloc(4096)
		if err != nil {
			t.Fatal(err)
		}
		rounds := 30
		if long {
			rounds = 500
		}
		rng := rand.New(rand.NewPCG(11, 4))
		for round := range rounds {
			killed := round%2 == 1
			exactRound(t, here, there, s, local, killed, time.Duration(rng.IntN(4000))*time.Microsecond)
			if t.Failed() {
				t.Fatalf("round %d, daemon killed: %v", round, killed)
			}
		}
	})
}

func exactRound(t *testing.T, here, there *host, s *rds.Socket, local *rds.Buffer, killed bool, after time.Duration) {
	t.Helper()
	peer := there.open()
	defer peer.Close()
	sink := there.bind(peer, 6000)
	defer sink.Close() // the port must be free on return, and Client.Close does not wait for that
	mem, err := peer.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	r, err := sink.Register(mem, 0, 4096, rds.AllowWrite|rds.AllowAtomic)
	if err != nil {
		t.Fatal(err)
	}
	to := there.at(6000)
	if err := sink.SetRcvBuf(1 << 20); err != nil {
		t.Fatal(err)
	}
	hello := rds.Message{Payload: []byte{0}, Addr: s.LocalAddrPort(), Cookie: r.Cookie()}
	if _, err := sink.Send(context.Background(), &hello); err != nil {
		t.Fatal(err)
	}
	got := rds.Received{Payload: make([]byte, 8)}
	if err := s.Recv(context.Background(), &got); err != nil {
		t.Fatal(err)
	}

	broken := make(chan struct{})
	go func() {
		defer close(broken)
		time.Sleep(after) // any moment will do
		if killed {
			there.Signal(syscall.SIGKILL)
		} else if err := here.reset(there); err != nil {
			t.Error(err)
		}
	}()
	const n = 1500
	ids := make([]uint64, n)
	for i := range uint64(n) {
		m := rds.Message{Addr: to, Payload: binary.LittleEndian.AppendUint64(nil, i+1)}
		m.Op = &rds.RDMA{Write: true, Cookie: got.Cookie, RemoteOff: 64, Local: []rds.Segment{{Buf: local, Len: 8}}, Notify: true}
		m.Atomic = &rds.Atomic{Cookie: got.Cookie, Add: 1, Local: rds.Segment{Buf: local, Off: 64, Len: 8}, Notify: true}
		if _, err := s.Send(context.Background(), &m); err != nil {
			t.Fatal(err)
		}
		ids[i] = m.OpID
	}
	<-broken
	// The marks rise although there is no daemon to connect to.
	if killed {
		there.wait()
	}
	read := func() (seen []uint64) {
		m := rds.Received{Payload: make([]byte, 8)}
		for sink.Recv(rds.DontWait, &m) == nil {
			seen = append(seen, binary.LittleEndian.Uint64(m.Payload))
		}
		return seen
	}
	var seen []uint64
	if killed {
		seen = read()
		there.start()
	}
	sums := map[rds.Status]uint64{}
	status := make([]rds.Status, n+1)
	for i, id := range ids {
		rdma, err := s.WaitOp(t.Context(), to.Addr(), id)
		if err != nil {
			t.Fatal(err)
		}
		add, err := s.WaitOp(t.Context(), to.Addr(), id+1)
		if err != nil {
			t.Fatal(err)
		}
		st := rdma.Status
		switch {
		case st == add.Status || st == rds.RemoteError && add.Status == rds.Dropped:
		case st == rds.Dropped && add.Status == rds.RemoteError:
			st = rds.RemoteError // a device whose daemon is being killed takes the write, and refuses the atomic behind it
		default:
			t.Errorf("message %d: %v and %v", i+1, rdma.Status, add.Status)
		}
		status[i+1] = st
		sums[st]++
	}
	if err := s.BarrierAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !killed {
		for len(seen) < int(sums[rds.Success]) && !t.Failed() {
			eventually(t, "messages", func() error { seen = append(seen, read()...); return nil })
			time.Sleep(time.Millisecond)
		}
		seen = append(seen, read()...)
	}
	ran := atomic.LoadUint64((*uint64)(unsafe.Pointer(&mem.Bytes()[0])))
	last := uint64(0)
	for _, i := range seen {
		if i <= last {
			t.Errorf("message %d after %d", i, last)
		}
		if st := status[i]; st != rds.Success && !(killed && st == rds.Unknown) {
			t.Errorf("message %d arrived, its status is %v", i, st)
		}
		last = i
	}
	maybe := sums[rds.Dropped] + sums[rds.Unknown]
	switch {
	case ran < sums[rds.Success] || ran > sums[rds.Success]+maybe:
		t.Errorf("%d atomics ran, statuses %v", ran, sums)
	case ran < uint64(len(seen)):
		t.Errorf("%d messages arrived, %d atomics ran", len(seen), ran)
	case !killed && (sums[rds.Unknown] > 0 || sums[rds.RemoteError] > 0 || len(seen) != int(sums[rds.Success])):
		t.Errorf("same instance: statuses %v, %d messages arrived", sums, len(seen))
	case killed && sums[rds.Dropped] > 0:
		t.Errorf("another instance: statuses %v", sums)
	}
	t.Logf("killed %v after %v: %v, %d arrived, %d ran", killed, after, sums, len(seen), ran)
}
