// Command ping measures round trips between two programs, one message at a time.
// (rdsctl ping measures between daemons. It needs no program at the other end.)
//
//	ping -bind 10.0.0.1:4001 -serve
//	ping -bind 10.0.0.2:0 -to 10.0.0.1:4001 -n 10000 -size 64
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/rds"
)

func main() {
	bind := flag.String("bind", "127.0.0.1:0", "`address:port` of the socket")
	serve := flag.Bool("serve", false, "be the server: send each message back")
	to := flag.String("to", "", "`address:port` of the server")
	n := flag.Int("n", 1000, "round trips")
	size := flag.Int("size", 64, "`bytes` of a message, at least 8")
	wait := flag.Duration("wait", 5*time.Second, "how long to wait for an answer")
	flag.Parse()
	if err := run(*bind, *to, *serve, *n, *size, *wait); err != nil {
		fmt.Fprintln(os.Stderr, "ping:", err)
		os.Exit(1)
	}
}

func run(bind, to string, serve bool, n, size int, wait time.Duration) error {
	switch {
	case serve == (to != ""):
		return errors.New("one of -serve and -to is needed")
	case n < 1:
		return fmt.Errorf("-n %d: want 1 or more", n)
	case size < 8 || size > rds.MaxMessage:
		return fmt.Errorf("-size %d: want 8 to %d", size, rds.MaxMessage)
	}
	local, err := netip.ParseAddrPort(bind)
	if err != nil {
		return fmt.Errorf("-bind: %w", err)
	}
	c, err := rds.Open(context.Background(), rds.Options{})
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := c.Bind(local)
	if err != nil {
		return err
	}
	if serve {
		return answer(s)
	}
	server, err := netip.ParseAddrPort(to)
	if err != nil {
		return fmt.Errorf("-to: %w", err)
	}
	return ping(s, server, n, size, wait)
}

// answer sends each message back until the program is interrupted.
func answer(s *rds.Socket) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	go func() { <-stop; s.Close() }()
	fmt.Println("serving", s.LocalAddrPort())
	buf := make([]byte, rds.MaxMessage)
	for {
		n, from, err := s.RecvFrom(buf)
		if err == nil {
			_, err = s.SendTo(buf[:n], from)
		}
		if errors.Is(err, rds.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// ping sends n numbered messages, one after the other, and prints the times. Each answer must
// be the message that was sent.
func ping(s *rds.Socket, server netip.AddrPort, n, size int, wait time.Duration) error {
	out, in := make([]byte, size), make([]byte, size)
	times := make([]time.Duration, n)
	for i := range times {
		binary.BigEndian.PutUint64(out, uint64(i))
		if err := s.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return err
		}
		start := time.Now()
		if _, err := s.SendTo(out, server); err != nil {
			return err
		}
		k, from, err := s.RecvFrom(in)
		times[i] = time.Since(start)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("no answer from %s within %v: does ping -serve run there? (rdsctl ping %s asks the daemon)", server, wait, server.Addr())
		case err != nil:
			return err
		case from != server || !bytes.Equal(in[:k], out):
			return fmt.Errorf("round trip %d: a wrong answer of %d bytes from %s", i, k, from)
		}
	}
	slices.Sort(times)
	at := func(q float64) time.Duration { return times[int(q*float64(n-1))] }
	fmt.Printf("%d round trips of %d bytes to %s: min %v, p50 %v, p99 %v, max %v\n",
		n, size, server, times[0], at(0.5), at(0.99), times[n-1])
	return nil
}
