// Command counter hands out numbers with RDMA atomics. The server registers eight bytes and
// sends a cookie for them to each client that asks. From then on, the clients increment the
// counter without the server's program.
//
//	counter -bind 10.0.0.1:4004
//	counter -bind 10.0.0.2:0 -to 10.0.0.1:4004 -n 1000
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/rds"
)

func main() {
	bind := flag.String("bind", "127.0.0.1:0", "`address:port` of the socket")
	to := flag.String("to", "", "`address:port` of the server; without it, be the server")
	n := flag.Int("n", 10, "numbers to draw")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *bind, *to, *n); err != nil {
		fmt.Fprintln(os.Stderr, "counter:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bind, to string, n int) error {
	local, err := netip.ParseAddrPort(bind)
	if err != nil {
		return fmt.Errorf("-bind: %w", err)
	}
	c, err := rds.Open(ctx, rds.Options{})
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := c.Bind(local)
	if err != nil {
		return err
	}
	if to == "" {
		return serve(ctx, c, s)
	}
	server, err := netip.ParseAddrPort(to)
	if err != nil {
		return fmt.Errorf("-to: %w", err)
	}
	return draw(ctx, s, server, n)
}

// serve answers each message with the cookie of the counter. The message that
// carries a cookie also grants its use to the host it goes to.
func serve(ctx context.Context, c *rds.Client, s *rds.Socket) error {
	mem, err := c.Alloc(8)
	if err != nil {
		return err
	}
	region, err := s.Register(mem, 0, 8, rds.AllowAtomic)
	if err != nil {
		return err
	}
	fmt.Println("serving", s.LocalAddrPort())
	for {
		switch _, err := s.Wait(ctx, rds.WaitSet{Message: true}); {
		case errors.Is(err, context.Canceled):
			// When Release returns, nobody can reach the memory any more.
			limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			err = region.Release(limit)
			fmt.Println("last number", binary.NativeEndian.Uint64(mem.Bytes()))
			return err
		case err != nil:
			return err
		}
		_, from, err := s.RecvFrom(nil)
		if err != nil {
			return err
		}
		if _, err := s.Send(context.Background(), &rds.Message{Addr: from, Cookie: region.Cookie()}); err != nil {
			return err
		}
	}
}

// draw asks for the counter, then takes n numbers from it.
func draw(ctx context.Context, s *rds.Socket, server netip.AddrPort, n int) error {
	if _, err := s.SendTo(nil, server); err != nil {
		return err
	}
	if err := s.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	var m rds.Received
	if err := s.Recv(context.Background(), &m); err != nil {
		return fmt.Errorf("no counter at %s: %w", server, err)
	}
	for range n {
		old, err := s.Atomic(ctx, server, &rds.Atomic{Cookie: m.Cookie, Add: 1})
		// If the server's daemon restarts or stays away, the status is Unknown: the number
		// may have been drawn. A program that must not skip numbers then has to find out.
		if err != nil {
			return err
		}
		fmt.Println(old + 1)
	}
	return nil
}
