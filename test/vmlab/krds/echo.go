package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/rdsd/rdsd/afrds"
	"golang.org/x/sys/unix"
)

func sockaddr(ap netip.AddrPort) []byte { return afrds.Sockaddr(ap) }

// ping sends -n messages to port 0, each after the answer to the one before. It prints the median
// round trip.
func ping(c *config) error {
	s, err := c.open(c.from.AddrPort)
	if err != nil {
		return err
	}
	defer s.close()
	if err := limitRecv(s, c.limit); err != nil {
		return err
	}
	to := sockaddr(netip.AddrPortFrom(c.to.Addr(), 0))
	var b [64]byte
	var took []time.Duration
	for i := range c.n {
		start := time.Now()
		if err := c.sendTo(s, nil, to); err != nil {
			return err
		}
		n, from, err := recvFrom(s, b[:])
		if err != nil {
			return fmt.Errorf("ping %d: %w", i, err)
		}
		if n != 0 || from != netip.AddrPortFrom(c.to.Addr(), 0) {
			return fmt.Errorf("ping %d: %d bytes from %v", i, n, from)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	fmt.Fprintf(c.out, "%d pings, median %v\n", c.n, took[len(took)/2])
	return nil
}

// echo answers every message until it is killed or has received nothing for -limit.
func echo(c *config) error {
	if c.via == "rds" {
		return c.nativeEcho(func() { fmt.Fprintln(c.out, "ready") })
	}
	s, err := c.open(c.at.AddrPort)
	if err != nil {
		return err
	}
	defer s.close()
	if err := limitRecv(s, c.limit); err != nil {
		return err
	}
	fmt.Fprintln(c.out, "ready")
	buf := make([]byte, maxMessage)
	for {
		n, from, err := recvFrom(s, buf)
		if errors.Is(err, unix.ETIMEDOUT) || errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.sendTo(s, buf[:n], sockaddr(from)); err != nil {
			return err
		}
	}
}

// rtt measures round trips to an echo, one at a time.
func rtt(c *config) error {
	c.depth = 1
	took, _, err := c.exchange()
	if err != nil {
		return err
	}
	slices.Sort(took)
	fmt.Fprintf(c.out, "rtt %d bytes: median %v, 99 %% %v, %d round trips\n", c.size, took[len(took)/2], took[len(took)*99/100], len(took))
	return nil
}

// rate measures messages a second to an echo, which answers each of them.
func rate(c *config) error {
	took, d, err := c.exchange()
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "rate %d bytes, depth %d: %.0f messages a second\n", c.size, c.depth, float64(len(took))/d.Seconds())
	return nil
}

// exchange keeps -depth messages in progress with an echo. After a warm-up of a tenth of -for it
// measures for -for. It returns the round trip of each answered message and the measured time.
// It takes answers to come in the order of the messages.
func (c *config) exchange() (took []time.Duration, d time.Duration, err error) {
	if c.via == "rds" {
		return c.nativeExchange()
	}
	s, err := c.open(c.from.AddrPort)
	if err != nil {
		return nil, 0, err
	}
	defer s.close()
	if err := limitRecv(s, c.limit); err != nil {
		return nil, 0, err
	}
	to, msg, buf := sockaddr(c.to.AddrPort), make([]byte, c.size), make([]byte, maxMessage)
	sent := make([]time.Time, c.depth)
	for i := range sent {
		sent[i] = time.Now()
		if err := c.sendTo(s, msg, to); err != nil {
			return nil, 0, err
		}
	}
	begin := time.Now()
	var start, now time.Time
	for i := 0; ; i = (i + 1) % c.depth {
		n, _, err := recvFrom(s, buf)
		if err != nil {
			return nil, 0, err
		}
		if n != c.size {
			return nil, 0, errAnswer(n, c.size)
		}
		now = time.Now()
		if !start.IsZero() {
			took = append(took, now.Sub(sent[i]))
			if now.Sub(start) >= c.length {
				return took, now.Sub(start), nil
			}
		} else if now.Sub(begin) > c.length/10 {
			start = now
		}
		sent[i] = now
		if err := c.sendTo(s, msg, to); err != nil {
			return nil, 0, err
		}
	}
}

// errAnswer says that an echo has answered a message of size bytes with n bytes.
func errAnswer(n, size int) error {
	return fmt.Errorf("an answer of %d bytes to a message of %d bytes: start echo with -size %d", n, size, size)
}
