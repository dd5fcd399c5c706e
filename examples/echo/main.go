// Command echo is the smallest use of RDS: one socket answers every client.
//
//	echo -bind 10.0.0.1:4000                                  # the server, until interrupted
//	echo -bind 10.0.0.2:0 -to 10.0.0.1:4000 hello again       # a message for each word
//
// -bind takes an address on which the host's rdsd listens. Port 0 is any free port.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"github.com/rdsd/rdsd/rds"
)

func main() {
	bind := flag.String("bind", "127.0.0.1:0", "`address:port` of the socket")
	to := flag.String("to", "", "`address:port` of the server; without it, be the server")
	flag.Parse()
	if err := run(*bind, *to, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}

func run(bind, to string, words []string) error {
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
	if to == "" {
		return serve(s)
	}
	server, err := netip.ParseAddrPort(to)
	if err != nil {
		return fmt.Errorf("-to: %w", err)
	}
	return ask(s, server, words)
}

// serve answers until the program is interrupted.
func serve(s *rds.Socket) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	go func() { <-stop; s.Close() }() // ends RecvFrom
	fmt.Println("serving", s.LocalAddrPort())
	buf := make([]byte, rds.MaxMessage)
	for {
		n, from, err := s.RecvFrom(buf)
		if errors.Is(err, rds.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := s.SendTo(buf[:n], from); err != nil {
			return err
		}
	}
}

// ask sends all words, then prints the answers. They come in order, each once.
func ask(s *rds.Socket, server netip.AddrPort, words []string) error {
	for _, w := range words {
		if _, err := s.SendTo([]byte(w), server); err != nil {
			return err
		}
	}
	buf := make([]byte, rds.MaxMessage)
	for back := 0; back < len(words); {
		// If nobody is bound at the destination, a notice comes back.
		ready, err := s.Wait(context.Background(), rds.WaitSet{Message: true, Notice: true})
		if err != nil {
			return err
		}
		var n [8]rds.Notice
		for _, n := range n[:s.Notices(n[:])] {
			if n.Kind == rds.NoSocket {
				return fmt.Errorf("nobody is bound to %s", n.To)
			}
		}
		if !ready.Message {
			continue
		}
		k, _, err := s.RecvFrom(buf)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", buf[:k])
		back++
	}
	return nil
}
