package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/rdsd/rdsd/test/bench/worker"
)

// The subjects to which the echo or sink and the client subscribe.
const (
	toServer = "s"
	toClient = "c"
)

// natsHub runs a NATS server on a free port of 127.0.0.1, otherwise with nats-server's defaults.
func natsHub(w *worker.Worker) error {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		return err
	}
	s.Start()
	defer s.Shutdown()
	if !s.ReadyForConnections(10 * time.Second) {
		return errors.New("the NATS server does not start")
	}
	if err := w.Ready(s.ClientURL()); err != nil {
		return err
	}
	return w.Serve(func() error { return nil })
}

// natsSubscribe connects to the hub, subscribes to subject without limits for what is pending, and
// waits for the bench's "go".
func natsSubscribe(w *worker.Worker, subject string) (*nats.Conn, *nats.Subscription, error) {
	c, err := nats.Connect(w.Get("hub"))
	if err != nil {
		return nil, nil, fmt.Errorf("NATS: %w", err)
	}
	s, err := c.SubscribeSync(subject)
	if err == nil {
		err = s.SetPendingLimits(-1, -1)
	}
	if err == nil {
		err = c.Flush()
	}
	if err == nil {
		err = w.Ready(subject)
	}
	if err != nil {
		c.Close()
	}
	return c, s, err
}

const natsForever = time.Hour // longer than any measurement

// natsEcho sends each message back.
func natsEcho(w *worker.Worker) error {
	c, s, err := natsSubscribe(w, toServer)
	if err != nil {
		return err
	}
	defer c.Close()
	return w.Each(w.Serve, func() (int, error) {
		m, err := s.NextMsg(natsForever)
		if err != nil {
			return 0, err
		}
		return 2, c.Publish(toClient, m.Data)
	})
}

// natsPing measures round trips to natsEcho.
func natsPing(w *worker.Worker) error {
	c, s, err := natsSubscribe(w, toClient)
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, w.Int("size"))
	return w.Trips(2, func() error {
		if err := c.Publish(toServer, b); err != nil {
			return err
		}
		_, err := s.NextMsg(natsForever)
		return err
	})
}

// natsSink measures the rate of the messages that it receives.
func natsSink(w *worker.Worker) error {
	c, s, err := natsSubscribe(w, toServer)
	if err != nil {
		return err
	}
	defer c.Close()
	return w.Each(w.Count, func() (int, error) {
		_, err := s.NextMsg(natsForever)
		return 1, err
	})
}

// natsSource sends messages to natsSink without a pause.
func natsSource(w *worker.Worker) error {
	c, _, err := natsSubscribe(w, toClient)
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, w.Int("size"))
	return w.Each(w.Serve, func() (int, error) { return 1, c.Publish(toServer, b) })
}

// natsReply answers each request with its bytes.
func natsReply(w *worker.Worker) error { return natsServe(w, w.Serve) }

// natsReplySink is natsReply that measures.
func natsReplySink(w *worker.Worker) error { return natsServe(w, w.Count) }

func natsServe(w *worker.Worker, run func(func() error) error) error {
	c, s, err := natsSubscribe(w, toServer)
	if err != nil {
		return err
	}
	defer c.Close()
	return w.Each(run, func() (int, error) {
		m, err := s.NextMsg(natsForever)
		if err != nil {
			return 0, err
		}
		return 1, m.Respond(m.Data)
	})
}

// natsCalls connects to the hub and returns a function that makes one request.
func natsCalls(w *worker.Worker) (*nats.Conn, func() error, error) {
	c, _, err := natsSubscribe(w, toClient)
	if err != nil {
		return nil, nil, err
	}
	size := w.Int("size")
	return c, func() error {
		_, err := c.Request(toServer, make([]byte, size), natsForever)
		if errors.Is(err, nats.ErrNoResponders) {
			return io.EOF // the server, which measures, ends first
		}
		return err
	}, nil
}

// natsRequest makes one request after the other.
func natsRequest(w *worker.Worker) error {
	c, call, err := natsCalls(w)
	if err != nil {
		return err
	}
	defer c.Close()
	return w.Trips(2, call)
}

// natsMany makes requests from as many goroutines as the argument says.
func natsMany(w *worker.Worker) error {
	c, call, err := natsCalls(w)
	if err != nil {
		return err
	}
	defer c.Close()
	return w.Together(func() (int, error) { return 1, call() })
}
