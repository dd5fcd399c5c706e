// Command krds tests and measures RDS sockets. It is the program at both ends when tests in
// virtual machines connect rdsd with Linux's RDS.
//
//	krds [-via kernel|rdsd|rds] [-rdsd SOCKET] VERB [FLAGS]
//
//	ping       -from ADDR -to ADDR            sends messages to port 0, one at a time, and waits for each pong
//	echo       -at ADDR:PORT                  sends every message back
//	send       -from ADDR:PORT -to ADDR:PORT  sends a stream from each of -sockets sockets, see stream.go
//	recv       -at ADDR:PORT                  checks streams and ends after -streams of them
//	rtt        -from ADDR:PORT -to ADDR:PORT  measures round trips to an echo, for the time -for
//	rate       -from ADDR:PORT -to ADDR:PORT  measures messages a second to an echo, -depth in progress
//	rdma-serve -at ADDR:PORT                  carries out -n operations that rdma-ask asks for
//	rdma-ask   -from ADDR -to ADDR:PORT       asks for -n operations in its own memory
//
// -via says whose sockets krds uses: the kernel's (AF_RDS), rdsd's by the kernel's calls
// (package afrds), or, for echo, rtt and rate only, those of package rds.
//
// krds prints its results to standard output, one in a line. Its exit status is 0 only if
// everything was right.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
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
	size           int
	depth          int
	nonblock       bool
	silent         bool
	bad            int
	patience       time.Duration
}

// addrPort is a flag with an address and a port. Without a port the port is 0.
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

// sizes is a flag with lengths of messages: numbers and ranges, separated by commas.
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
			return fmt.Errorf("%q is neither a length from 0 to %d nor a range of such lengths", f, maxMessage)
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
	fs.StringVar(&c.via, "via", "kernel", "whose `sockets` are used: kernel, rdsd, or rds (echo, rtt and rate only)")
	fs.StringVar(&c.rdsd, "rdsd", "", "rdsd's control `socket`, for -via rdsd and rds")
	if err := fs.Parse(args); err != nil {
		return err
	}
	verbs := map[string]func(*config) error{"ping": ping, "echo": echo, "send": send, "recv": recv, "rtt": rtt, "rate": rate,
		"rdma-serve": rdmaServe, "rdma-ask": rdmaAsk}
	verb := verbs[fs.Arg(0)]
	if verb == nil {
		return fmt.Errorf("no verb %q, want one of %s", fs.Arg(0), strings.Join(slices.Sorted(maps.Keys(verbs)), ", "))
	}
	vs := flag.NewFlagSet(fs.Arg(0), flag.ContinueOnError)
	vs.Var(&c.at, "at", "`address` and port of a server's socket")
	vs.Var(&c.from, "from", "`address` and port to send from; -sockets more than 1 take the next ports; without a port or with 0 any is taken")
	vs.Var(&c.to, "to", "`address` and port of the destination")
	vs.IntVar(&c.n, "n", 100, "messages of each sending socket, pings, or operations")
	vs.IntVar(&c.sockets, "sockets", 1, "sockets that send")
	vs.IntVar(&c.streams, "streams", 1, "streams after whose end recv ends")
	vs.Var(&c.sizes, "sizes", "`lengths` of the messages in turn, for example 0-64,1000,1048576; the same for send and recv")
	vs.Uint64Var(&c.seed, "seed", 1, "seed of the contents; each further socket has the next one")
	vs.BoolVar(&c.lossy, "lossy", false, "recv lets messages be missing, as after a restart, but none may come twice or late; the same for send and recv")
	vs.IntVar(&c.sndbuf, "sndbuf", 2<<20, "send buffer of each socket, in bytes; 0 leaves it as it is")
	vs.IntVar(&c.rcvbuf, "rcvbuf", 0, "receive buffer of each socket, in bytes; 0 leaves it as it is")
	vs.DurationVar(&c.delay, "delay", 0, "pause of send and recv after each message")
	vs.DurationVar(&c.every, "every", 0, "how often recv prints the number of messages; 0: never")
	vs.DurationVar(&c.limit, "limit", 60*time.Second, "longest wait for a message, or for room to send")
	vs.DurationVar(&c.length, "for", 2*time.Second, "how long rtt and rate measure")
	vs.IntVar(&c.size, "size", 64, "bytes of each message of rtt and rate; with -via rds, echo sends back no more than this")
	vs.IntVar(&c.depth, "depth", 64, "messages of rate that are in progress at the same time")
	vs.BoolVar(&c.nonblock, "nonblock", false, "sends do not block; krds polls and tries again")
	vs.BoolVar(&c.silent, "silent", false, "every fifth operation of rdma-ask is silent")
	vs.DurationVar(&c.patience, "patience", 5*time.Second, "how long rdma-ask waits before it asks again")
	vs.IntVar(&c.bad, "bad", 0, "one in so many operations of rdma-ask gets a spoilt key; 0: none")
	if err := vs.Parse(fs.Args()[1:]); err != nil {
		return err
	}
	if vs.NArg() > 0 {
		return fmt.Errorf("%s: unexpected arguments %q, want flags only", fs.Arg(0), vs.Args())
	}
	return verb(&c)
}
