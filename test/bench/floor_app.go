package main

import (
	"math/bits"
	"runtime"
	"time"

	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/test/bench/worker"
)

// floorApp is an application on the bare path.
type floorApp struct {
	h       *floorHost
	sub     *shm.Producer
	sendRet *shm.IDConsumer
	ev      *shm.Consumer
	recvRet *shm.IDProducer
	ids     *ids
	bell    *shm.FDWaiter
	spin    time.Duration
	taken   bool // there are returns to be published
}

func newFloorApp(w *worker.Worker) (*floorApp, error) {
	h, err := inheritHost(0, w.Int("region"), false)
	if err != nil {
		return nil, err
	}
	bell, err := shm.NewFDWaiter(h.appRecv, nil)
	if err != nil {
		return nil, err
	}
	a := &floorApp{h: h, sub: h.seg.SubProducer(), sendRet: h.seg.SendRetConsumer(), ev: h.seg.EventConsumer(), recvRet: h.seg.RecvRetProducer(),
		ids: newIDs(h.send, floorParams().MaxMsgs), bell: bell, spin: w.Duration("appspin")}
	if a.spin == 0 { // as long as a relay
		a.spin = w.Duration("spin")
	}
	if err = w.Ready("-"); err == nil {
		ballast(w)
	}
	return a, err
}

// spinFor yields until ready returns true or a.spin has passed. ready looks at the rings.
func (a *floorApp) spinFor(ready func() bool) bool {
	if ready() {
		return true
	}
	for start := time.Now(); a.spin > 0 && time.Since(start) < a.spin; {
		yield()
		if ready() {
			return true
		}
	}
	return false
}

// waitMessage blocks until there is a message, and takes it.
func (a *floorApp) waitMessage(p []byte) {
	if a.spinFor(func() bool { return a.next(p) }) {
		return
	}
	for !a.next(p) {
		a.h.seg.ClientAsleep().Store(1)
		if a.ev.Empty() {
			a.bell.Wait(0)
		}
		a.h.seg.ClientAsleep().Store(0)
	}
}

// waitReturns blocks until ready returns true. ready looks at the returned ids.
func (a *floorApp) waitReturns(ready func() bool) {
	if a.spinFor(ready) {
		return
	}
	for {
		a.h.seg.WantSlot(0).SetRelief()
		if ready() {
			return
		}
		a.bell.Wait(0)
	}
}

func (a *floorApp) ring() {
	if shm.WakeNeeded(a.h.seg.DaemonAsleep()) {
		shm.Ring(a.h.relaySend)
	}
}

// submit publishes the messages that were queued.
func (a *floorApp) submit() {
	a.sub.Publish()
	a.ring()
}

// reap takes the memory of sent messages back.
func (a *floorApp) reap() (any bool) {
	for {
		id, ok := a.sendRet.Take()
		if !ok {
			break
		}
		a.ids.giveBack(id)
		any = true
	}
	if any {
		a.sendRet.Release()
	}
	return any
}

// queue puts a message on the ring. If there is no room, it publishes the queued ones first.
func (a *floorApp) queue(p []byte) {
	id, mem, ok := a.ids.take(len(p))
	if !ok && a.reap() {
		id, mem, ok = a.ids.take(len(p))
	}
	for !ok {
		a.submit()
		a.waitReturns(a.reap)
		id, mem, ok = a.ids.take(len(p))
	}
	copy(mem, p)
	e := a.entry()
	s := e.Sub()
	s.Kind, s.Flags, s.MsgID, s.Chunk, s.Len = shm.KindSend, 0, id, a.ids.refs[id].chunk, uint32(len(p))
}

// entry returns the next free entry of the ring.
func (a *floorApp) entry() *shm.Entry {
	e := a.sub.Reserve()
	for e == nil {
		a.submit()
		a.waitReturns(func() bool { a.reap(); return a.sub.Free() > 0 })
		e = a.sub.Reserve()
	}
	return e
}

// next takes a message, if there is one.
func (a *floorApp) next(p []byte) bool {
	var e shm.Entry
	if !a.ev.Next(&e) {
		return false
	}
	a.ev.Release()
	ev := e.Event()
	if ev.Flags == frameBulk {
		return true
	}
	if ev.Len > 0 {
		copy(p, window(a.h.recv, ev.Chunk, int(ev.Len)))
	}
	a.recvRet.Put(ev.RxID)
	a.taken = true
	return true
}

// done publishes the returns of the messages that were taken.
func (a *floorApp) done() {
	if a.taken {
		a.taken = false
		a.recvRet.Publish()
		a.ring()
	}
}

func (a *floorApp) receive(p []byte) {
	a.waitMessage(p)
	a.done()
}

func floorEcho(w *worker.Worker) error {
	a, err := newFloorApp(w)
	if err != nil {
		return err
	}
	p := make([]byte, w.Int("size"))
	return w.Serve(func() error {
		runtime.LockOSThread()
		for {
			a.receive(p)
			a.reap()
			a.queue(p)
			a.submit()
			w.Msgs.Add(2)
		}
	})
}

func floorPing(w *worker.Worker) error {
	a, err := newFloorApp(w)
	if err != nil {
		return err
	}
	p := make([]byte, w.Int("size"))
	runtime.LockOSThread()
	return w.Trips(2, func() error {
		a.reap()
		a.queue(p)
		a.submit()
		a.receive(p)
		return nil
	})
}

func floorSource(w *worker.Worker) error {
	a, err := newFloorApp(w)
	if err != nil {
		return err
	}
	p := make([]byte, w.Int("size"))
	n := batch(len(p))
	return w.Serve(func() error {
		runtime.LockOSThread()
		for {
			for range n {
				a.queue(p)
			}
			a.submit()
			w.Msgs.Add(uint64(n))
		}
	})
}

func floorSink(w *worker.Worker) error {
	a, err := newFloorApp(w)
	if err != nil {
		return err
	}
	p := make([]byte, w.Int("size"))
	n := batch(len(p))
	return w.Count(func() error {
		runtime.LockOSThread()
		for {
			a.waitMessage(p)
			k := 1
			for ; k < n && a.next(p); k++ {
			}
			a.done()
			w.Msgs.Add(uint64(k))
		}
	})
}

// floorBulk writes from its region to the other application's, a window of writes at a time.
// That is an RDMA write without the protocol.
func floorBulk(w *worker.Worker) error {
	a, err := newFloorApp(w)
	if err != nil {
		return err
	}
	n, size := w.Int("footprint")<<20, w.Int("size")
	fill(a.h.region[:n])
	return w.Serve(func() error {
		runtime.LockOSThread()
		free := uint32(1)<<rdmaWindow - 1 // a bit for each write
		for off := 0; ; off = (off + size) % n {
			for free == 0 {
				a.waitReturns(func() bool {
					for {
						id, ok := a.sendRet.Take()
						if !ok {
							break
						}
						free |= 1 << id
					}
					a.sendRet.Release()
					return free != 0
				})
			}
			id := uint32(bits.TrailingZeros32(free))
			free &^= 1 << id
			s := a.entry().Sub()
			s.Kind, s.Flags, s.MsgID, s.Off, s.Len = shm.KindSend, shm.SubFromBuf, id, uint64(off), uint32(size)
			a.submit()
			w.Msgs.Add(1)
		}
	})
}
