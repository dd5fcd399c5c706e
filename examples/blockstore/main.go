package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

const usage = `usage:
  blockstore serve [flags] FILE            serve a file or block device
  blockstore copy-out [flags] REMOTE FILE  copy the export of REMOTE into FILE
  blockstore copy-in [flags] FILE REMOTE   make FILE the content of the export of REMOTE

REMOTE is ADDRESS[:PORT]; the default port is 4000. "blockstore VERB -h" lists the flags.
`

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	exitSignal = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program. It returns the exit status. Statistics go to stdout if -json asks
// for them, everything else to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	verbs := map[string]func(context.Context, *command) error{
		"serve": runServe, "copy-out": runCopyOut, "copy-in": runCopyIn,
	}
	verb, known := verbs[args[0]]
	if !known {
		fmt.Fprintf(stderr, "blockstore: no verb %q\n%s", args[0], usage)
		return exitUsage
	}
	cmd := &command{name: args[0], args: args[1:], stdout: stdout, stderr: stderr}
	err := verb(ctx, cmd)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, flag.ErrHelp):
		return exitUsage
	}
	fmt.Fprintf(stderr, "blockstore %s: %v\n", args[0], err)
	var u *store.UsageError
	switch {
	case errors.As(err, &u):
		return exitUsage
	case ctx.Err() != nil:
		return exitSignal
	}
	return exitFailed
}

// command is one parsed command line.
type command struct {
	name           string
	args           []string
	stdout, stderr io.Writer

	socket, bind string
	json         bool
	block, small int
}

// parse reads the flags and exactly n further arguments, and returns these. more registers
// the verb's own flags; what names the arguments in messages.
func (c *command) parse(what string, n int, more func(*flag.FlagSet)) ([]string, error) {
	fs := flag.NewFlagSet("blockstore "+c.name, flag.ContinueOnError)
	fs.SetOutput(c.stderr)
	fs.Usage = func() {
		fmt.Fprintf(c.stderr, "usage: blockstore %s [flags] %s\n", c.name, what)
		fs.PrintDefaults()
	}
	fs.StringVar(&c.socket, "socket", "", "control socket of the daemon (default: $RDSD_SOCKET, else the usual places)")
	fs.StringVar(&c.bind, "bind", "", "local `address[:port]` (default: serve 127.0.0.1:4000, copies: the address that routes to REMOTE)")
	fs.BoolVar(&c.json, "json", false, "statistics as JSON on standard output")
	fs.IntVar(&c.block, "block", store.DefaultBlock, "block size in bytes, 4096 to 1048576; for serve the largest that clients may use")
	fs.IntVar(&c.small, "small", store.DefaultSmall, "largest block in bytes that travels in a message, without RDMA, 0 to 65536; the smaller of both ends' counts")
	more(fs)
	if err := fs.Parse(c.args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, &store.UsageError{Text: err.Error()}
	}
	if fs.NArg() != n {
		return nil, &store.UsageError{Text: fmt.Sprintf("%d arguments, want %s", fs.NArg(), what)}
	}
	if c.block < store.MinBlock || c.block > store.MaxBlock {
		return nil, &store.UsageError{Text: fmt.Sprintf("-block %d: want %d to %d", c.block, store.MinBlock, store.MaxBlock)}
	}
	if c.small < 0 || c.small > store.MaxSmall {
		return nil, &store.UsageError{Text: fmt.Sprintf("-small %d: want 0 to %d", c.small, store.MaxSmall)}
	}
	return fs.Args(), nil
}

func (c *command) report(v any, line string) {
	if c.json {
		_ = json.NewEncoder(c.stdout).Encode(v)
		return
	}
	fmt.Fprintln(c.stderr, line)
}
