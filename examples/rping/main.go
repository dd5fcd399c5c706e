// Command rping is librdmacm's rping over the soft provider: a ping-pong that
// uses SEND, RDMA READ and RDMA WRITE. Either end can be the original rping:
//
//	rping -s                 # here, or Debian's rping -s on a machine with siw
//	rping -c -a HOST -C 10 -v -V
//
// A ping has four steps. The client SENDs the address of its data. The server
// READs the data and SENDs a message. The client SENDs the address for the
// data's return. The server WRITEs the data there and SENDs a message.
//
// -w records the connection as a capture for Wireshark. That needs no privilege.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"

	"github.com/rdsd/rdsd/examples/link"
)

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr, nil)
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rping:", err)
		os.Exit(1)
	}
}

// config is the parsed command line. The flags with one letter are the original's, except -w.
type config struct {
	server, client  bool
	addr            netip.AddrPort
	count, size     int
	verbose, verify bool
	persistent      bool
	common          link.Options
}

func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	var host string
	var port uint
	f := flag.NewFlagSet("rping", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.BoolVar(&c.server, "s", false, "be the server")
	f.BoolVar(&c.client, "c", false, "be the client")
	f.StringVar(&host, "a", "127.0.0.1", "`address` to listen on or to connect to")
	f.UintVar(&port, "p", 7174, "TCP `port`")
	f.IntVar(&c.count, "C", 0, "client: number of pings; 0 is without end")
	f.IntVar(&c.size, "S", 64, "`bytes` of ping data; for the server, the most that it takes")
	f.BoolVar(&c.verbose, "v", false, "print the ping data")
	f.BoolVar(&c.verify, "V", false, "client: check that the data comes back unchanged")
	f.BoolVar(&c.persistent, "P", false, "server: serve one client after the other")
	c.common.Flags(f)
	if err := f.Parse(args); err != nil {
		return c, err
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case f.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case c.server == c.client:
		return c, errors.New("one of -s and -c is needed")
	case err != nil:
		return c, fmt.Errorf("-a %q: not an IP address", host)
	case port > 65535:
		return c, fmt.Errorf("-p %d: not a port", port)
	case c.size < minSize || c.size > maxSize:
		return c, fmt.Errorf("-S %d: want %d to %d bytes", c.size, minSize, maxSize)
	case c.count < 0:
		return c, fmt.Errorf("-C %d: negative", c.count)
	case c.common.Timeout <= 0:
		return c, fmt.Errorf("-timeout %v: want more than 0", c.common.Timeout)
	}
	c.addr = netip.AddrPortFrom(ip, uint16(port))
	return c, nil
}

// run is main with its arguments and outputs. The server calls listening, if not nil, with
// the address on which it listens.
func run(args []string, stdout, stderr io.Writer, listening func(netip.AddrPort)) (err error) {
	c, err := parse(args, stderr)
	if err != nil {
		return err
	}
	e, err := link.Open(c.common)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	if c.server {
		return serve(e, c, stdout, listening)
	}
	return ping(e, c, stdout)
}
