package engine

import (
	"errors"
	"runtime"
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// TestManyDestinations: a socket with every destination slot there is, all
// refused, all with notices to tell, and its end.
func TestManyDestinations(t *testing.T) {
	w := newWorld(t, 1, Config{HardCap: 1})
	p := smallParams()
	p.SubEntries, p.MaxMsgs, p.Slots = 1<<16, 1<<16, maxDests
	r, b := w.attach(0, p), w.attach(0, smallParams())
	s := r.bind(10)
	b.must(&ipc.Bind{Addr: hostAddr(0), Port: 11, RcvBuf: 1})
	n := uint32(1 << 16)
	for i := range n {
		if r.seg.SubProducer().Free() == 0 {
			w.es[0].Turn(w.net.Now(), Wall(w.net.Now()))
		}
		r.open(s, i, 0, hostAddr(0), 11)
	}
	w.run()
	for i := range n - 1 {
		if r.seg.SubProducer().Free() == 0 {
			w.es[0].Turn(w.net.Now(), Wall(w.net.Now()))
		}
		r.sendMsg(s, i, i, 1)
	}
	w.run()
	for i := range n {
		sl := r.cl.slots[i]
		sl.lost++
		w.es[0].clients.note(sl)
	}
	ev := r.seg.EventConsumer()
	var x shm.Entry
	for got := 0; got < int(n); {
		for ev.Next(&x) {
			got++
		}
		ev.Release()
		w.es[0].clients.writePending(r.cl)
		r.cl.ev.Publish()
	}
	r.at.Close()
	w.clean(b)
}

// TestManySockets: the end of a process with every port of an address.
func TestManySockets(t *testing.T) {
	w := newWorld(t, 1, Config{})
	r := w.attach(0, smallParams())
	for port := 2; port < 1<<16; port++ {
		r.bind(uint16(port))
	}
	if _, err := r.call(&ipc.Bind{Addr: hostAddr(0)}); err == nil {
		t.Error("a port more than there are")
	}
	for range 10000 {
		w.es[0].PublishStats(1)
	}
	r.at.Close()
	w.clean()
}

// TestIdleSocketMemory: what a socket that does nothing costs the daemon, with
// all ports of an address bound by one process of an ordinary user, under the
// default quotas.
func TestIdleSocketMemory(t *testing.T) {
	cfg := config.Default()
	w := newWorld(t, 1, Config{MaxSockets: cfg.Limits.MaxSockets, Policy: cfg.Policy(500, nil)})
	r := w.as(1000)
	used := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const all = 1<<16 - firstPort
	before := used()
	for range all {
		r.must(&ipc.Bind{Addr: hostAddr(0)})
	}
	if each := (used() - before) / all; each > 1<<10 {
		t.Errorf("an idle socket costs %d bytes", each)
	} else {
		t.Logf("an idle socket costs %d bytes", each)
	}
	if _, err := r.call(&ipc.Bind{Addr: hostAddr(0)}); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("socket %d: %v", all+1, err)
	}
	w.clean(r)
}
