package engine

import (
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// counted checks that each peer of e counts what waits in its destinations.
func counted(t *testing.T, e *Engine) {
	t.Helper()
	for _, p := range e.peers.all {
		n := 0
		p.eachWaiting(func(m *msg.Msg) { n += m.Owner.(*txMsg).sum.Datagrams })
		if n != p.waiting {
			t.Fatalf("%v lane %d path %d: %d datagrams wait, %d are counted", p.addr, p.lane, p.path, n, p.waiting)
		}
	}
}

// TestWaitingIsCounted: what waits in destinations that lead to a peer is counted there and not walked, because the
// statistics ask a hundred times a second. It counts while it is there, and in datagrams.
func TestWaitingIsCounted(t *testing.T) {
	const ops, runs, each = 32, 8, 5
	w := newWorld(t, 1, Config{MaxPeers: 1})
	e := w.es[0]
	r := w.attach(0, smallParams())
	s := r.bind(10)
	b := r.must(&ipc.Alloc{Size: 4096}).(*ipc.AllocOK).Buffer
	r.open(s, 0, 0, nobody(1), 20)
	r.open(s, 1, 1, nobody(2), 20) // no room for its peer yet
	w.run()
	waits := func(want int) {
		t.Helper()
		got := 0
		for _, p := range e.peers.all {
			got += p.waiting
			i := p.c.Info()
			var row ctl.PeerInfo
			if e.watch.figures(p, &i, &row); row.Wanted != (want > 0) {
				t.Errorf("%d datagrams wait for %v, wanted %v", want, p.addr, row.Wanted)
			}
		}
		if counted(t, e); got != want {
			t.Fatalf("%d datagrams wait for the peer, want %d", got, want)
		}
	}
	waits(0)
	for i := range uint32(ops) {
		r.put(func(d *shm.Entry) { *d.Sub() = shm.Sub{Kind: shm.KindSendOp, Sock: s, Slot: 0, MsgID: i} })
		r.put(func(d *shm.Entry) {
			*d.SubOp() = shm.SubOp{Op: abi.OpRead, NSeg: 1, Region: b, Len: 8, Cookie: 12345, OpID: uint64(i) + 1}
		})
		if i%16 == 15 {
			w.turnAll()
		}
	}
	waits(ops)
	for i := range uint32(runs) {
		r.sendRun(s, 1, ops+i, each, 8)
		w.turnAll()
	}
	waits(ops)
	r.put(func(d *shm.Entry) { *d.Sub() = shm.Sub{Kind: shm.KindCancel, Sock: s, Slot: 0} })
	w.run()
	waits(0)
	r.put(func(d *shm.Entry) { *d.SubDest() = shm.SubDest{Kind: shm.KindCloseDest, Sock: s, Slot: 0} })
	w.run()
	waits((runs - 1) * each) // the first one asks which socket is there
}
