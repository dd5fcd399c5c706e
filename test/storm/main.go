// Command storm is the program at both ends of storm.sh: one socket that sends to many hosts, and a
// socket on each of them, which notes its longest wait for a message.
//
//	storm send SOCKET PEERS
//	storm recv SOCKET PEERS
//
// recv reports when its standard input ends.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rdsd/rdsd/rds"
)

const (
	port  = 4000
	every = 200 * time.Millisecond
	away  = 3 * time.Second // a longer wait than this is the one for the network
)

// host returns the address of the i-th host that is away, as storm.sh gives them, from 1.
func host(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), port)
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "storm:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("want send or recv, the daemon's control socket, and a number of hosts")
	}
	n, err := strconv.Atoi(args[2])
	if err != nil || n < 1 {
		return fmt.Errorf("%q hosts: want 1 or more", args[2])
	}
	c, err := rds.Open(context.Background(), rds.Options{Socket: args[1]})
	if err != nil {
		return err
	}
	defer c.Close()
	if args[0] == "send" {
		return send(c, n)
	}
	return recv(c, n)
}

// send sends a message to each host, again and again. What finds no room is not sent.
func send(c *rds.Client, n int) error {
	s, err := c.Bind(netip.MustParseAddrPort("10.0.0.1:4000"))
	if err != nil {
		return err
	}
	for range time.Tick(every) {
		for i := range n {
			_, err := s.Send(rds.DontWait, &rds.Message{Addr: host(i + 1), Payload: []byte("x")})
			if err != nil && !errors.Is(err, rds.ErrWouldBlock) {
				return err
			}
		}
	}
	return nil
}

// waits has when each host's longest wait for a message ended.
type waits struct {
	mu   sync.Mutex
	ends []time.Time
}

func recv(c *rds.Client, n int) error {
	var w waits
	for i := range n {
		s, err := c.Bind(host(i + 1))
		if err != nil {
			return err
		}
		go w.follow(s)
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	w.report(n)
	return nil
}

func (w *waits) follow(s *rds.Socket) {
	last := time.Now()
	for buf := make([]byte, 64); ; {
		if _, _, err := s.RecvFrom(buf); err != nil {
			return
		}
		now := time.Now()
		if now.Sub(last) > away {
			w.mu.Lock()
			w.ends = append(w.ends, now)
			w.mu.Unlock()
		}
		last = now
	}
}

func (w *waits) report(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortFunc(w.ends, time.Time.Compare)
	fmt.Printf("%d of %d hosts have messages again\n", len(w.ends), n)
	for _, share := range []int{1, 10, 25, 50, 75, 90, 99, 100} {
		if at := len(w.ends) * share / 100; at > 0 {
			fmt.Printf("%3d%% %v after the first\n", share, w.ends[at-1].Sub(w.ends[0]).Round(time.Millisecond))
		}
	}
}
