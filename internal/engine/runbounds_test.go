package engine

import (
	"testing"

	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/internal/shm"
)

// sendRun submits a run of n datagrams of size bytes each, in a chunk of the window's
// start. All of them may share it.
func (r *raw) sendRun(sock, slot, id uint32, n, size int) {
	r.w.t.Helper()
	var s shm.RunState
	b := r.send[shm.RunHead:]
	for range n {
		b = b[frames.Put(b, make([]byte, size)):]
		s = s.Append(size)
	}
	shm.RunWord(r.send).Open(s)
	r.put(func(e *shm.Entry) {
		*e.Sub() = shm.Sub{Kind: shm.KindRun, Sock: sock, Slot: slot, MsgID: id, Len: uint32(shm.RunHead + s.Len())}
	})
	r.w.run()
}

// TestEmptyRunsAreBounded: runs of empty datagrams that nobody reads count with all the
// memory that they take against their socket's cap, so that one socket does not take the
// daemon memory of its user's others.
func TestEmptyRunsAreBounded(t *testing.T) {
	const hardCap = 1 << 20
	w := newWorld(t, 1, Config{HardCap: hardCap})
	r := w.attach(0, smallParams())
	from := r.bind(10)
	r.bind(11)
	r.open(from, 0, 0, hostAddr(0), 11)
	sent := 0
	for id := range uint32(200) {
		r.sendRun(from, 0, id, frames.MaxLen/frames.Head, 0)
		sent += frames.MaxLen / frames.Head
	}
	if held := w.es[0].rx.overflow.used; held > shm.DefaultBuf+hardCap+frames.MaxLen+overCost {
		t.Errorf("%d bytes of daemon memory for one socket", held)
	}
	got, ev := 0, shm.Entry{}
	for n := 0; n < 5000 && got < sent; n++ {
		c, ret := r.seg.EventConsumer(), r.seg.RecvRetProducer()
		for c.Next(&ev) {
			if ev.Kind() == uint8(shm.EvData) {
				got += int(ev.Event().Len) / frames.Head
				ret.Put(ev.Event().RxID)
			}
		}
		r.took()
		ret.Publish()
		r.at.RingDaemon()
		w.run()
	}
	if got != sent {
		t.Errorf("%d of %d datagrams came", got, sent)
	}
	w.clean(r)
}

// TestRunWork: a run to a Linux kernel has a header for each datagram, and costs its
// socket's turn as much as if each was sent by itself.
func TestRunWork(t *testing.T) {
	run := txMsg{m: msg.Msg{Data: make([]byte, 100*frames.Head), Run: 100}, sum: frames.Sum{Datagrams: 100}}
	single := txMsg{m: msg.Msg{Data: make([]byte, frames.Head)}, sum: frames.Sum{Datagrams: 1}}
	if got, want := run.work(false), 100*single.work(false); got != want {
		t.Errorf("a run of 100 costs %d, want %d", got, want)
	}
	if got, most := run.work(true), len(run.m.Data)+msgCost; got != most {
		t.Errorf("a run to a peer that takes it whole costs %d, want %d", got, most)
	}
}
