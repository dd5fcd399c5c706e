package engine

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// What one that is idle may cost its daemon, in bytes.
const (
	idlePeerBytes   = 16 << 10
	idleSocketBytes = 1 << 10
)

// heapNow is what is reachable.
func heapNow() int {
	var m runtime.MemStats
	for least := uint64(1 << 62); ; least = m.HeapAlloc {
		runtime.GC()
		if runtime.ReadMemStats(&m); m.HeapAlloc >= least { // finalizers have run
			return int(least)
		}
	}
}

// TestIdlePeerBytes: a connection over which something was said, and which is
// idle, costs either daemon less than idlePeerBytes, its part of the pool of
// control buffers included; also after it was busy.
func TestIdlePeerBytes(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector's memory counts")
	}
	const peers = 64
	r := newRig(t, 2)
	a, b := r.hosts[0], r.hosts[1]
	var to []netip.Addr
	for i := range peers {
		to = append(to, netip.AddrFrom4([4]byte{127, 0, 8, byte(i + 1)}))
		if err := b.e.AddLocal(to[i]); err != nil {
			t.Fatal(err)
		}
	}
	a.open(b) // one that both know before
	send := func(slot uint32, n int, size uint32) {
		chunk := uint32(0)
		if size > 0 {
			chunk, _ = a.send.Alloc(int(size))
			defer a.send.Free(chunk, int(size))
		}
		for left := n; left > 0; {
			k := min(left, 32)
			left -= k
			back := a.back + k
			for range k {
				a.submit(shm.Sub{Slot: slot, Chunk: chunk, Len: size})
			}
			a.publish()
			r.until("the answers", func() bool { return a.back >= back })
		}
	}
	send(0, 1, 0)
	settled := func(what string, base int) {
		each := 0
		limit := r.now() + int64(20*time.Second)
		for {
			next := r.now() + int64(200*time.Millisecond)
			r.until("a while", func() bool { return r.now() > next })
			// Half of it is the other end's.
			if each = (heapNow() - base) / (2 * peers); each+conn.CtlLen <= idlePeerBytes || next > limit {
				break
			}
		}
		if each += conn.CtlLen; each > idlePeerBytes {
			t.Errorf("%s: %d bytes a connection and daemon, want %d at most", what, each, idlePeerBytes)
		}
		t.Logf("%s: %d bytes a connection and daemon", what, each)
	}
	base := heapNow()
	for i, addr := range to {
		*a.sub.Reserve().SubDest() = shm.SubDest{Kind: shm.KindOpenDest, Sock: a.sock, Slot: uint32(i + 1), Cell: uint32(i + 1),
			Port: a.port, Addr: addr.As16(), Gen: 1}
		a.publish()
		send(uint32(i+1), 1, 0)
	}
	if up := len(Conns(a.e)); up != peers+1 {
		t.Fatalf("%d connections, want %d", up, peers+1)
	}
	settled("met", base)
	for i := range to {
		send(uint32(i+1), 500, 0)
		send(uint32(i+1), 40, 30000)
	}
	settled("idle again", base)
	runtime.KeepAlive(r)
}

// TestIdleSocketBytes: a bound socket that nobody uses.
func TestIdleSocketBytes(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector's memory counts")
	}
	const sockets = 4096
	r := newRig(t, 1)
	a := r.hosts[0]
	base := heapNow()
	for i := range sockets {
		if _, _, err := a.p.Call(&ipc.Bind{Addr: a.addr}, nil); err != nil {
			t.Fatal(fmt.Errorf("socket %d: %w", i, err))
		}
	}
	each := (heapNow() - base) / sockets
	runtime.KeepAlive(r)
	t.Logf("%d bytes a socket", each)
	if each > idleSocketBytes {
		t.Errorf("%d bytes a socket, want %d at most", each, idleSocketBytes)
	}
}
