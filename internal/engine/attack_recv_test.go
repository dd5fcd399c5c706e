package engine

import (
	"testing"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/shm"
)

// TestReturnOfUntoldID: a client that gives back a receive id it was never told
// of, that of a message under assembly, ends itself and nobody else.
func TestReturnOfUntoldID(t *testing.T) {
	w := newWorld(t, 2, Config{})
	a, b := w.attach(0, smallParams()), w.attach(1, smallParams())
	as := a.bind(10)
	b.bind(20)
	a.open(as, 0, 0, hostAddr(1), 20)
	a.sendMsg(as, 0, 0, 10)
	w.run()
	p := w.es[1].peers.all[0]
	if _, _, v := hostOf(p).Begin(nil, &wire.Header{DPort: 20, SPort: 10, Len: 100_000}); v != conn.Accepted {
		t.Fatal(v)
	}
	ret := b.seg.RecvRetProducer()
	ret.Put(w.es[1].rx.unfinished.Head.Of.rxid)
	ret.Publish()
	b.at.RingDaemon()
	w.run()
	b.alive(false)
	a.alive(true)
	w.clean(a, b)
}

// TestEmptyMessagesAreBounded: messages without payload that nobody reads take
// daemon memory, too.
func TestEmptyMessagesAreBounded(t *testing.T) {
	w := newWorld(t, 1, Config{HardCap: 64 << 10})
	r := w.attach(0, smallParams())
	from := r.bind(10)
	r.bind(11)
	r.open(from, 0, 0, hostAddr(0), 11)
	w.run()
	accepted := 0
	for range 100 {
		for id := range uint32(200) {
			if r.cl.msgs[id] == nil {
				r.sendMsg(from, 0, id, 0)
				accepted++
			}
		}
		w.run()
		sr := r.seg.SendRetConsumer()
		for _, ok := sr.Take(); ok; _, ok = sr.Take() {
		}
		sr.Release()
	}
	if out := w.es[0].pools.rxs.Out; out > (shm.DefaultBuf+64<<10)/overCost+1 {
		t.Errorf("%d empty messages in daemon memory", out)
	}
	// Whoever reads gets the rest.
	got := 0
	var ev shm.Entry
	for n := 0; n < 5000 && got < accepted; n++ {
		c, ret := r.seg.EventConsumer(), r.seg.RecvRetProducer()
		for c.Next(&ev) {
			if ev.Kind() == uint8(shm.EvData) {
				got++
				ret.Put(ev.Event().RxID)
			}
		}
		c.Release()
		ret.Publish()
		if shm.WakeNeeded(r.seg.DaemonAsleep()) {
			r.at.RingDaemon()
		}
		w.run()
	}
	sr := r.seg.SendRetConsumer()
	for _, ok := sr.Take(); ok; _, ok = sr.Take() {
	}
	if got != accepted {
		t.Errorf("%d of %d messages arrived", got, accepted)
	}
	w.clean(r)
}
