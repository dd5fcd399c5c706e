package main

import (
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/rdsd/rdsd/test/bench/model"
	"github.com/rdsd/rdsd/test/bench/worker"
)

// modelRelay is one of the model's two relays: the first of them listens, the second connects.
func modelRelay(w *worker.Worker) error {
	h, err := model.Attach(model.Inherited(0), w.Int("region"))
	if err != nil {
		return err
	}
	c, err := relayConn(w)
	if err != nil {
		return err
	}
	tune(c)
	f, err := c.(*net.TCPConn).File()
	c.Close() // or the runtime would watch the connection too
	if err != nil {
		return err
	}
	defer f.Close()
	r := model.NewRelay(h, int(f.Fd()))
	return w.Serve(func() error { return r.Run(w.Duration("spin")) })
}

// relayConn makes the connection between two relays. Both say that they are ready when it can be
// made.
func relayConn(w *worker.Worker) (net.Conn, error) {
	if a := w.Get("addr"); a != "" {
		if err := w.Ready("-"); err != nil {
			return nil, err
		}
		return net.Dial("tcp", a)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	if err := w.Ready(ln.Addr().String()); err != nil {
		return nil, err
	}
	return ln.Accept()
}

// modelLocalRelay is the model's one relay between two applications.
func modelLocalRelay(w *worker.Worker) error {
	var hosts [2]*model.Host
	for i := range hosts {
		var err error
		if hosts[i], err = model.Attach(model.Inherited(i), w.Int("region")); err != nil {
			return err
		}
	}
	if err := w.Ready("-"); err != nil {
		return err
	}
	r := model.NewLocalRelay(hosts[0], hosts[1])
	return w.Serve(func() error { return r.Run(w.Duration("spin")) })
}

// newModelApp is an application of the model. Without -app-spin it spins as long as a relay. With
// the argument other it is at the relay's ends of the rings.
func newModelApp(w *worker.Worker) (*model.App, error) {
	h, err := model.Attach(model.Inherited(0), w.Int("region"))
	if err != nil {
		return nil, err
	}
	spin := w.Duration("appspin")
	if spin == 0 {
		spin = w.Duration("spin")
	}
	end := h.App
	if w.Get("other") != "" {
		end = h.Other
	}
	if err = w.Ready("-"); err == nil {
		ballast(w)
	}
	return end(max(spin, 0)), err
}

func modelEcho(w *worker.Worker) error {
	a, err := newModelApp(w)
	if err != nil {
		return err
	}
	p := make([]byte, w.Int("size"))
	return w.Serve(func() error {
		runtime.LockOSThread()
		for {
			a.Wait()
			n, _ := a.Receive(p)
			a.Release()
			a.Send(p[:n])
			a.Publish()
			w.Msgs.Add(2)
		}
	})
}

func modelPing(w *worker.Worker) error {
	a, err := newModelApp(w)
	if err != nil {
		return err
	}
	p := make([]byte, w.Int("size"))
	runtime.LockOSThread()
	return w.Trips(2, func() error {
		a.Send(p)
		a.Publish()
		a.Wait()
		a.Receive(p)
		a.Release()
		return nil
	})
}

// modelRun is how many datagrams an application publishes or releases at once.
func modelRun(w *worker.Worker) int {
	if w.Get("single") != "" {
		return 1
	}
	return batch(w.Int("size"))
}

// modelLock returns the lock that an application has to take and whether it has to: one that other
// threads could use as well.
func modelLock(w *worker.Worker) (mu *sync.Mutex, on bool) {
	return new(sync.Mutex), w.Get("single") == "locked"
}

func modelSource(w *worker.Worker) error {
	a, err := newModelApp(w)
	if err != nil {
		return err
	}
	p, n := make([]byte, w.Int("size")), modelRun(w)
	mu, locked := modelLock(w)
	return w.Serve(func() error {
		runtime.LockOSThread()
		for {
			if locked {
				mu.Lock()
			}
			for range n {
				a.Send(p)
			}
			a.Publish()
			if locked {
				mu.Unlock()
			}
			w.Msgs.Add(uint64(n))
		}
	})
}

func modelSink(w *worker.Worker) error {
	a, err := newModelApp(w)
	if err != nil {
		return err
	}
	p, n := make([]byte, w.Int("size")), modelRun(w)
	mu, locked := modelLock(w)
	return w.Count(func() error {
		runtime.LockOSThread()
		for {
			if locked {
				mu.Lock()
			}
			a.Wait()
			k := 0
			for ; k < n; k++ {
				if _, ok := a.Receive(p); !ok {
					break
				}
			}
			a.Release()
			if locked {
				mu.Unlock()
			}
			w.Msgs.Add(uint64(k))
		}
	})
}

// modelBulk writes from its region to the other application's, a window of writes at a time: an
// RDMA write without the protocol.
func modelBulk(w *worker.Worker) error {
	a, err := newModelApp(w)
	if err != nil {
		return err
	}
	n, size := w.Int("footprint")<<20, w.Int("size")
	return w.Serve(func() error {
		runtime.LockOSThread()
		for off := 0; ; off = (off + size) % n {
			a.Write(off, size, rdmaWindow)
			w.Msgs.Add(1)
		}
	})
}

// directSpin is longer than any wait in a measurement, so applications that spin for it never
// block.
const directSpin = time.Minute

// directCases show what a way without a daemon could do between two processes of one host, with
// applications that block and with applications that spin.
func directCases() (cs []testCase) {
	for _, v := range []struct{ name, doc, spin string }{
		{"model-direct", "the model's rings between the two, no relay", "-1s"},
		{"model-spin", "the model's rings between the two, who spin", directSpin.String()},
	} {
		s := systems["model"]
		s.name, s.doc, s.topo, s.args = v.name, v.doc, noRelay, []string{"appspin=" + v.spin}
		for _, c := range []testCase{s.trip(64), s.flow(64)} {
			c.serverArg = []string{"other=on"}
			cs = append(cs, c)
		}
	}
	return cs
}
