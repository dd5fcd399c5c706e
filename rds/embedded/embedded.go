// Package embedded runs rdsd inside a program: no daemon has to be installed.
//
//	d, err := embedded.Start(embedded.Options{Listen: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
//	defer d.Close()
//	c, err := rds.Open(ctx, rds.Options{Daemon: d})
//
// It is for first steps, for tests of one's own (package rdstest is a use of it), and for hosts on
// which one program uses rdsd. The daemon is the whole rdsd, with its engine on a thread of its own. This
// is different from a daemon of its own:
//
//   - It ends with the program, and every process that is attached to it gets rds.ErrDaemonGone then.
//   - It cannot be replaced while it runs: there is no planned restart (rdsctl daemon upgrade).
//   - It runs as the program's user, within the program's limits of memory, descriptors and CPUs, and
//     without the sandbox. A panic of the program ends it, and the program's garbage collection delays it.
//   - It puts a handler of SIGBUS in front of Go's when a process imports memory that can be cut short
//     (rds.Client.Import). The handler passes on all faults in other memory.
//   - It reads neither a configuration file nor the environment. Its log goes to Options.Log.
//
// The programs of other hosts cannot tell the difference.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/daemon"
)

// Options of Start. The zero value is a daemon for the sockets of 127.0.0.1.
type Options struct {
	// Listen are the addresses at which sockets can be bound and peers connect. Empty: 127.0.0.1.
	Listen []netip.Addr
	// Allow are the hosts that may be peers (the setting peers.allow). A daemon that listens only
	// on loopback addresses has every loopback address as a peer. Elsewhere an empty list means
	// that there are no peers.
	Allow []netip.Prefix
	// Socket is the path of the control socket, by which rdsctl and other processes reach the
	// daemon. If it is empty, the socket lies in a new directory that only this user can open and that
	// Close removes.
	Socket string
	// Set has further settings by their names in rdsd.toml, with values as flags have them: without
	// quotes, lists separated by commas. "rdsctl config docs" describes all of them. Example:
	// {"port": "18700", "tls.mode": "off"}.
	Set map[string]string
	// Log gets the daemon's log. nil: warnings and errors go to standard error.
	Log *slog.Logger
}

// Daemon is an rdsd in this process. Any goroutine may call its methods.
type Daemon struct {
	socket string
	stop   context.CancelFunc
	done   chan struct{}
	once   sync.Once
	err    error // of the daemon's end; done is closed
}

// Start starts a daemon. When it returns, rds.Open works. A program can have several daemons, each
// with addresses or a port of its own.
//
// Start raises GOMAXPROCS to 2 if it is 1, because the engine keeps a processor while it has work.
//
// Errors name the setting and the cure: of a value, of an address in use (EADDRINUSE), of a control
// socket at which another daemon serves, of files and memory.
func Start(o Options) (*Daemon, error) {
	d, err := start(o)
	if err != nil {
		return nil, fmt.Errorf("rds/embedded: %w", err)
	}
	return d, nil
}

func start(o Options) (*Daemon, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	dir, err := "", error(nil)
	if o.Socket == "" {
		// The directory's permissions keep other users out.
		if dir, err = os.MkdirTemp("", "rdsd"); err != nil {
			return nil, err
		}
		o.Socket = filepath.Join(dir, "sock")
	}
	cfg, err := settings(&o)
	if err != nil {
		return nil, errors.Join(err, removeAll(dir))
	}
	x, err := daemon.New(cfg, o.Log)
	if err != nil {
		return nil, errors.Join(err, removeAll(dir))
	}
	runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))
	ctx, cancel := context.WithCancel(context.Background())
	d := &Daemon{socket: o.Socket, stop: cancel, done: make(chan struct{})}
	go func() {
		d.err = errors.Join(x.Run(ctx), removeAll(dir))
		close(d.done)
	}()
	return d, nil
}

// settings are the daemon's settings by o.
func settings(o *Options) (config.Config, error) {
	c := config.Default()
	c.SocketMode = 0o600
	if len(o.Listen) == 0 {
		o.Listen = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	set := map[string]string{"socket": o.Socket, "listen": list(o.Listen)}
	if len(o.Allow) > 0 {
		set["peers.allow"] = list(o.Allow)
	}
	for name, value := range o.Set {
		if _, twice := set[name]; twice {
			return c, fmt.Errorf("setting %s is in Options.Set, and Options has a field for it", name)
		}
		if name == "sandbox" || strings.HasPrefix(name, "log.") {
			return c, fmt.Errorf("setting %s has no effect on a daemon in a program: leave it out", name)
		}
		set[name] = value
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(set)) {
		errs = append(errs, c.Set(name, set[name]))
	}
	if err := errors.Join(errs...); err != nil {
		return c, err
	}
	return c, c.Finish(os.Getuid(), func(string) string { return "" })
}

// list is a list in the form that a flag has.
func list[T fmt.Stringer](items []T) string {
	s := make([]string, len(items))
	for i, item := range items {
		s[i] = item.String()
	}
	return strings.Join(s, ",")
}

// removeAll removes dir; "": nothing.
func removeAll(dir string) error {
	if dir == "" {
		return nil
	}
	return os.RemoveAll(dir)
}

// Socket returns the path of the control socket, for RDSD_SOCKET of other programs and for
// rdsctl --socket.
func (d *Daemon) Socket() string { return d.socket }

// Done is closed when the daemon has ended: after Close, or by a fault of its own, which Close returns.
func (d *Daemon) Done() <-chan struct{} { return d.done }

// Close ends the daemon in order and waits for its end. Clients that are still open get
// rds.ErrDaemonGone, and peers lose their connections. The error is that of the daemon's end,
// for each call the same.
func (d *Daemon) Close() error {
	d.once.Do(d.stop)
	<-d.done
	return d.err
}
