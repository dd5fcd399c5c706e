// Command perftest is the bandwidth part of linux-rdma's perftest over the soft
// provider: RDMA WRITE, RDMA READ and SEND. Either end can be the original with
// -R (connections by rdma_cm):
//
//	perftest write                # here, or ib_write_bw -R where there is siw
//	perftest write HOST           # here, or ib_write_bw -R HOST
//
// The test read goes with ib_read_bw, and send with ib_send_bw. Both sides must
// be given the same size, and for send the same number of messages.
//
// -w records the connections as a capture for Wireshark. That needs no privilege.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"

	"github.com/rdsd/rdsd/examples/link"
	"github.com/rdsd/rdsd/verbs"
)

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr, nil)
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "perftest:", err)
		os.Exit(1)
	}
}

const maxSize = 8 << 20 // as in perftest

// test says which operation is measured.
type test uint8

const (
	testWrite test = iota
	testRead
	testSend
)

var tests = map[string]test{"write": testWrite, "read": testRead, "send": testSend}

// config is the parsed command line. The flags p, s and n are those of the original.
type config struct {
	common      link.Options
	test        test
	isClient    bool
	addr        netip.AddrPort
	size, iters int
}

// Ids of work requests.
const (
	idSend   uint64 = iota // of the control connection
	idRecv                 // of both connections
	idTest                 // of the test
	idCredit               // the receiver's WRITE of its credit
)

// end is one of the two programs.
type end struct {
	config
	*link.End
}

func newEnd(c config) (*end, error) {
	e, err := link.Open(c.common)
	return &end{c, e}, err
}

// newLink makes a link with n bytes of memory, for depth work requests each way.
func (e *end) newLink(n, depth int, access verbs.Access) (*link.Link, error) {
	return e.NewLink(n, verbs.QPInitAttr{Ack: verbs.AckLocal, Access: access, Cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth, ReadDepth: 16}}, 0, idRecv)
}

func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	var port uint
	f := flag.NewFlagSet("perftest", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprintln(stderr, "usage: perftest write|read|send [flags] [HOST]")
		f.PrintDefaults()
	}
	f.UintVar(&port, "p", 18515, "TCP `port`")
	f.IntVar(&c.size, "s", 64<<10, "`bytes` of a message")
	f.IntVar(&c.iters, "n", 1000, "number of `messages`")
	c.common.Flags(f)
	name := ""
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		name, args = args[0], args[1:]
	}
	if err := f.Parse(args); err != nil {
		return c, err
	}
	host := "127.0.0.1"
	if f.NArg() > 0 {
		host, c.isClient = f.Arg(0), true
	}
	t, known := tests[name]
	ip, err := netip.ParseAddr(host)
	switch {
	case !known:
		return c, fmt.Errorf("test %q: want write, read or send", name)
	case f.NArg() > 1:
		return c, fmt.Errorf("unexpected argument %q", f.Arg(1))
	case err != nil:
		return c, fmt.Errorf("%q: not an IP address", host)
	case port > 65535:
		return c, fmt.Errorf("-p %d: not a port", port)
	case c.size < 1 || c.size > maxSize:
		return c, fmt.Errorf("-s %d: want 1 to %d bytes", c.size, maxSize)
	case c.iters < 5 || c.iters > 1e8:
		return c, fmt.Errorf("-n %d: want 5 to 100000000", c.iters)
	case c.common.Timeout <= 0:
		return c, fmt.Errorf("-timeout %v: want more than 0", c.common.Timeout)
	}
	c.test, c.addr = t, netip.AddrPortFrom(ip, uint16(port))
	return c, nil
}

// run is main with its arguments and outputs. The server calls listening, if not nil, with
// the address on which it listens.
func run(args []string, stdout, stderr io.Writer, listening func(netip.AddrPort)) (err error) {
	c, err := parse(args, stderr)
	if err != nil {
		return err
	}
	e, err := newEnd(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	if c.isClient {
		return e.client(stdout)
	}
	return e.server(stdout, listening)
}
