package main

import (
	"net"
	"runtime"

	"github.com/rdsd/rdsd/test/bench/model"
	"github.com/rdsd/rdsd/test/bench/worker"
)

// modelRelay is one of the model's two relays: the first of them listens, the second connects.
func modelRelay(w *worker.Worker) error {
	h, err := model.Attach(model.Inherited(0))
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

// modelLocalRelay is the model's one relay between two applications.
func modelLocalRelay(w *worker.Worker) error {
	var hosts [2]*model.Host
	for i := range hosts {
		var err error
		if hosts[i], err = model.Attach(model.Inherited(i)); err != nil {
			return err
		}
	}
	if err := w.Ready("-"); err != nil {
		return err
	}
	r := model.NewLocalRelay(hosts[0], hosts[1])
	return w.Serve(func() error { return r.Run(w.Duration("spin")) })
}

// newModelApp is an application of the model. Without -app-spin it spins as long as a relay.
func newModelApp(w *worker.Worker) (*model.App, error) {
	h, err := model.Attach(model.Inherited(0))
	if err != nil {
		return nil, err
	}
	spin := w.Duration("appspin")
	if spin == 0 {
		spin = w.Duration("spin")
	}
	return h.App(max(spin, 0)), w.Ready("-")
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

func modelSource(w *worker.Worker) error {
	a, err := newModelApp(w)
	if err != nil {
		return err
	}
	p, n := make([]byte, w.Int("size")), modelRun(w)
	return w.Serve(func() error {
		runtime.LockOSThread()
		for {
			for range n {
				a.Send(p)
			}
			a.Publish()
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
	return w.Count(func() error {
		runtime.LockOSThread()
		for {
			a.Wait()
			k := 0
			for ; k < n; k++ {
				if _, ok := a.Receive(p); !ok {
					break
				}
			}
			a.Release()
			w.Msgs.Add(uint64(k))
		}
	})
}
