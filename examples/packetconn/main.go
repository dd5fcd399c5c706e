// Command packetconn counts words over a net.PacketConn. Only its function listen knows which
// network that is. UDP may lose or repeat a word. RDS does not.
//
//	packetconn -network rds -bind 10.0.0.1:4005
//	packetconn -network rds -bind 10.0.0.2:0 -to 10.0.0.1:4005 to be or not to be
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/rds"
)

// listen opens the program's socket. All other code is the same for both networks.
func listen(network, bind string) (net.PacketConn, error) {
	if network != "rds" {
		return net.ListenPacket(network, bind)
	}
	local, err := netip.ParseAddrPort(bind)
	if err != nil {
		return nil, err
	}
	c, err := rds.Open(context.Background(), rds.Options{})
	if err != nil {
		return nil, err
	}
	s, err := c.Bind(local)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return conn{s, c}, nil
}

// conn is a socket and its client. Close waits until everything sent is acknowledged, for at
// most ten seconds, and closes both.
type conn struct {
	*rds.Socket
	client *rds.Client
}

func (c conn) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(c.Socket.CloseWait(ctx), c.client.Close())
}

func main() {
	network := flag.String("network", "udp", "`udp` or rds")
	bind := flag.String("bind", "127.0.0.1:0", "`address:port` of the socket")
	to := flag.String("to", "", "`address:port` of the server; without it, be the server")
	flag.Parse()
	if err := run(*network, *bind, *to, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "packetconn:", err)
		os.Exit(1)
	}
}

func run(network, bind, to string, words []string) (err error) {
	if network != "udp" && network != "rds" {
		return fmt.Errorf("-network %q: want udp or rds", network)
	}
	pc, err := listen(network, bind)
	if err != nil {
		return err
	}
	if to == "" {
		return serve(pc)
	}
	defer func() { err = errors.Join(err, pc.Close()) }()
	server, err := netip.ParseAddrPort(to)
	if err != nil {
		return fmt.Errorf("-to: %w", err)
	}
	return count(pc, net.UDPAddrFromAddrPort(server), words)
}

func serve(pc net.PacketConn) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	go func() { <-stop; pc.Close() }() // ends ReadFrom
	fmt.Println("serving", pc.LocalAddr())
	seen := map[string]int{}
	buf := make([]byte, 1500)
	for {
		n, from, err := pc.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		seen[string(buf[:n])]++
		if _, err := pc.WriteTo(fmt.Appendf(nil, "%s %d", buf[:n], seen[string(buf[:n])]), from); err != nil {
			return err
		}
	}
}

func count(pc net.PacketConn, server net.Addr, words []string) error {
	buf := make([]byte, 1500)
	for _, w := range words {
		if _, err := pc.WriteTo([]byte(w), server); err != nil {
			return err
		}
		if err := pc.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			return err
		}
		n, _, err := pc.ReadFrom(buf)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", buf[:n])
	}
	return nil
}
