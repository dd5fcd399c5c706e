package main

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/rdsd/rdsd/rds"
)

// port is where both sockets of a measurement are bound.
const port = 4000

// sendBatch is how many messages a batching application hands over at a time.
const sendBatch = 64

// open attaches and binds.
func (w *worker) open() (*rds.Client, *rds.Socket, error) {
	c, err := rds.Open(context.Background(), rds.Options{Socket: w.args["socket"], Spin: w.duration("appspin")})
	if err != nil {
		return nil, nil, err
	}
	s, err := c.Bind(netip.MustParseAddrPort(w.args["bind"]))
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	return c, s, w.ready(w.args["bind"])
}

// dial is open for a client: its socket is connected to the server's.
func (w *worker) dial() (*rds.Client, *rds.Socket, error) {
	c, s, err := w.open()
	if err == nil {
		err = s.Connect(netip.MustParseAddrPort(w.args["addr"]))
	}
	return c, s, err
}

func rdsEcho(w *worker) error {
	c, s, err := w.open()
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, w.int("size"))
	return w.serve(func() error {
		for {
			n, from, err := s.RecvFrom(b)
			if err != nil {
				return err
			}
			if _, err := s.SendTo(b[:n], from); err != nil {
				return err
			}
			w.msgs.Add(2)
		}
	})
}

func rdsPing(w *worker) error {
	c, s, err := w.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, w.int("size"))
	return w.trips(func() error {
		if _, err := s.Send(b); err != nil {
			return err
		}
		_, _, err := s.RecvFrom(b)
		return err
	})
}

// messages makes n of them, each with its own buffer.
func messages(n, size int) []rds.Message {
	ms := make([]rds.Message, n)
	for i := range ms {
		ms[i].Payload = make([]byte, size)
	}
	return ms
}

// stream attaches and moves messages one way with step, which says how many it
// moved, within run.
func (w *worker) stream(attach func() (*rds.Client, *rds.Socket, error), run func(func() error) error, step func(*rds.Socket) (int, error)) error {
	c, s, err := attach()
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
			w.msgs.Add(uint64(n))
		}
	})
}

func rdsSink(w *worker) error {
	ms := messages(sendBatch, w.int("size"))
	return w.stream(w.open, w.count, func(s *rds.Socket) (int, error) { return s.RecvMsgs(ms) })
}

func rdsSource(w *worker) error {
	ms := messages(sendBatch, w.int("size"))
	return w.stream(w.dial, w.serve, func(s *rds.Socket) (int, error) { return s.SendMsgs(ms) })
}

func rdsSinkOne(w *worker) error {
	b := make([]byte, w.int("size"))
	return w.stream(w.open, w.count, func(s *rds.Socket) (int, error) {
		_, _, err := s.RecvFrom(b)
		return 1, err
	})
}

func rdsSourceOne(w *worker) error {
	b := make([]byte, w.int("size"))
	return w.stream(w.dial, w.serve, func(s *rds.Socket) (int, error) {
		_, err := s.Send(b)
		return 1, err
	})
}

// rdmaTarget registers a region, sends its cookie to whoever asks for it, and
// then takes the immediate data of operations.
func rdmaTarget(w *worker) error {
	c, s, err := w.open()
	if err != nil {
		return err
	}
	defer c.Close()
	n := w.int("footprint") << 20
	buf, err := c.Alloc(n)
	if err != nil {
		return err
	}
	fill(buf.Bytes())
	reg, err := s.Register(buf, 0, n, rds.AllowRead|rds.AllowWrite)
	if err != nil {
		return err
	}
	ms := messages(sendBatch, 8)
	if err := s.RecvMsg(&ms[0]); err != nil {
		return err
	}
	if _, err := s.SendMsg(&rds.Message{Addr: ms[0].Addr, Cookie: reg.Cookie()}); err != nil {
		return err
	}
	return w.serve(func() error {
		for {
			n, err := s.RecvMsgs(ms)
			if err != nil {
				return err
			}
			w.msgs.Add(uint64(n))
		}
	})
}

func fill(b []byte) {
	for i := range b {
		b[i] = byte(i)
	}
}

func rdmaWrite(w *worker) error { return w.rdma(rds.Write) }
func rdmaRead(w *worker) error  { return w.rdma(rds.Read) }

// rdmaWindow is how many operations are in flight.
const rdmaWindow = 8

// rdma walks through the regions at both ends with operations of size bytes
// and counts those whose status came: successful, and settled by the peer's
// acknowledgement.
func (w *worker) rdma(kind rds.OpKind) error {
	c, s, err := w.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	n, size := w.int("footprint")<<20, w.int("size")
	buf, err := c.Alloc(n)
	if err != nil {
		return err
	}
	fill(buf.Bytes())
	if _, err := s.Send(nil); err != nil {
		return err
	}
	var hello rds.Message
	if err := s.RecvMsg(&hello); err != nil {
		return err
	}
	local := []rds.Segment{{Buf: buf, Len: size}}
	op := rds.RDMA{Kind: kind, Cookie: hello.Cookie, Local: local, Notify: true}
	m := rds.Message{Op: &op}
	done := make([]rds.Completion, rdmaWindow)
	return w.count(func() error {
		inFlight, off := 0, 0
		for {
			for ; inFlight < rdmaWindow; inFlight++ {
				local[0].Off, op.RemoteOff = off, uint64(off)
				if _, err := s.SendMsg(&m); err != nil {
					return err
				}
				off = (off + size) % n
			}
			if _, err := s.Wait(context.Background(), rds.WaitSet{Completion: true}); err != nil {
				return err
			}
			k := s.Completions(done)
			for _, d := range done[:k] {
				if d.Err() != nil {
					return fmt.Errorf("operation %d: %w", d.ID, d.Err())
				}
			}
			inFlight -= k
			w.msgs.Add(uint64(k))
		}
	})
}
