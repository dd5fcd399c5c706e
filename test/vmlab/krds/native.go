package main

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"time"

	"github.com/rdsd/rdsd/rds"
)

// With -via rds, echo, rtt and rate do what an application of package rds does: one call takes
// all messages that are there, and one call sends as many.

// native opens a socket of package rds.
func (c *config) native(at netip.AddrPort) (*rds.Client, *rds.Socket, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // emulated hosts are slow
	defer cancel()
	k, err := rds.Open(ctx, rds.Options{Socket: c.rdsd})
	if err != nil {
		return nil, nil, err
	}
	s, err := k.Bind(at)
	if err != nil {
		return nil, nil, errors.Join(err, k.Close())
	}
	return k, s, nil
}

// room returns room for n messages of size bytes.
func room(n, size int) []rds.Received {
	ms := make([]rds.Received, n)
	for i := range ms {
		ms[i].Payload = make([]byte, size)
	}
	return ms
}

// nativeEcho does what echo does, by package rds. It calls ready when its socket is bound. Messages
// longer than -size are cut to that length.
func (c *config) nativeEcho(ready func()) error {
	k, s, err := c.native(c.at.AddrPort)
	if err != nil {
		return err
	}
	defer k.Close()
	ready()
	in := room(64, c.size)
	out := make([]rds.Message, len(in))
	for {
		if err := s.SetReadDeadline(time.Now().Add(c.limit)); err != nil {
			return err
		}
		n, err := s.RecvBatch(context.Background(), in)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range n {
			out[i] = rds.Message{Payload: in[i].Payload[:in[i].N], Addr: in[i].Addr}
		}
		if _, err := s.SendBatch(context.Background(), out[:n]); err != nil {
			return err
		}
	}
}

// nativeExchange does what exchange does, by package rds.
func (c *config) nativeExchange() (took []time.Duration, d time.Duration, err error) {
	k, s, err := c.native(c.from.AddrPort)
	if err != nil {
		return nil, 0, err
	}
	defer k.Close()
	if err := s.SetReadDeadline(time.Now().Add(c.limit + c.length)); err != nil {
		return nil, 0, err
	}
	in, out := room(c.depth, c.size), make([]rds.Message, c.depth)
	for i := range out {
		out[i] = rds.Message{Payload: make([]byte, c.size), Addr: c.to.AddrPort}
	}
	sent := make([]time.Time, c.depth)
	begin := time.Now()
	for i := range sent {
		sent[i] = begin
	}
	if _, err := s.SendBatch(context.Background(), out); err != nil {
		return nil, 0, err
	}
	var start, now time.Time
	for i := 0; ; {
		n, err := s.RecvBatch(context.Background(), in)
		if err != nil {
			return nil, 0, err
		}
		now = time.Now()
		for _, m := range in[:n] {
			if m.N != c.size {
				return nil, 0, errAnswer(m.N, c.size)
			}
			if !start.IsZero() {
				took = append(took, now.Sub(sent[i]))
			}
			sent[i] = now
			i = (i + 1) % c.depth
		}
		if !start.IsZero() && now.Sub(start) >= c.length {
			return took, now.Sub(start), nil
		}
		if start.IsZero() && now.Sub(begin) > c.length/10 {
			start = now
		}
		if _, err := s.SendBatch(context.Background(), out[:n]); err != nil {
			return nil, 0, err
		}
	}
}
