// Command krds exercises RDS sockets: the kernel's (AF_RDS), or rdsd's through
// the same calls (package afrds), or, for echo, rtt and rate, those of package
// rds. In the virtual machines it is what stands at either end when rdsd and Linux
// talk to each other.
//
//	krds [-via kernel|rdsd|rds] [-rdsd SOCKET] VERB [FLAGS]
//
//	ping  -from ADDR -to ADDR          messages to port 0, each waits for its pong
//	echo  -at ADDR:PORT                sends every message back, or -ack bytes of it
//	send  -from ADDR:PORT -to ADDR:PORT  streams of numbered messages, see stream.go
//	recv  -at ADDR:PORT                checks -streams of them and ends
//	rtt   -from ADDR:PORT -to ADDR:PORT  round trips to echo, for -for
//	rdma-serve -at ADDR:PORT           carries out -n operations for rdma-ask
//	rdma-ask -from ADDR -to ADDR:PORT  asks for them, in memory of its own
//	rate  -from ADDR:PORT -to ADDR:PORT  messages a second to echo, -depth at a time
//
// What was found goes to standard output, a line each; the status is not 0 if
// something was wrong.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	err := run(os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "krds:", err)
		os.Exit(1)
	}
}

// config is what the command line says.
type config struct {
	via, rdsd string
	out       io.Writer

	at, from, to   addrPort
	n, sockets     int
	streams        int
	sizes          sizes
	seed           uint64
	lossy          bool
	sndbuf, rcvbuf int
	delay, every   time.Duration
	limit, length  time.Duration
	size, ack      int
	depth          int
	nonblock       bool
	silent         bool
	bad            int
	patience       time.Duration
}

// addrPort is a flag's address; the port may be missing: any.
type addrPort struct{ netip.AddrPort }

func (a *addrPort) String() string { return a.AddrPort.String() }

func (a *addrPort) Set(s string) (err error) {
	if ip, err := netip.ParseAddr(s); err == nil {
		a.AddrPort = netip.AddrPortFrom(ip, 0)
		return nil
	}
	a.AddrPort, err = netip.ParseAddrPort(s)
	return err
}

// sizes are the lengths of messages: some, or all of a range.
type sizes []int

func (s *sizes) String() string { return fmt.Sprint([]int(*s)) }

func (s *sizes) Set(text string) error {
	*s = nil
	for f := range strings.SplitSeq(text, ",") {
		lo, hi, isRange := strings.Cut(f, "-")
		a, err := strconv.Atoi(lo)
		b := a
		if err == nil && isRange {
			b, err = strconv.Atoi(hi)
		}
		if err != nil || a < 0 || b < a || b > maxMessage {
			return fmt.Errorf("%q is no length from 0 to %d, and no range of them", f, maxMessage)
		}
		for ; a <= b; a++ {
			*s = append(*s, a)
		}
	}
	return nil
}

func run(args []string, out io.Writer) error {
	c := config{out: out, sizes: sizes{0, 1, 100, 4096, 70000}}
	fs := flag.NewFlagSet("krds", flag.ContinueOnError)
	fs.StringVar(&c.via, "via", "kernel", "whose sockets: kernel, rdsd, or rds (echo, rtt and rate only)")
	fs.StringVar(&c.rdsd, "rdsd", "", "rdsd's control socket")
	if err := fs.Parse(args); err != nil {
		return err
	}
	verbs := map[string]func(*config) error{"ping": ping, "echo": echo, "send": send, "recv": recv, "rtt": rtt, "rate": rate,
		"rdma-serve": rdmaServe, "rdma-ask": rdmaAsk}
	verb := verbs[fs.Arg(0)]
	if verb == nil {
		return fmt.Errorf("no verb %q", fs.Arg(0))
	}
	vs := flag.NewFlagSet(fs.Arg(0), flag.ContinueOnError)
	vs.Var(&c.at, "at", "address and port to receive at")
	vs.Var(&c.from, "from", "address to send from, and the first port; 0: any")
	vs.Var(&c.to, "to", "destination")
	vs.IntVar(&c.n, "n", 100, "messages of each socket")
	vs.IntVar(&c.sockets, "sockets", 1, "sockets that send, at ports from -from on")
	vs.IntVar(&c.streams, "streams", 1, "streams to receive before the end")
	vs.Var(&c.sizes, "sizes", "lengths of the messages in turn, as in 0-64,1000,1048576")
	vs.Uint64Var(&c.seed, "seed", 1, "of the contents")
	vs.BoolVar(&c.lossy, "lossy", false, "messages may be missing, but none comes twice or late: for restarts")
	vs.IntVar(&c.sndbuf, "sndbuf", 2<<20, "send buffer of each socket, bytes")
	vs.IntVar(&c.rcvbuf, "rcvbuf", 0, "receive buffer, bytes; 0: as it is")
	vs.DurationVar(&c.delay, "delay", 0, "wait before each message is received or sent")
	vs.DurationVar(&c.every, "every", 0, "say how far it is this often")
	vs.DurationVar(&c.limit, "limit", 60*time.Second, "longest wait for anything")
	vs.DurationVar(&c.length, "for", 2*time.Second, "how long to measure")
	vs.IntVar(&c.size, "size", 64, "message, bytes")
	vs.IntVar(&c.ack, "ack", -1, "of each message echo sends back so many bytes; -1: all")
	vs.IntVar(&c.depth, "depth", 64, "messages on their way at a time")
	vs.BoolVar(&c.nonblock, "nonblock", false, "poll and try again instead of sends that block")
	vs.BoolVar(&c.silent, "silent", false, "some operations are silent")
	vs.DurationVar(&c.patience, "patience", 5*time.Second, "how long rdma-ask waits before it asks again")
	vs.IntVar(&c.bad, "bad", 0, "of so many operations one has a spoilt key; 0: none")
	if err := vs.Parse(fs.Args()[1:]); err != nil {
		return err
	}
	if vs.NArg() > 0 {
		return fmt.Errorf("%s: %q is too much", fs.Arg(0), vs.Args())
	}
	return verb(&c)
}
