package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/internal/version"
	"github.com/rdsd/rdsd/verbs"
)

// backend answers rdsctl (ctl.Backend). Its methods run on control goroutines
// and ask the engine.
type backend struct{ d *Daemon }

// ask runs f on the engine's goroutine and waits for it. After an error f has
// not run and never will.
func (d *Daemon) ask(ctx context.Context, f func()) error {
	done := make(chan struct{})
	var taken atomic.Bool // by the engine, which runs f, or by the caller, who does not want it any more
	run := func() {
		if taken.CompareAndSwap(false, true) {
			f()
			close(done)
		}
	}
	if !d.e.Do(run) {
		return errShutdown
	}
	var err error
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		err = fmt.Errorf("the engine does not answer: %w", ctx.Err())
	case <-d.loopDone:
		err = errShutdown
	}
	if taken.CompareAndSwap(false, true) {
		return err
	}
	<-done
	return nil
}

const askTimeout = 5 * time.Second

func (b backend) ask(f func()) error { return b.askFor(askTimeout, f) }

func (b backend) askFor(timeout time.Duration, f func()) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return b.d.ask(ctx, f)
}

// Status describes the daemon.
func (b backend) Status() (ctl.Status, error) {
	d := b.d
	s := ctl.Status{
		Version: version.String(),
		Socket:  d.config().Socket, Stats: d.config().Stats, CRC: string(d.config().CRC),
		Transports: d.transports(),
		Warnings:   d.warnings,
		Sandbox:    d.given,
	}
	if d.config().Metrics.Listen.IsValid() {
		s.Metrics = d.config().Metrics.Listen.String()
	}
	s.Congestion = d.congestion()
	s.TLS = d.tlsStatus()
	s.Warnings = append(slices.Clone(s.Warnings), d.tlsWarnings(time.Now())...)
	if t := d.drained.Load(); t != nil && *t != "" {
		s.Warnings = append(s.Warnings, *t)
	}
	for _, a := range d.config().Listen {
		s.Listen = append(s.Listen, netip.AddrPortFrom(a, d.config().Port))
	}
	snap := d.reader.Snapshot()
	s.Fill(&snap, time.Now())
	s.Memory.Limit, s.Memory.HeldLimit = d.config().Limits.MaxRegisteredBytes, d.config().Limits.MaxHeldBytes
	users, err := b.Users()
	if err != nil { // a stuck engine must not hide that it is stuck
		s.Warnings = append(slices.Clone(s.Warnings), "usage per user: "+err.Error())
	}
	s.Users = users
	return s, nil
}

// Sockets lists the bound sockets by address and port.
func (b backend) Sockets() (out []ctl.SocketInfo, err error) {
	const pages = 8 // of 256 ports: what one turn of the engine has time for
	for _, l := range b.d.e.localsV {
		for i := 0; i < len(l.ports.dir) && err == nil; i += pages {
			err = b.ask(func() {
				for _, page := range l.ports.dir[i : i+pages] {
					if page != nil {
						out = appendSockets(out, page.socks[:])
					}
				}
			})
		}
	}
	return out, err
}

func appendSockets(out []ctl.SocketInfo, page []*socket) []ctl.SocketInfo {
	for _, s := range page {
		if s != nil && s.ping == nil {
			out = append(out, socketInfo(s))
		}
	}
	return out
}

func socketInfo(s *socket) ctl.SocketInfo {
	return ctl.SocketInfo{Addr: s.local.addr, Port: s.port, Incarnation: s.inc,
		Owner:        ctl.Owner{PID: s.cl.pid, UID: s.cl.user.UID, Name: s.cl.name},
		SendMessages: uint64(s.txs.n), SendBytes: uint64(s.sndBytes), RecvBytes: uint64(s.rcvBytes),
		RecvLimit: uint64(s.limit), Congested: s.congested, Ops: uint64(s.ops)}
}

// peersEach is how many peers one turn of the engine describes.
const peersEach = 32

// Peers lists the connections.
func (b backend) Peers() ([]ctl.PeerInfo, error) { return b.d.peersBy(b.ask) }

// peersBy is Peers, in as many turns of the engine as ask is called.
func (d *Daemon) peersBy(ask func(func()) error) (out []ctl.PeerInfo, err error) {
	err = d.eachPeer(ask, func(p *peer) {
		i := d.e.peerInfo(p)
		i.Why = d.whyBy(p)
		d.e.limited(p, &i)
		out = append(out, i)
	})
	return out, err
}

// eachPeer calls f for all peers, in as many turns of the engine as it calls ask. A
// peer that is forgotten between two of them is left out.
func (d *Daemon) eachPeer(ask func(func()) error, f func(*peer)) (err error) {
	e := d.e
	var keys []verbs.PeerKey
	err = ask(func() {
		for _, p := range e.peersV {
			keys = append(keys, p.key)
		}
	})
	for part := range slices.Chunk(keys, peersEach) {
		if err != nil {
			break
		}
		err = ask(func() {
			for _, k := range part {
				if p := e.byKey[k]; p != nil {
					f(p)
				}
			}
		})
	}
	return err
}

func (e *Engine) peerInfo(p *peer) ctl.PeerInfo {
	i := p.c.Info()
	pi := ctl.PeerInfo{Local: i.Local, Remote: i.Remote, Lane: i.Lane, State: strings.ToLower(i.State.String()),
		Instance: ctl.ID(i.Instance), Kernel: i.Kernel, Transport: "tcp", CRC: p.crc == verbs.CRCOn,
		NextTxSeq: i.NextTx, AckedSeq: i.LastAck, RxSeq: i.LastRx,
		QueuedMessages: uint64(i.Queued + p.waiting()), QueuedBytes: uint64(i.QueuedBytes),
		UnackedMessages: uint64(i.Unacked), UnackedBytes: uint64(i.UnackedBytes),
		SendCredits: int(i.Credits), RecvCredits: p.credits,
		Resets: i.Stats.ConnReset, Retransmitted: i.Stats.Retransmitted, DroppedOps: i.Stats.OpsDropped,
		UnknownOps: i.Stats.OpsUnknown, Lost: i.Stats.Lost}
	if i.Since != 0 {
		pi.Since = time.Unix(0, e.wall-(e.now-i.Since))
	}
	if i.Kernel {
		pi.Instance = 0 // it has none
	}
	if p.tcp != nil {
		pi.CRC, pi.TCPLanes, pi.TCPConns = false, p.tcp.Up(), tcpConns(p.tcp)
	} else {
		pi.Transport = p.rail.attr.Name
	}
	if q, ok := p.qp.(interface{ TLS() string }); ok {
		pi.TLS = q.TLS()
	}
	if i.LastError != nil {
		pi.LastError = i.LastError.Error()
	}
	return pi
}

// PeerReset breaks off the connections to addr, in all lanes or one; they come
// back by themselves.
func (b backend) PeerReset(addr netip.Addr, lane *uint8) (n int, err error) {
	addr = addr.Unmap()
	known := false
	err = b.ask(func() {
		e := b.d.e
		for _, p := range e.peersV {
			if p.addr == addr && (lane == nil || p.lane == *lane) {
				known = true
				if p.c.State() != conn.Down {
					n++
				}
				p.c.Reset(e.now, errAdmin)
				e.touch(p)
			}
		}
	})
	if err == nil && !known {
		in := ""
		if lane != nil {
			in = fmt.Sprintf(" in lane %d", *lane)
		}
		err = fmt.Errorf("%w: no connection to %v%s was ever made", ctl.ErrNotFound, addr, in)
	}
	return n, err
}

// Ping sends an empty message to port 0 of addr and waits for the pong.
func (b backend) Ping(ctx context.Context, addr netip.Addr) (time.Duration, error) {
	d, e := b.d, b.d.e
	addr = addr.Unmap()
	var err error
	pong := make(chan struct{}, 1)
	failed := make(chan error, 1)
	var s *socket
	start := time.Now()
	// Posted behind the ping, so that it ends it even if the wait for the
	// engine is given up.
	defer d.e.Do(func() {
		if s != nil {
			e.endPing(s, addr)
		}
	})
	if askErr := d.ask(ctx, func() { s, err = e.ping(addr, pongTo(pong), func(err error) { failed <- err }) }); askErr != nil {
		return 0, askErr
	}
	if err != nil {
		return 0, err
	}
	select {
	case <-pong:
		return time.Since(start), nil
	case err := <-failed:
		return 0, fmt.Errorf("%v is not reached: %w", addr, err)
	case <-ctx.Done():
		state := "unknown"
		_ = b.ask(func() {
			for _, p := range e.peersV {
				if p.addr == addr {
					state = strings.ToLower(p.c.State().String())
					if le := p.c.Info().LastError; le != nil {
						state += ", last error: " + le.Error()
					}
				}
			}
		})
		return 0, fmt.Errorf("connection is %s: %w", state, ctx.Err())
	case <-d.loopDone:
		return 0, errShutdown
	}
}

// pongTo notes an answer without ever blocking the engine: whoever knows the
// port may send any number.
func pongTo(pong chan<- struct{}) func(now int64) {
	return func(int64) {
		select {
		case pong <- struct{}{}:
		default:
		}
	}
}

// ping sends a ping from a port of the daemon's own and calls pong when it is
// answered, or failed, once at most, when an attempt to connect has failed.
func (e *Engine) ping(addr netip.Addr, pong func(now int64), failed func(error)) (*socket, error) {
	if !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast() {
		return nil, fmt.Errorf("%w: %v is not a host's address", ctl.ErrNotFound, addr)
	}
	var l *local
	for _, x := range e.localsV {
		if l = x; x.addr.Is4() == addr.Is4() {
			break
		}
	}
	if l == nil || l.addr.Is4() != addr.Is4() {
		return nil, fmt.Errorf("%w: the daemon has no address of the family of %v", ctl.ErrNotFound, addr)
	}
	var p *peer
	if e.locals[addr] == nil && !e.cfg.Allowed(addr) {
		return nil, fmt.Errorf("ping %v: %w of this host (add it, and run rdsctl config reload)", addr, errNotAllowed)
	}
	if e.locals[addr] == nil {
		var err error
		if p, err = e.peer(l, addr, 0, nil); err != nil {
			return nil, err
		}
	}
	port := l.freePort(e.cfg.Rand, anyPort)
	if port == 0 {
		return nil, fmt.Errorf("no free port on %v", l.addr)
	}
	s := &socket{local: l, port: port, inc: 1, ping: pong}
	l.ports.set(port, s)
	if p == nil {
		pong(e.now)
		return s, nil
	}
	if !p.c.Ready() {
		p.reach.pings = append(p.reach.pings, failed)
	}
	m := e.ctl(p, 0, 0)
	m.m.SPort, m.m.SrcInc = port, s.inc
	e.st.C[stats.SendPong]++
	e.sendCtl(p, m, nil)
	return s, nil
}

// endPing withdraws a ping that was not answered and frees its port.
func (e *Engine) endPing(s *socket, addr netip.Addr) {
	s.local.ports.set(s.port, nil)
	if p := e.remotes[remoteKey{s.local.addr, addr}].lane(0); p != nil {
		p.c.CancelMatching(func(m *connMsg) bool { _, ok := m.Owner.(*ctlMsg); return ok && m.Internal == 0 && m.SPort == s.port }, cancelled)
		e.touch(p)
		e.dropIfNew(p)
	}
}
