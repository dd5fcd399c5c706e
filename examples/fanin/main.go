// Command fanin sends from many sockets to one that is slower than all of them. No sender
// blocks. While the destination is congested, a sender can do other work, and the congestion
// monitor says when to go on. Nothing is lost.
//
//	fanin -bind 10.0.0.1:4002 -messages 8000                  # the collector
//	fanin -bind 10.0.0.2:0 -to 10.0.0.1:4002 -messages 8000   # the senders
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"

	"github.com/rdsd/rdsd/rds"
)

func main() {
	bind := flag.String("bind", "127.0.0.1:0", "`address:port` of the collector, or the senders' address")
	to := flag.String("to", "", "`address:port` of the collector; without it, be the collector")
	messages := flag.Int("messages", 8000, "messages of all senders together")
	senders := flag.Int("senders", 8, "sockets that send")
	flag.Parse()
	if err := run(*bind, *to, *messages, *senders); err != nil {
		fmt.Fprintln(os.Stderr, "fanin:", err)
		os.Exit(1)
	}
}

func run(bind, to string, messages, senders int) error {
	if messages < 1 || senders < 1 || messages%senders != 0 {
		return errors.New("-messages must be a multiple of -senders")
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
	if to == "" {
		return collect(c, local, messages)
	}
	collector, err := netip.ParseAddrPort(to)
	if err != nil {
		return fmt.Errorf("-to: %w", err)
	}
	var socks []*rds.Socket
	for range senders {
		s, err := c.Bind(netip.AddrPortFrom(local.Addr(), 0))
		if err != nil {
			return err
		}
		socks = append(socks, s)
	}
	return send(socks, collector, messages/senders)
}

// collect receives with a small receive buffer. It checks that each sender's messages arrive
// once and in order.
func collect(c *rds.Client, at netip.AddrPort, messages int) error {
	s, err := c.Bind(at)
	if err != nil {
		return err
	}
	if err := s.SetRcvBuf(4096); err != nil {
		return err
	}
	fmt.Println("serving", s.LocalAddrPort())
	next := map[netip.AddrPort]uint64{}
	buf := make([]byte, 64)
	for range messages {
		_, from, err := s.RecvFrom(buf)
		if err != nil {
			return err
		}
		if got := binary.BigEndian.Uint64(buf); got != next[from] {
			return fmt.Errorf("message %d of %s instead of %d", got, from, next[from])
		}
		next[from]++
	}
	fmt.Printf("%d messages from %d senders, all in order\n", messages, len(next))
	return nil
}

// send is one loop for all senders. The loop waits only when no sender can send.
func send(socks []*rds.Socket, to netip.AddrPort, each int) error {
	sent := make([]int, len(socks))
	payload := make([]byte, 64)
	stopped := 0 // times a sender was stopped by congestion
	for todo := len(socks); todo > 0; {
		progress := false
		var stuck *rds.Socket
		var wait rds.WaitSet
		for i, s := range socks {
			for sent[i] < each {
				binary.BigEndian.PutUint64(payload, uint64(sent[i]))
				_, err := s.Send(rds.DontWait, &rds.Message{Payload: payload, Addr: to})
				if errors.Is(err, rds.ErrCongested) {
					stuck, wait = s, rds.WaitSet{Relief: []netip.AddrPort{to}}
					stopped++
					break
				}
				if errors.Is(err, rds.ErrWouldBlock) { // its own send buffer is full
					stuck, wait = s, rds.WaitSet{SendSpace: true}
					break
				}
				if err != nil {
					return err
				}
				progress = true
				if sent[i]++; sent[i] == each {
					todo--
				}
			}
		}
		if progress || todo == 0 {
			continue
		}
		// Here a program would do other work and poll.
		if _, err := stuck.Wait(context.Background(), wait); err != nil {
			return err
		}
	}
	fmt.Printf("%d messages sent, stopped by congestion: %v\n", each*len(socks), stopped > 0)
	for _, s := range socks { // CloseWait waits until everything sent is acknowledged
		if err := s.CloseWait(context.Background()); err != nil {
			return err
		}
	}
	return nil
}
