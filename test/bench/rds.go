package main

import (
	"context"
	"net/netip"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/test/bench/worker"
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

// end is an application of rdsd.
type end struct {
	*worker.Worker
	c     *rds.Client
	s     *rds.Socket // the first of socks
	socks []*rds.Socket
	to    netip.AddrPort // where it sends, if it is told
}

// role makes the role of an application: what it does again and again, and how.
func role(how func(*end, step) error, what func(*end) (step, error)) func(*worker.Worker) error {
	return func(w *worker.Worker) error {
		c, socks, err := attach(w)
		if err != nil {
			return err
		}
		defer c.Close()
		e := &end{Worker: w, c: c, s: socks[0], socks: socks}
		if a := w.Get("addr"); a != "" {
			e.to = netip.MustParseAddrPort(a)
		}
		do, err := what(e)
		if err != nil {
			return err
		}
		return how(e, do)
	}
}

// step moves some messages and returns how many.
type step func() (int, error)

// How a role does its steps: it counts them, or goes on until its input ends, or measures the
// time of each, which is that of two messages or of one operation.
func counts(e *end, do step) error  { return e.Each(e.Count, do) }
func serves(e *end, do step) error  { return e.Each(e.Serve, do) }
func tripsOf(e *end, do step) error { return e.timed(2, do) }
func timesOf(e *end, do step) error { return e.timed(1, do) }

func (e *end) timed(per uint64, do step) error {
	return e.Trips(per, func() error {
		_, err := do()
		return err
	})
}

func rdsEcho(e *end) (step, error) {
	b := make([]byte, e.Int("size"))
	return func() (int, error) {
		n, from, err := e.s.RecvFrom(b)
		if err != nil {
			return 0, err
		}
		_, err = e.s.SendTo(b[:n], from)
		return 2, err
	}, nil
}

func rdsPing(e *end) (step, error) {
	b := make([]byte, e.Int("size"))
	return func() (int, error) {
		if _, err := e.s.SendTo(b, e.to); err != nil {
			return 0, err
		}
		_, _, err := e.s.RecvFrom(b)
		return 2, err
	}, nil
}

// messages returns n messages to a destination, each with a buffer of its own.
func messages(n, size int, to netip.AddrPort) []rds.Message {
	ms := make([]rds.Message, n)
	for i := range ms {
		ms[i].Payload, ms[i].Addr = make([]byte, size), to
	}
	return ms
}

// room returns room for n messages.
func room(n, size int) []rds.Received {
	ms := make([]rds.Received, n)
	for i := range ms {
		ms[i].Payload = make([]byte, size)
	}
	return ms
}

func rdsSink(e *end) (step, error) {
	ms := room(batch(e.Int("size")), e.Int("size"))
	return func() (int, error) { return e.s.RecvBatch(context.Background(), ms) }, nil
}

func rdsSource(e *end) (step, error) {
	ms := messages(batch(e.Int("size")), e.Int("size"), e.to)
	return func() (int, error) { return e.s.SendBatch(context.Background(), ms) }, nil
}

func rdsSinkOne(e *end) (step, error) {
	b := make([]byte, e.Int("size"))
	return func() (int, error) {
		_, _, err := e.s.RecvFrom(b)
		return 1, err
	}, nil
}

func rdsSourceOne(e *end) (step, error) {
	b := make([]byte, e.Int("size"))
	return func() (int, error) {
		_, err := e.s.SendTo(b, e.to)
		return 1, err
	}, nil
}

// rdsFanSource sends with one goroutine: a batch from each of its sockets in turn, with each message
// to the next of the server's sockets.
func rdsFanSource(e *end) (step, error) {
	ms := messages(sendBatch, e.Int("size"), e.to)
	first, n := e.to, max(e.Int("to"), 1)
	next, from := 0, -1
	return func() (int, error) {
		for i := 0; n > 1 && i < len(ms); i++ {
			ms[i].Addr = netip.AddrPortFrom(first.Addr(), first.Port()+uint16(next))
			next = (next + 1) % n
		}
		from = (from + 1) % len(e.socks)
		return e.socks[from].SendBatch(context.Background(), ms)
	}, nil
}

// rdsFanSink receives with all its sockets.
func rdsFanSink(e *end) (step, error) {
	return e.bySocket(func(e *end) (step, error) {
		ms := room(sendBatch, e.Int("size"))
		return func() (int, error) { return e.s.RecvBatch(context.Background(), ms) }, nil
	})
}

// bySocket does what of each socket by one goroutine for each, of which the first is the caller.
func (e *end) bySocket(what func(*end) (step, error)) (step, error) {
	var do []step
	for _, s := range e.socks {
		of := *e
		of.s = s
		d, err := what(&of)
		if err != nil {
			return nil, err
		}
		do = append(do, d)
	}
	failed := make(chan error, len(do))
	for _, d := range do[1:] {
		go func() {
			failed <- e.Each(func(work func() error) error { return work() }, d)
		}()
	}
	return func() (int, error) {
		select {
		case err := <-failed:
			return 0, err
		default:
			return do[0]()
		}
	}, nil
}
