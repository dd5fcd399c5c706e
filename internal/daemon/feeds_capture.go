package daemon

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/capture"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/version"
)

// maxCaptures is how many captures there are at a time.
const maxCaptures = 1

// capturing is a capture that is on. It ends by itself when its time is over, even if its
// rdsctl reads nothing.
type capturing struct {
	*capture.Capture
	reader *capture.Reader
	timer  *time.Timer
	stop   func() // once
}

// end ends c before its time, on the session's goroutine.
func (c *capturing) end() {
	c.timer.Stop() // it would keep the ring
	c.stop()
}

// BeginCapture begins a capture, instead of the one that the connection may have.
func (b backend) BeginCapture(spec ctl.CaptureSpec) (s ctl.CaptureState, err error) {
	if s.Unseen, err = b.unseen(spec.Peer); err != nil {
		return s, err
	}
	f := b.feeds
	if f.capture != nil {
		f.capture.end()
		f.capture = nil
		if err := b.d.loop.askFor(askTimeout, func() {}); err != nil { // its place is free afterwards
			return s, err
		}
	}
	if err := b.d.captures.take(f.user, "captures", maxCaptures, 0); err != nil {
		return s, err
	}
	c := &capturing{Capture: capture.New(capture.Spec{Peer: spec.Peer, Port: spec.Port, Snap: spec.Snap, Buffer: spec.Buffer, Max: spec.Max})}
	c.reader = capture.NewReader(c.Capture, "rdsd "+version.String())
	c.stop = sync.OnceFunc(func() {
		stopped := func() {
			b.d.hub.Stop(c.Capture)
			b.d.captures.leave(f.user)
		}
		if !b.d.engine.Do(stopped) {
			stopped() // nothing turns the engine any more
		}
	})
	ok := false
	err = b.d.loop.askFor(askTimeout, func() { ok = b.d.hub.Start(c.Capture) })
	if err == nil && !ok {
		err = fmt.Errorf("%w: another capture is about to end: try again", unix.EBUSY)
	}
	if err != nil {
		c.stop()
		return s, err
	}
	c.timer = time.AfterFunc(spec.Duration, c.stop)
	f.capture = c
	return s, nil
}

// unseen are the peers whose connections no capture can see. Its error is ErrUnsupported if
// peer is one of them.
func (b backend) unseen(peer netip.Addr) (out []netip.Addr, err error) {
	peers, err := b.inspect().Peers()
	if err != nil {
		return nil, err
	}
	for i := range peers {
		p := &peers[i].PeerInfo
		if p.Transport == "soft" || p.Transport == "tcp" || p.State != "up" {
			continue
		}
		if p.Remote == peer {
			return nil, fmt.Errorf("%w: an RDMA adapter carries the connection to %v, so its packets never come to the daemon; with a software adapter (rxe, siw) tcpdump sees them on the network interface",
				ctl.ErrUnsupported, peer)
		}
		out = append(out, p.Remote)
	}
	lists.Sort(out, netip.Addr.Compare)
	return slices.Compact(out), nil
}

// ReadCapture returns what is new.
func (b backend) ReadCapture() ([]byte, ctl.CaptureState, error) {
	c := b.feeds.capture
	if c == nil {
		return nil, ctl.CaptureState{}, fmt.Errorf("%w: this connection has no capture", ctl.ErrNotFound)
	}
	data, all := c.reader.Read(ctl.CaptureAnswer)
	if all {
		c.end() // a full file ends it before its time
	}
	s := ctl.CaptureState{Over: all}
	s.Frames, s.Dropped = c.reader.Frames()
	return data, s, nil
}

// EndCapture ends the connection's capture. What it has recorded can still be read.
func (b backend) EndCapture() {
	if c := b.feeds.capture; c != nil {
		c.end()
	}
}
