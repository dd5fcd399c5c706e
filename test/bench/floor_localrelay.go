package main

import (
	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/test/bench/worker"
)

// localRelay is the one relay of two applications on one host. It copies once, from the sender's
// memory to the receiver's.
type localRelay struct {
	hosts [2]*floorHost
	sub   [2]*shm.Consumer
	ret   [2]*shm.IDProducer
	rx    [2]*receiver
	wait  [2]struct { // a message for which there was no room
		e    shm.Entry
		have bool
	}
}

func newLocalRelay(a, b *floorHost) *localRelay {
	l := &localRelay{hosts: [2]*floorHost{a, b}}
	for i, h := range l.hosts {
		l.sub[i], l.ret[i], l.rx[i] = h.seg.SubConsumer(), h.seg.SendRetProducer(), newReceiver(h)
	}
	return l
}

func (l *localRelay) turn() (work bool, err error) {
	for i := range l.hosts {
		to, n := l.rx[1-i], 0
		if to.takeBack() {
			work = true
		}
		for ; n < floorDescs; n++ {
			w := &l.wait[i]
			if !w.have && !l.sub[i].Next(&w.e) {
				break
			}
			s := w.e.Sub()
			f := frame{n: s.Len}
			dst, ok := to.begin(f)
			if w.have = !ok; w.have {
				break
			}
			if s.Len > 0 {
				copy(dst, window(l.hosts[i].send, s.Chunk, int(s.Len)))
			}
			to.deliver(f)
			l.ret[i].Put(s.MsgID)
		}
		if n == 0 {
			continue
		}
		work = true
		l.sub[i].Release()
		to.publish()
		l.hosts[i].returned(l.ret[i])
	}
	return work, nil
}

func (l *localRelay) idle() bool {
	for i := range l.hosts {
		if !l.wait[i].have && !l.sub[i].Empty() || !l.rx[i].ret.Empty() {
			return false
		}
	}
	return true
}

func (l *localRelay) wants() []unix.PollFd {
	return []unix.PollFd{{Fd: int32(l.hosts[0].relayRecv), Events: unix.POLLIN}, {Fd: int32(l.hosts[1].relayRecv), Events: unix.POLLIN}}
}

func floorLocalRelay(w *worker.Worker) error {
	a, err := inheritHost(0, w.Int("region"), true)
	if err != nil {
		return err
	}
	b, err := inheritHost(1, w.Int("region"), true)
	if err != nil {
		return err
	}
	if err := w.Ready("-"); err != nil {
		return err
	}
	return relayServe(w, newLocalRelay(a, b), a, b)
}
