package main

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/test/bench/worker"
)

// directEnd is an application at the other end of another application's rings. It shows what two
// processes of one host reach with rings between them and no process in the middle.
type directEnd struct {
	h     *floorHost
	sub   *shm.Consumer
	ret   *shm.IDProducer
	rx    *receiver
	echo  bool // it sends every message back; otherwise it counts them
	p     []byte
	msgs  *atomic.Uint64
	e     shm.Entry
	stuck bool // there was no room for e
}

func (d *directEnd) turn() (work bool, err error) {
	work = d.rx.takeBack()
	n := 0
	for ; n < floorDescs && (d.stuck || d.sub.Next(&d.e)); n++ {
		s := d.e.Sub()
		copy(d.p, window(d.h.send, s.Chunk, int(s.Len)))
		if d.echo {
			f := frame{n: s.Len}
			dst, ok := d.rx.begin(f)
			if d.stuck = !ok; d.stuck {
				break
			}
			copy(dst, d.p)
			d.rx.deliver(f)
		}
		d.ret.Put(s.MsgID)
	}
	if n == 0 {
		return work, nil
	}
	d.sub.Release()
	d.rx.publish()
	d.h.returned(d.ret)
	d.msgs.Add(uint64(n))
	return true, nil
}

func (d *directEnd) idle() bool { return !d.stuck && d.sub.Empty() && d.rx.ret.Empty() }

func (d *directEnd) wants() []unix.PollFd {
	return []unix.PollFd{{Fd: int32(d.h.relayRecv), Events: unix.POLLIN}}
}

// serveDirect runs a directEnd. run is called with the function that does one step.
func serveDirect(w *worker.Worker, echo bool, run func(func() error) error) error {
	h, err := inheritHost(0, w.Int("region"), true)
	if err != nil {
		return err
	}
	if err := w.Ready("-"); err != nil {
		return err
	}
	d := &directEnd{h: h, sub: h.seg.SubConsumer(), ret: h.seg.SendRetProducer(), rx: newReceiver(h), echo: echo, p: make([]byte, w.Int("size")), msgs: &w.Msgs}
	return run(func() error { return drive(d, max(w.Duration("appspin"), 0), h) })
}

func floorDirectEcho(w *worker.Worker) error { return serveDirect(w, true, w.Serve) }

func floorDirectSink(w *worker.Worker) error { return serveDirect(w, false, w.Count) }

// directSpin is longer than any wait in a measurement, so applications that spin for it never
// block.
const directSpin = time.Minute

// directCases show what a way without a daemon could do between two processes of one host, with
// applications that block and with applications that spin.
func directCases() (cs []testCase) {
	for _, v := range []struct{ name, doc, spin string }{
		{"floor-direct", "bare rings between the two, no relay", "-1s"},
		{"floor-spin", "bare rings between the two, who spin", directSpin.String()},
	} {
		s := system{name: v.name, doc: v.doc, topo: noRelay, echo: "floor-direct-echo", ping: "floor-ping", sink: "floor-direct-sink", source: "floor-source", args: []string{"appspin=" + v.spin}}
		cs = append(cs, s.trip(64), s.flow(64))
	}
	return cs
}
