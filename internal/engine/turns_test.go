package engine

import (
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

const quietPort = 5000 // of who sends to quietPort+1

// bindMore gives h another socket.
func (h *rigHost) bindMore(t *testing.T, port uint16) uint32 {
	t.Helper()
	resp, _, err := h.p.Call(&ipc.Bind{Addr: h.addr, Port: port}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp.(*ipc.BindOK).Sock
}

// openFrom opens a slot of one of h's sockets.
func (h *rigHost) openFrom(sock, slot uint32, to *rigHost, port uint16) {
	*h.sub.Reserve().SubDest() = shm.SubDest{Kind: shm.KindOpenDest, Sock: sock, Slot: slot, Cell: slot, Port: port, Addr: to.addr.As16(), Gen: 1}
	h.publish()
}

// submitFrom is submit for another socket than the first.
func (h *rigHost) submitFrom(sock uint32, d shm.Sub, ops ...*shm.SubOp) {
	first := h.sock
	h.sock = sock
	h.submit(d, ops...)
	h.sock = first
}

// turnPair is two hosts, of which the first has a second socket that sends to
// another port of the second.
func turnPair(t *testing.T) (r *rig, a, b *rigHost, quiet uint32) {
	r = newRig(t, 2)
	a, b = r.hosts[0], r.hosts[1]
	quiet = a.bindMore(t, quietPort)
	b.bindMore(t, quietPort+1)
	a.openFrom(a.sock, 0, b, b.port)
	a.openFrom(quiet, 1, b, quietPort+1)
	a.submit(shm.Sub{})
	a.publish()
	r.until("the connection", func() bool { return b.got == 1 && a.back == 1 })
	return r, a, b, quiet
}

// TestFloodingSocket: however much one socket has queued, what another one
// sends on the same connection is behind what the connection was handed, and
// not behind the rest.
func TestFloodingSocket(t *testing.T) {
	const (
		size  = 4 << 10
		flood = 6000 // 24 MiB, as no library would let an application queue
		most  = 4 << 20
	)
	r, a, b, quiet := turnPair(t)
	chunk, _ := a.send.Alloc(size)
	for left := flood; left > 0; {
		k := min(left, 1000)
		left -= k
		for range k {
			a.submit(shm.Sub{Chunk: chunk, Len: size})
		}
		a.publish()
		for !a.p.cl.sub.Empty() { // and nobody receives
			now := r.now()
			a.e.Turn(now, Wall(now))
		}
	}
	waiting := 0
	for _, p := range a.e.peers.all {
		waiting += p.waiting
	}
	if waiting < flood/2 {
		t.Fatalf("only %d messages wait for their turn", waiting)
	}
	for i := range 10 {
		before := b.got
		a.submitFrom(quiet, shm.Sub{Slot: 1})
		a.publish()
		r.until("the other socket's message", func() bool { return b.quiet == i+1 })
		n := (b.got - before) * size
		t.Logf("%d bytes of the flood came first", n)
		if n > most {
			t.Errorf("%d bytes of the flood came first, %d at most", n, most)
		}
	}
	r.until("the flood", func() bool { return b.got == flood+11 && a.back == flood+11 })
}

// TestFloodOfSmall: what a socket sends is not behind all small messages that
// another one's send buffer lets out, but behind its share of them.
func TestFloodOfSmall(t *testing.T) {
	const flood = 1900 // a send buffer of them; more are no message ids left
	r, a, b, quiet := turnPair(t)
	chunk, _ := a.send.Alloc(64)
	a.submitFrom(quiet, shm.Sub{Slot: 1})
	a.publish()
	r.until("the other socket's first message", func() bool { return b.quiet == 1 })
	for range flood {
		a.submit(shm.Sub{Chunk: chunk, Len: 64})
	}
	a.publish()
	for !a.p.cl.sub.Empty() { // and nobody receives
		now := r.now()
		a.e.Turn(now, Wall(now))
	}
	before := b.got
	a.submitFrom(quiet, shm.Sub{Slot: 1})
	a.publish()
	r.until("the other socket's message", func() bool { return b.quiet == 2 })
	const most = shareWindow + turnQuantum/(64+msgCost) + 1
	if n := b.got - before; n > most {
		t.Errorf("%d messages of the flood came first, %d at most", n, most)
	}
	r.until("the flood", func() bool { return b.got == 1+flood+2 })
	if sl := a.p.cl.slots[0]; sl.handed != 0 {
		r.until("all acknowledged", func() bool { return sl.handed == 0 })
	}
}

// TestFencedReads: READs that another socket has queued, of which every one has
// the message behind it wait, do not hold up what a socket sends: it is behind
// those under way.
func TestFencedReads(t *testing.T) {
	const (
		size  = 256 << 10
		reads = 200
		most  = opsWindow + 2*size // under way, and one that finished meanwhile
	)
	r, a, b, quiet := turnPair(t)
	call := func(h *rigHost, req ipc.Request) ipc.Response {
		resp, _, err := h.p.Call(req, nil)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	target := call(b, &ipc.Alloc{Size: size}).(*ipc.AllocOK).Buffer
	reg := call(b, &ipc.Register{Sock: b.sock, Buffer: target, Len: size, Access: abi.RightRead}).(*ipc.RegisterOK)
	call(b, &ipc.Expose{Region: reg.Region, Addr: a.addr})
	b.open(a)
	b.put(0, 0) // the grant goes ahead of it
	b.publish()
	r.until("grant", func() bool { return a.got == 1 })
	sink := call(a, &ipc.Alloc{Size: size}).(*ipc.AllocOK).Buffer
	segs, _ := a.send.Alloc(shm.AtomicEntrySize)
	for range reads {
		a.submit(shm.Sub{}, &shm.SubOp{Op: abi.OpRead, Flags: abi.FlagNotify, NSeg: 1, Region: sink, Len: size, Cookie: reg.Cookie, SegChunk: segs})
	}
	a.publish()
	r.until("the first", func() bool { return a.good > 0 })
	for i := range 10 {
		before := a.statuses
		a.submitFrom(quiet, shm.Sub{Slot: 1})
		a.publish()
		r.until("the other socket's message", func() bool { return b.quiet == i+1 })
		n := (a.statuses - before) * size
		t.Logf("%d bytes of READs came first", n)
		if n > most {
			t.Errorf("%d bytes of READs came first, %d at most", n, most)
		}
	}
	r.until("the READs", func() bool { return a.statuses == reads })
	if a.good != reads {
		t.Errorf("%d of %d READs succeeded", a.good, reads)
	}
}
