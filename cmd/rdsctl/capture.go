package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"github.com/rdsd/rdsd/internal/ctl"
)

func captureEntry() verb {
	return verb{name: "capture", summary: "record the daemon's connections as a packet capture (pcapng) that Wireshark and tshark dissect", group: groupFollow,
		prepare: captureVerb,
		about: "It shows what goes over the connections inside TLS, as MPA, DDP and RDMAP, or as RDS/TCP. Ethernet, IP and TCP headers are made up. A connection that is up already begins with " +
			"the MPA frames of its start. What an RDMA adapter sends does not come to the daemon, and what sockets of one host send to each other goes by no connection: neither is recorded. " +
			"Only root and the daemon's own user may record, because they see what all users send. There is one capture at a time. If the daemon's buffer is full, frames are left out: the end of " +
			"the file says how many (capinfos, or Statistics, Capture File Properties in Wireshark), and so does rdsctl. -snap makes that less likely.",
		tries: []string{"capture -w trace.pcapng", "capture -w - -snap 128 -d 1m | tshark -r - -o tcp.try_heuristic_first:TRUE", "capture -w x.pcapng -peer 10.0.0.2 -port 4000"}}
}

func captureVerb(fs *flag.FlagSet) action {
	file := fs.String("w", "", "`file` to write, - for standard output")
	peer := fs.String("peer", "", "only connections with this `address`")
	port := fs.Uint("port", 0, "only SENDs with a message from or to this RDS `port`; RDMA has no port, and is left out")
	snap := fs.Int("snap", 0, fmt.Sprintf("keep only this `number` of bytes of each frame, at least %d; 0 = all", ctl.MinSnap))
	d := fs.Duration("d", ctl.DefaultCaptureTime, fmt.Sprintf("end after this `time`, at most %v", ctl.MaxCaptureTime))
	buffer := fs.Int("buffer", ctl.DefaultCaptureBuffer, fmt.Sprintf("`bytes` of the daemon's buffer, at most %d", ctl.MaxCaptureBuffer))
	most := fs.Int64("max", ctl.DefaultCaptureMax, fmt.Sprintf("end before the file exceeds this `number` of bytes, at least %d", ctl.MinCaptureMax))
	return func(ctx context.Context, a *app, o *options, _ string) int {
		spec := &ctl.CaptureSpec{Port: uint16(*port), Snap: *snap, Buffer: *buffer, Duration: *d}
		if *most != ctl.DefaultCaptureMax { // older daemons do not know the field
			spec.Max = *most
		}
		var usage string
		switch {
		case *file == "":
			usage = "-w FILE is missing; -w - is standard output"
		case *port > 65535:
			usage = fmt.Sprintf("-port %d is no port", *port)
		case *d <= 0 || *most <= 0:
			usage = "-d and -max are more than 0"
		case *file == "-" && a.terminal().is():
			usage = "-w - writes binary data, and standard output is a terminal: -w FILE, or a pipe"
		}
		if usage != "" {
			return a.wrong("capture", "%s", usage)
		}
		if *peer != "" {
			addr, code := a.address(ctx, o, "capture", *peer)
			if code != exitOK {
				return code
			}
			spec.Peer = addr
		}
		c := &capturer{app: a, o: o}
		return c.run(ctx, spec, *file)
	}
}

// capturer copies a capture from the daemon into a file.
type capturer struct {
	*app
	o       *options
	written int64
	state   ctl.CaptureState
}

func (c *capturer) run(ctx context.Context, spec *ctl.CaptureSpec, file string) int {
	conn, err := c.connect(ctx, c.o)
	if err != nil {
		return c.fail(c.o, ctl.KindCapture, err)
	}
	defer conn.Close()
	_, resp, err := call(ctx, conn, c.o, ctl.Request{Kind: ctl.KindCapture, Do: ctl.DoBegin, Capture: spec})
	if err != nil {
		return c.fail(c.o, ctl.KindCapture, err)
	}
	c.tellUnseen(resp.CaptureState.Unseen)
	to := c.stdout
	if file != "-" { // not before the daemon has agreed: a file that is there is kept otherwise
		f, err := openCapture(file, os.Geteuid())
		if err != nil {
			return c.fail(c.o, ctl.KindCapture, err)
		}
		defer f.Close()
		to = f
	}
	if err := c.copy(ctx, conn, to); err != nil {
		return c.fail(c.o, ctl.KindCapture, err)
	}
	fmt.Fprintf(c.stderr, "%d frames, %d dropped, %d bytes\n", c.state.Frames, c.state.Dropped, c.written)
	return exitOK
}

// openCapture opens a file for uid, or what else has that name. A file that was there before is
// then for nobody else, either. The file of another user is refused and stays as it is,
// because its owner could read the capture.
func openCapture(name string, uid int) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if i, err := f.Stat(); err == nil && i.Mode().IsRegular() {
		if owner := i.Sys().(*syscall.Stat_t).Uid; owner != uint32(uid) {
			err = fmt.Errorf("%s: %w: uid %d owns it and could read the capture; write another file, or remove this one first", name, os.ErrPermission, owner)
		}
		if err == nil {
			err = f.Chmod(0o600)
		}
		if err == nil {
			err = f.Truncate(0)
		}
		if err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, nil
}

// copy writes the file until the capture is over. When ctx ends it ends the capture, and
// writes the rest.
func (c *capturer) copy(ctx context.Context, conn caller, to io.Writer) error {
	ended := false
	for rest := context.WithoutCancel(ctx); ; {
		if !ended && ctx.Err() != nil {
			ended = true
			if _, _, err := call(rest, conn, c.o, ctl.Request{Kind: ctl.KindCapture, Do: ctl.DoEnd}); err != nil {
				return err
			}
		}
		_, resp, err := call(rest, conn, c.o, ctl.Request{Kind: ctl.KindCapture, Do: ctl.DoRead})
		if err != nil {
			return err
		}
		c.state = *resp.CaptureState
		n, err := to.Write(resp.Capture)
		c.written += int64(n)
		if err != nil || c.state.Over {
			return err
		}
		if len(resp.Capture) < ctl.CaptureAnswer/2 && !ended {
			pause(ctx, feedEvery)
		}
	}
}

func (c *capturer) tellUnseen(peers []netip.Addr) {
	if len(peers) == 0 {
		return
	}
	var names []string
	for _, p := range peers[:min(len(peers), 4)] {
		names = append(names, p.String())
	}
	fmt.Fprintf(c.stderr, "rdsctl: capture: not recorded, because an RDMA adapter carries them: the connections to %d peers, such as %s\n", len(peers), strings.Join(names, ", "))
}
