package main

import (
	"context"
	"net/netip"
	"sync"

	"github.com/rdsd/rdsd/bench/worker"
	"github.com/rdsd/rdsd/rds"
)

// port is the port of the server's first socket. Its other sockets have the ports above. The
// client is bound at clientPort, and idle sockets at any port.
const (
	port       = 4000
	clientPort = 14000
)

// sendBatch is how many messages a batching application sends with one call.
const sendBatch = 64

// batch returns sendBatch, or less if so many messages would not fit into a send buffer.
func batch(size int) int { return min(sendBatch, max(1, (64<<10)/max(size, 1))) }

// attach opens a client and as many sockets as the argument says, and makes the idle sockets and
// peers.
func attach(w *worker.Worker) (*rds.Client, []*rds.Socket, error) {
	at := netip.MustParseAddrPort(w.Get("bind"))
	o := rds.Options{Socket: w.Get("socket"), Spin: w.Duration("appspin")}
	if w.Get("embedded") != "" {
		d, err := daemonWithin(w, at.Addr())
		if err != nil {
			return nil, nil, err
		}
		o = rds.Options{Daemon: d, Spin: o.Spin}
	}
	c, err := rds.Open(context.Background(), o)
	if err != nil {
		return nil, nil, err
	}
	socks := make([]*rds.Socket, max(w.Int("sockets"), 1))
	for i := range socks {
		if socks[i], err = c.Bind(netip.AddrPortFrom(at.Addr(), at.Port()+uint16(i))); err != nil {
			c.Close()
			return nil, nil, err
		}
		if n := w.Int("buffers"); n > 0 {
			_ = socks[i].SetSndBuf(n)
			_ = socks[i].SetRcvBuf(n)
		}
	}
	if err = idleBeside(w, c, at.Addr()); err == nil {
		err = w.Ready(at.String())
	}
	if err == nil {
		ballast(w)
	}
	if err != nil {
		c.Close()
	}
	return c, socks, err
}

// attachOne is attach for one socket. A client's socket is connected to the server's.
func attachOne(w *worker.Worker) (*rds.Client, *rds.Socket, error) {
	c, socks, err := attach(w)
	if err != nil {
		return nil, nil, err
	}
	if a := w.Get("addr"); a != "" {
		if err := socks[0].Connect(netip.MustParseAddrPort(a)); err != nil {
			c.Close()
			return nil, nil, err
		}
	}
	return c, socks[0], nil
}

func rdsEcho(w *worker.Worker) error {
	c, s, err := attachOne(w)
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, w.Int("size"))
	return w.Serve(func() error {
		for {
			n, from, err := s.RecvFrom(b)
			if err != nil {
				return err
			}
			if _, err := s.SendTo(b[:n], from); err != nil {
				return err
			}
			w.Msgs.Add(2)
		}
	})
}

func rdsPing(w *worker.Worker) error {
	c, s, err := attachOne(w)
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, w.Int("size"))
	return w.Trips(2, func() error {
		if _, err := s.Send(b); err != nil {
			return err
		}
		_, _, err := s.RecvFrom(b)
		return err
	})
}

// rdsPingOn makes round trips until its input ends.
func rdsPingOn(w *worker.Worker) error {
	b := make([]byte, w.Int("size"))
	return stream(w, w.Serve, func(s *rds.Socket) (int, error) {
		if _, err := s.Send(b); err != nil {
			return 0, err
		}
		_, _, err := s.RecvFrom(b)
		return 2, err
	})
}

// messages returns n messages, each with a buffer of its own.
func messages(n, size int) []rds.Message {
	ms := make([]rds.Message, n)
	for i := range ms {
		ms[i].Payload = make([]byte, size)
	}
	return ms
}

// stream moves messages one way, within run. step moves some and returns how many.
func stream(w *worker.Worker, run func(func() error) error, step func(*rds.Socket) (int, error)) error {
	c, s, err := attachOne(w)
	if err != nil {
		return err
	}
	defer c.Close()
	return run(func() error {
		for {
			n, err := step(s)
			if err != nil {
				return err
			}
			w.Msgs.Add(uint64(n))
		}
	})
}

func rdsSink(w *worker.Worker) error {
	ms := messages(batch(w.Int("size")), w.Int("size"))
	return stream(w, w.Count, func(s *rds.Socket) (int, error) { return s.RecvMsgs(ms) })
}

// rdsSinkOn is rdsSink until its input ends.
func rdsSinkOn(w *worker.Worker) error {
	ms := messages(batch(w.Int("size")), w.Int("size"))
	return stream(w, w.Serve, func(s *rds.Socket) (int, error) { return s.RecvMsgs(ms) })
}

func rdsSource(w *worker.Worker) error {
	ms := messages(batch(w.Int("size")), w.Int("size"))
	return stream(w, w.Serve, func(s *rds.Socket) (int, error) { return s.SendMsgs(ms) })
}

func rdsSinkOne(w *worker.Worker) error {
	b := make([]byte, w.Int("size"))
	return stream(w, w.Count, func(s *rds.Socket) (int, error) {
		_, _, err := s.RecvFrom(b)
		return 1, err
	})
}

func rdsSourceOne(w *worker.Worker) error {
	b := make([]byte, w.Int("size"))
	return stream(w, w.Serve, func(s *rds.Socket) (int, error) {
		_, err := s.Send(b)
		return 1, err
	})
}

// rdsFanSource sends from several sockets with one goroutine: a batch from each socket in turn.
func rdsFanSource(w *worker.Worker) error {
	c, socks, err := attach(w)
	if err != nil {
		return err
	}
	defer c.Close()
	ms := messages(sendBatch, w.Int("size"))
	to := netip.MustParseAddrPort(w.Get("addr"))
	for i := range ms {
		ms[i].Addr = to
	}
	return w.Serve(func() error {
		for i := 0; ; i = (i + 1) % len(socks) {
			n, err := socks[i].SendMsgs(ms)
			if err != nil {
				return err
			}
			w.Msgs.Add(uint64(n))
		}
	})
}

// rdsScatter sends batches from one socket, with each message to the next of the server's
// sockets.
func rdsScatter(w *worker.Worker) error {
	c, s, err := attachOne(w)
	if err != nil {
		return err
	}
	defer c.Close()
	ms := messages(sendBatch, w.Int("size"))
	first, n := netip.MustParseAddrPort(w.Get("addr")), max(w.Int("to"), 1)
	next := 0
	return w.Serve(func() error {
		for {
			for i := range ms {
				ms[i].Addr = netip.AddrPortFrom(first.Addr(), first.Port()+uint16(next))
				next = (next + 1) % n
			}
			k, err := s.SendMsgs(ms)
			if err != nil {
				return err
			}
			w.Msgs.Add(uint64(k))
		}
	})
}

// rdsFanSink receives with one goroutine for each of its sockets.
func rdsFanSink(w *worker.Worker) error {
	c, socks, err := attach(w)
	if err != nil {
		return err
	}
	defer c.Close()
	return w.Count(func() error {
		failed := make(chan error, len(socks))
		var running sync.WaitGroup
		for _, s := range socks {
			running.Go(func() {
				ms := messages(sendBatch, w.Int("size"))
				for {
					n, err := s.RecvMsgs(ms)
					if err != nil {
						failed <- err
						return
					}
					w.Msgs.Add(uint64(n))
				}
			})
		}
		return <-failed
	})
}
