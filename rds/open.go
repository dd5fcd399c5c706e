package rds

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/internal/attach"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// Options of Open. The zero value suits almost every program.
type Options struct {
	// Socket is the path of the daemon's control socket. If it is empty, Open takes
	// $RDSD_SOCKET; if that is empty too, it tries $XDG_RUNTIME_DIR/rdsd.sock and
	// then /run/rdsd/rdsd.sock. "%n" in a path stands for the inode number of the calling
	// thread's network namespace.
	Socket string
	// Daemon, if it is not nil, is the daemon to attach to, instead of Socket: one in this process, of
	// package rds/embedded or rdstest. Socket must be empty then.
	Daemon interface{ Socket() string }
	// Wait is how a waiting goroutine waits for the daemon: whether it looks into the shared
	// memory again and again before it blocks, and who may use the processor meanwhile. Of the
	// goroutines of a Client one looks for all. It does not look, whatever the way, while other
	// goroutines of the process want the processor.
	//
	//   - "auto", or empty, goes the way that makes waits shorter, yield or block. It tries the
	//     other one every 128 to 2,048 waits for 16 waits. It blocks if both are as short, after
	//     waits that were much longer than the window, and for 50 ms after another thread kept a
	//     processor that was yielded to it for more than 700 µs.
	//   - "block" blocks at once. It costs no processor time, and a wake-up for each wait.
	//   - "yield" looks for Spin and calls sched_yield(2) after each look. Other threads that
	//     can run get their part of that time. Beside threads that use up their time slices a
	//     yield can take milliseconds.
	//   - "spin" looks for Spin and keeps the processor. It is the fastest where there is a
	//     processor that nobody else needs, and the slowest elsewhere.
	Wait string
	// Spin is how long a waiting goroutine looks for work before it blocks, if Wait has
	// it look at all. 0 means what the daemon suggests (its option spin). A longer time keeps
	// replies that come soon fast and costs that much processor time per wait. A
	// negative time makes it block at once.
	Spin time.Duration
	// Params are the sizes of the memory that the Client shares with the daemon.
	// Open fails with ENOBUFS if the daemon does not grant them.
	Params Params
	// Reopen, if it is not nil, makes the Client outlive its daemon: when the daemon has
	// gone (ErrDaemonGone), the Client opens again at the next one under the same Socket.
	// All its handles go on working, and Reopen is called with what was lost, once for
	// each daemon that went away. See Reopened.
	//
	// Until there is a daemon, receives, sends and waits wait, as their deadlines and
	// contexts say. What does not wait fails with ErrWouldBlock. Calls to the daemon
	// (Bind, Alloc, Register and so on) wait for the next one; Close, Free and Release
	// do not. By the time Reopen is called all of them work, and other goroutines may
	// have used them. Reopen runs in a goroutine of its own and may call anything; the
	// next call comes after it has returned. It may run after Close.
	//
	// The Client ends as without Reopen after ErrSession, and if the next daemon does not
	// speak a common version (ErrVersion). Every Buffer holds a descriptor.
	Reopen func(*Reopened)
	// ReopenFor limits how long the Client tries, for each daemon that went away. Then
	// it ends with ErrDaemonGone. 0 means until Close.
	ReopenFor time.Duration
}

// Params are the sizes of the memory that a Client shares with its daemon. They are
// fixed at Open. A zero field stands for the default, which suits one busy process
// and is in parentheses. The first four are powers of two.
type Params struct {
	SubEntries   uint32 // entries of the submission ring (8192)
	EventEntries uint32 // entries of the event ring (4096)
	MaxMsgs      uint32 // messages sent and not acknowledged (16384)
	MaxRx        uint32 // messages received and not read (16384)
	Slots        uint32 // destinations with messages or operations in flight (8192)
	Cells        uint32 // pairs of an open socket and an address it has sent to (8192)
	SendWindows  uint32 // memory for payload to send, in units of 4 MiB; more is added when needed (2)
	RecvWindows  uint32 // memory for received payload, in units of 4 MiB (2)
}

// Open attaches to the daemon of this host. ctx limits how long attaching may take;
// it has no effect on the Client afterwards.
//
// Errors: EINVAL, Options contradict each other; ErrNoDaemon, with the paths tried; ErrVersion; EACCES, the mode of the
// control socket; EUSERS and ENOBUFS, the daemon's limits; ENOMEM and EMFILE, from
// mapping the memory.
//
// Until Close a Client has one goroutine, some descriptors, and mappings of about 20
// MiB of shared memory.
func Open(ctx context.Context, o Options) (*Client, error) {
	c, err := open(ctx, o)
	return c, opErr("open", netip.AddrPort{}, err)
}

func open(ctx context.Context, o Options) (*Client, error) {
	c, err := begin(ctx, o, attach.Chosen(ctx))
	if err != nil {
		return nil, err
	}
	go c.watch()
	return c, nil
}

// path is the path of the control socket; "": not said.
func (o *Options) path() (string, error) {
	if o.Daemon == nil {
		return o.Socket, nil
	}
	if o.Socket != "" {
		return "", fmt.Errorf("%w: Options has both a Socket and a Daemon", syscall.EINVAL)
	}
	return o.Daemon.Socket(), nil
}

// begin attaches to a daemon by way, or to that of o.
func begin(ctx context.Context, o Options, way attach.Way) (*Client, error) {
	ctl := way.Control
	if ctl == nil {
		path, err := o.path()
		if err != nil {
			return nil, err
		}
		dialed, err := ipc.ResolveDial(ctx, path)
		if err != nil {
			return nil, err
		}
		ctl = dialed
	}
	c := &Client{ctl: ctl, opts: o, way: way, done: make(chan struct{}), watched: make(chan struct{})}
	c.mem.local, _ = ctl.(attach.Memory)
	c.mem.maps = map[*byte]*shm.Mapping{}
	c.regions.live = map[uint32]*Region{}
	c.buffers.keeps = o.Reopen != nil
	stop := context.AfterFunc(ctx, func() { _ = ctl.Close() })
	err := c.attach(&o, way.Wake)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		_ = ctl.Close()
		if c.bell != nil && c.bell != way.Wake { // ctx ended behind the last step
			_ = c.bell.Close()
		}
		c.mem.closeAll()
		return nil, err
	}
	return c, nil
}

// discard ends a client that nobody has used.
func (c *Client) discard() {
	_ = c.ctl.Close()
	_ = c.bell.Close()
	c.mem.closeAll()
}

// attach says hello and sets the shared memory up. wake is attach.Way's.
func (c *Client) attach(o *Options, wake shm.Waiter) error {
	way, err := o.strategy()
	if err != nil {
		return err
	}
	want := o.Params.fill()
	resp, fds, err := c.ctl.Call(&ipc.Hello{Version: ipc.Version, Features: ipc.Features, Role: ipc.RoleClient, Name: processName(), Params: want}, nil)
	if err != nil {
		if errors.Is(err, syscall.EPROTONOSUPPORT) {
			err = fmt.Errorf("%w: %w", ErrVersion, err)
		}
		return err
	}
	defer func() { c.mem.closeFDs(fds) }()
	ok, is := resp.(*ipc.HelloOK)
	if !is {
		return fmt.Errorf("%w: answer %T to Hello", ErrVersion, resp)
	}
	p := ok.Params
	if err := p.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrVersion, err)
	}
	if p.SubEntries < minSub {
		return fmt.Errorf("%w: submission ring of %d entries granted, %d needed", ErrVersion, p.SubEntries, minSub)
	}
	if want := 4 + int(p.SendWindows+p.RecvWindows); len(fds) != want {
		return fmt.Errorf("%w: hello with %d descriptors, want %d", ErrVersion, len(fds), want)
	}
	if err := c.mapAll(p, fds); err != nil {
		return err
	}
	c.tx.asks = ok.Features&ipc.FeatureRefuses != 0
	c.tx.tells = ok.Features&ipc.FeatureNotify != 0
	c.tx.anybody = ok.Features&ipc.FeatureAnybody != 0
	c.tellsAddrs = ok.Features&ipc.FeatureAddrs != 0
	c.imports = ok.Features&ipc.FeatureImport != 0
	c.waits = newPatience(way, o.window(time.Duration(min(ok.SpinNs, uint64(time.Second)))))
	return c.setBells(wake, fds)
}

// mapAll maps the segment, the table and the windows, in the order in which their
// descriptors come.
func (c *Client) mapAll(p shm.Params, fds []int) error {
	mem, err := c.mem.open(fds[0], shm.SegmentSize(p), true)
	if err != nil {
		return err
	}
	if c.seg, err = shm.OpenSegment(mem); err != nil {
		return err
	}
	if c.seg.Params() != p {
		return fmt.Errorf("%w: segment and hello differ", ErrVersion)
	}
	if mem, err = c.mem.open(fds[1], shm.TableSize(p.Slots, p.Cells), false); err != nil {
		return err
	}
	c.table = shm.NewTable(mem, p.Slots, p.Cells)
	send, recv := shm.NewArena(), shm.NewArena()
	for i, fd := range fds[4:] {
		a := send
		if i >= int(p.SendWindows) {
			a = recv
		}
		if mem, err = c.mem.open(fd, shm.WindowSize, a == send); err != nil {
			return err
		}
		a.AddWindow(mem)
	}
	c.tx.init(c, p, send)
	c.rx.init(c, p, recv)
	return nil
}

// setBells takes over the doorbells: fds[2] is the daemon's, fds[3] ours.
func (c *Client) setBells(wake shm.Waiter, fds []int) error {
	c.bell = wake
	if c.mem.local != nil {
		if c.bell == nil {
			return invalid("a daemon in this process, and nowhere to sleep")
		}
		c.ring = c.mem.local.RingDaemon
	} else {
		daemon := fds[2]
		fds[2] = -1
		c.ring = func() { shm.Ring(daemon) }
		c.mem.bell = daemon
	}
	if c.bell == nil {
		w, err := shm.NewFDWaiter(fds[3], nil)
		if err != nil {
			return err
		}
		fds[3] = -1
		c.bell = w
	}
	c.wait.ring = c.bell.Ring
	return nil
}

const (
	// maxMsgEntries is the most submission entries of one message: with two
	// operations.
	maxMsgEntries = 3
	// openEntries: close a destination, open one, and the message to it.
	openEntries = 2 + maxMsgEntries
	// minSub is the smallest submission ring: openEntries at once.
	minSub = 8
)

// fill returns q with the defaults for its zero fields.
func (q Params) fill() shm.Params {
	p, d := shm.Params(q), shm.DefaultParams()
	for _, f := range []struct{ v, def *uint32 }{
		{&p.SubEntries, &d.SubEntries}, {&p.EventEntries, &d.EventEntries}, {&p.MaxMsgs, &d.MaxMsgs}, {&p.MaxRx, &d.MaxRx},
		{&p.Slots, &d.Slots}, {&p.Cells, &d.Cells}, {&p.SendWindows, &d.SendWindows}, {&p.RecvWindows, &d.RecvWindows},
	} {
		if *f.v == 0 {
			*f.v = *f.def
		}
	}
	p.SubEntries = max(p.SubEntries, minSub)
	return p
}

// moreSendMemory asks the daemon for one more send window. It is called in an attempt.
func (c *Client) moreSendMemory() ([]byte, error) {
	_, fds, err := c.call(&ipc.GrowSend{})
	if err != nil {
		return nil, err
	}
	defer c.mem.closeFDs(fds)
	if len(fds) != 1 {
		return nil, c.broken("answer with %d descriptors to GrowSend", len(fds))
	}
	return c.mem.open(fds[0], shm.WindowSize, true)
}

// goneError returns what the end of the control connection means for the client:
// ErrDaemonGone, or ErrSession with the reason.
func goneError(reason error) error {
	var end *ipc.SessionError
	said := errors.As(reason, &end)
	switch gone := reason == nil || errors.Is(reason, ipc.ErrGone); {
	case gone && said:
		return fmt.Errorf("%w: %s", ErrDaemonGone, end.Text)
	case gone:
		return ErrDaemonGone
	case said:
		return fmt.Errorf("%w: %s", ErrSession, end.Text)
	}
	return fmt.Errorf("%w: %v", ErrSession, reason)
}

// processName returns the name under which the daemon shows this process.
func processName() string {
	name := filepath.Base(os.Args[0])
	return name[:min(len(name), ipc.MaxName)]
}
