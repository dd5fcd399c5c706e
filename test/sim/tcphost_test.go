package sim

import (
	"context"
	"net/netip"
	"slices"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/rdstcp"
	"golang.org/x/sys/unix"
)

// tcpHost is the TCP of a host's kernel, an rdstcp.System. It outlives daemons. What arrives at a
// connection is acknowledged, whether anybody has accepted the connection or not, and can be read
// when the connection has broken.
type tcpHost struct {
	h        *host
	accepted func(rdstcp.Socket) // of the daemon that listens; nil: none does
	backlog  []*tcpEnd           // connections that nobody has accepted
	fds      []*tcpEnd           // by descriptor; nil: it is free
	woken    bool
	lanes    int
}

// hostAddr is the address of host i.
func hostAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 1, byte(i + 1)}) }

// byTCP reports whether hosts at a and b reach each other by RDS/TCP: one of them is the one that
// is reached by nothing else.
func (w *world) byTCP(a, b netip.Addr) bool {
	only := hostAddr(w.opt.tcp - 1)
	return w.opt.tcp > 0 && a != b && (a == only || b == only)
}

// useTCP gives e, which is the host's daemon from now on, RDS/TCP.
func (h *host) useTCP(e *engine.Engine) {
	if h.w.opt.tcp == 0 {
		return
	}
	if h.tcp == nil {
		h.tcp = &tcpHost{h: h, lanes: pick(h.w.rTCP, 1, 1, 2, 8)}
	}
	n, err := rdstcp.New(rdstcp.Options{Rand: h.rand.Uint64, System: h.tcp})
	must(err)
	e.UseTCP(n, h.w.byTCP, h.tcp.lanes)
}

func (t *tcpHost) FD() int { return -1 }

func (t *tcpHost) Wake() {
	t.woken = true
	t.h.kick()
}

func (t *tcpHost) Wait(evs []unix.EpollEvent) (n int) {
	if t.woken {
		t.woken = false
		evs[0] = unix.EpollEvent{Fd: -1, Events: unix.EPOLLIN}
		n++
	}
	for fd, c := range t.fds {
		if c != nil && c.events != 0 && c.added && n < len(evs) {
			evs[n] = unix.EpollEvent{Fd: int32(fd), Events: c.events}
			c.events = 0
			n++
		}
	}
	return n
}

func (t *tcpHost) Listen(_ context.Context, _ netip.AddrPort, accepted func(rdstcp.Socket)) error {
	t.accepted = accepted
	return nil
}

// accepts has the daemon accept what waits, unless it pauses. t may be nil.
func (t *tcpHost) accepts() {
	if t == nil || !t.h.up || t.h.pausing.on || t.accepted == nil {
		return
	}
	for _, c := range t.take() {
		t.accepted(t.socket(c, true))
	}
}

func (t *tcpHost) take() []*tcpEnd {
	all := t.backlog
	t.backlog = nil
	return all
}

// socket gives c a descriptor.
func (t *tcpHost) socket(c *tcpEnd, chosen bool) rdstcp.Socket {
	if c.fd = slices.Index(t.fds, nil); c.fd < 0 {
		c.fd = len(t.fds)
		t.fds = append(t.fds, nil)
	}
	t.fds[c.fd] = c
	return rdstcp.Socket{FD: c.fd, Local: c.local, Remote: c.peer.local, Chosen: chosen}
}

// tcpDial is an attempt to connect.
type tcpDial struct {
	t     *tcpHost
	ctx   context.Context
	a     rdstcp.Attempt
	life  int
	until int64
	done  func(rdstcp.Socket, error)
}

const tcpDialNs = 5_000_000_000 // how long an attempt may take

func (t *tcpHost) Dial(ctx context.Context, a rdstcp.Attempt, done func(rdstcp.Socket, error)) {
	w := t.h.w
	d := &tcpDial{t, ctx, a, t.h.life, w.now() + tcpDialNs, done}
	delay := w.tcpDelay()
	if w.tcpFault(w.opt.faults.Lost) { // the first packet
		delay = 1_000_000_000
	}
	w.net.At(w.now()+delay, d.arrives)
}

// arrives is when a packet of the attempt would arrive.
func (d *tcpDial) arrives() {
	t, w := d.t, d.t.h.w
	from, to := d.a.Local, d.a.Remote.Addr()
	other := w.hostOf(to)
	switch {
	case !t.h.up || t.h.life != d.life: // its process has ended
	case d.ctx.Err() != nil:
		d.done(rdstcp.Socket{}, d.ctx.Err())
	case w.now() >= d.until:
		d.done(rdstcp.Socket{}, unix.ETIMEDOUT)
	case w.net.Swallows(from, to): // and another one is sent; GiveUp is to be noticed soon
		w.net.At(w.now()+10_000_000, d.arrives)
	case w.tcpFault(w.opt.faults.Unreachable):
		d.done(rdstcp.Socket{}, unix.EHOSTUNREACH)
	case !other.up || other.tcp.accepted == nil || w.tcpFault(w.opt.faults.Refuse):
		d.done(rdstcp.Socket{}, unix.ECONNREFUSED)
	default:
		port := uint16(32768 + w.rTCP.IntN(3000)*8 + d.a.Lane)
		if w.opt.tcpBlind {
			port = uint16(32768 + w.rTCP.IntN(24_000))
		}
		a := &tcpEnd{t: t, local: netip.AddrPortFrom(from, port)}
		b := &tcpEnd{t: other.tcp, local: d.a.Remote}
		a.peer, b.peer = b, a
		other.tcp.backlog = append(other.tcp.backlog, b)
		delay := w.tcpDelay()
		if w.rTCP.IntN(4) == 0 { // it is busy, and its kernel acknowledges what comes
			delay += below(w.rTCP, 2_000_000)
		}
		w.net.At(w.now()+delay, other.tcp.accepts)
		life := d.life
		w.net.At(w.now()+w.tcpDelay(), func() {
			if !t.h.up || t.h.life != life {
				a.close(false)
			} else {
				d.done(t.socket(a, !w.opt.tcpBlind), nil)
			}
		})
	}
}

func (t *tcpHost) Add(fd int) error {
	c := t.fds[fd]
	c.added = true
	c.event(c.events | unix.EPOLLIN | unix.EPOLLOUT)
	return nil
}

func (t *tcpHost) Send(fd int, pieces [][]byte) (n, want int, err error) {
	return t.fds[fd].send(pieces)
}

func (t *tcpHost) Recv(fd int, a, b []byte) (n int, again bool, err error) {
	return t.fds[fd].recv(a, b)
}

func (t *tcpHost) Unacked(fd int) (int, error) {
	c := t.fds[fd]
	n := c.unacked
	if c.finished && !c.endAcked {
		n++
	}
	return n, nil
}

func (t *tcpHost) Unread(fd int) (int, error) { return len(t.fds[fd].in), nil }

func (t *tcpHost) Finish(fd int) error { return t.fds[fd].finish() }

func (t *tcpHost) End(fd int, abort bool) {
	c := t.fds[fd]
	t.fds[fd] = nil
	c.close(abort)
}

func (t *tcpHost) Close() {}

// dies ends what the daemon had. One time in two nobody is told: the host has lost its power. t may
// be nil.
func (t *tcpHost) dies() {
	if t == nil {
		return
	}
	silent := t.h.w.rTCP.IntN(2) == 0
	all := append(t.take(), t.fds...)
	t.fds, t.accepted, t.woken = nil, nil, false
	for _, c := range all {
		switch {
		case c == nil:
		case silent:
			c.vanish()
		default:
			c.close(false)
		}
	}
}
