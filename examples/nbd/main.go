package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

// run is the program. It returns the exit status. All output goes to stderr.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	srv, listen, err := parse(args, stderr)
	if err == nil {
		err = srv.run(ctx, listen, stderr)
	}
	var u *store.UsageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, flag.ErrHelp):
		return exitUsage
	}
	fmt.Fprintf(stderr, "nbd: %v\n", err)
	if errors.As(err, &u) {
		return exitUsage
	}
	return exitFailed
}

const usage = `usage: nbd [flags] [NAME=]REMOTE...

Each REMOTE, the ADDRESS[:PORT] of a blockstore server (port 4000 if not given), is an export
with its NAME. The first one is also what a client gets that asks for no name.

`

// parse parses the command line and returns the server and its -listen.
func parse(args []string, stderr io.Writer) (*server, string, error) {
	fs := flag.NewFlagSet("nbd", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprint(stderr, usage)
		fs.PrintDefaults()
	}
	srv := &server{log: slog.New(slog.NewTextHandler(stderr, nil))}
	d := diskOptions{log: srv.log}
	var bind, listen string
	fs.StringVar(&listen, "listen", "127.0.0.1:10809", "where NBD clients connect: `address`:port, or unix:PATH; who can connect has the disks")
	fs.IntVar(&srv.connections, "connections", 16, "clients at a time")
	fs.StringVar(&d.daemon, "socket", "", "control socket of the daemon (default: $RDSD_SOCKET, else the usual places)")
	fs.StringVar(&bind, "bind", "", "local `address[:port]` (default: the address that routes to REMOTE)")
	fs.IntVar(&d.block, "block", store.DefaultBlock, "bytes of one operation at most, 4096 to 1048576")
	fs.IntVar(&d.small, "small", store.DefaultSmall, "bytes that travel in a message, without RDMA, at most, 0 to 65536; the blockstore may want less")
	fs.DurationVar(&d.wait.Answer, "patience", 30*time.Second, "time for an answer of the blockstore")
	fs.DurationVar(&d.wait.GiveUp, "give-up", time.Minute, "time for a request, over all attempts")
	usage := func(format string, args ...any) (*server, string, error) {
		return nil, "", &store.UsageError{Text: fmt.Sprintf(format, args...)}
	}
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return nil, "", err
	case err != nil:
		return usage("%v", err)
	case fs.NArg() == 0:
		return usage("0 arguments, want [NAME=]REMOTE...")
	case d.block < store.MinBlock || d.block > store.MaxBlock:
		return usage("-block %d: want %d to %d", d.block, store.MinBlock, store.MaxBlock)
	case d.small < 0 || d.small > store.MaxSmall:
		return usage("-small %d: want 0 to %d", d.small, store.MaxSmall)
	case srv.connections < 1 || d.wait.Answer <= 0 || d.wait.GiveUp <= 0:
		return usage("-connections, -patience and -give-up must be positive")
	}
	for _, arg := range fs.Args() {
		if err := srv.export(d, arg, bind); err != nil {
			return nil, "", err
		}
	}
	return srv, listen, nil
}

// export adds the disk that arg names.
func (s *server) export(o diskOptions, arg, bind string) (err error) {
	d := &disk{diskOptions: o}
	at := arg
	if name, rest, ok := strings.Cut(arg, "="); ok {
		d.name, at = name, rest
	}
	switch {
	case len(d.name) > 4096:
		return &store.UsageError{Text: fmt.Sprintf("a name of %d bytes, at most 4096", len(d.name))}
	case slices.Contains(s.names(), d.name):
		return &store.UsageError{Text: fmt.Sprintf("%s: there is an export %q already", arg, d.name)}
	}
	if d.server, err = store.ParseRemote(at, netip.Addr{}); err != nil {
		return err
	}
	if d.bind, err = store.LocalFor(bind, d.server); err != nil {
		return err
	}
	s.disks = append(s.disks, d)
	return nil
}

// listenAt listens at the address that -listen gives. It replaces a socket file on which no
// process listens, such as one that a killed process has left.
func listenAt(at string) (net.Listener, error) {
	path, ok := strings.CutPrefix(at, "unix:")
	if !ok {
		return net.Listen("tcp", at)
	}
	l, err := net.Listen("unix", path)
	if errors.Is(err, unix.EADDRINUSE) {
		c, dialErr := net.Dial("unix", path)
		if dialErr == nil {
			c.Close()
			return nil, err
		}
		if errors.Is(dialErr, unix.ECONNREFUSED) && os.Remove(path) == nil {
			return net.Listen("unix", path)
		}
	}
	return l, err
}
