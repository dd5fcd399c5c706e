// Package rdsping does what rds-ping of rds-tools does, over package rds: it sends empty
// messages to port 0 of a host and waits for the answers of the host's RDS.
//
// An answer (pong) has no payload, so only the socket it arrives at tells which ping it
// belongs to. Run uses several sockets in turn. A socket whose pong did not arrive in time
// is replaced, so that a late pong is not taken for the next.
package rdsping

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rdsd/rdsd/rds"
)

// sockets is how many sockets are used in turn. rds-ping has as many.
const sockets = 8

// Params describe a series of pings.
type Params struct {
	To       netip.Addr
	From     netip.Addr // of this host's daemon
	Lane     uint8
	Count    int // 0 for no end
	Interval time.Duration
	Timeout  time.Duration // after which a pong is lost
}

// ParseInterval reads rds-ping's interval: a number of seconds, or a number with the unit
// ms, msec, us or usec.
func ParseInterval(s string) (time.Duration, error) {
	digits, unit := s, time.Second
	for _, u := range []struct {
		suffix string
		unit   time.Duration
	}{{"msec", time.Millisecond}, {"ms", time.Millisecond}, {"usec", time.Microsecond}, {"us", time.Microsecond}} {
		if d, ok := strings.CutSuffix(s, u.suffix); ok {
			digits, unit = d, u.unit
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not an interval: want a number, with ms, msec, us or usec behind it if it is not of seconds", s)
	}
	return time.Duration(n) * unit, nil
}

// event is what became of a ping.
type event struct {
	slot int
	seq  int
	rtt  time.Duration
	from netip.AddrPort
	err  error // why there is no pong: an rds.Reason or context.DeadlineExceeded, else what is wrong with the slot's socket
}

// pinger counts the results. Each ping in progress has a goroutine that reports to it.
type pinger struct {
	c      *rds.Client
	p      Params
	out    io.Writer
	socks  [sockets]*rds.Socket
	busy   [sockets]bool
	events chan event
	under  sync.WaitGroup

	sent, received int
}

// Run pings until Count pings were answered or timed out, or until ctx ends, which is no
// error. It returns how many pings were sent and how many were answered.
func Run(ctx context.Context, c *rds.Client, p Params, out io.Writer) (sent, received int, err error) {
	g := &pinger{c: c, p: p, out: out, events: make(chan event, sockets)}
	for i := range g.socks {
		if err := g.bind(i); err != nil {
			g.close()
			return 0, 0, err
		}
	}
	err = g.run(ctx)
	g.close()
	return g.sent, g.received, err
}

func (g *pinger) bind(i int) error {
	s, err := g.c.Bind(netip.AddrPortFrom(g.p.From, 0))
	if err != nil {
		return err
	}
	if g.p.Lane != 0 {
		if err := s.SetLane(g.p.Lane); err != nil {
			_ = s.Close()
			return err
		}
	}
	g.socks[i] = s
	return nil
}

func (g *pinger) close() {
	for _, s := range g.socks {
		if s != nil {
			_ = s.Close()
		}
	}
	g.under.Wait()
}

func (g *pinger) run(ctx context.Context) error {
	tick := time.NewTimer(0)
	defer tick.Stop()
	seq, done := 0, 0
	for g.p.Count == 0 || done < g.p.Count {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			tick.Reset(g.p.Interval)
			slot := seq % sockets
			if g.busy[slot] || g.p.Count > 0 && seq >= g.p.Count {
				continue // each socket still waits for a pong
			}
			seq++
			if err := g.send(slot, seq); err != nil {
				return err
			}
		case e := <-g.events:
			done++
			g.busy[e.slot] = false
			if err := g.ended(&e); err != nil {
				return err
			}
		}
	}
	return nil
}

// send sends ping seq from the slot's socket and starts to wait for the pong.
func (g *pinger) send(slot, seq int) error {
	s := g.socks[slot]
	var old [1]rds.Notice
	for s.Notices(old[:]) > 0 { // of the ping before
	}
	start := time.Now()
	_, err := s.Send(rds.DontWait, &rds.Message{Addr: netip.AddrPortFrom(g.p.To, 0), GiveUpAfter: g.p.Timeout})
	if err != nil {
		return err
	}
	g.sent++
	g.busy[slot] = true
	g.under.Go(func() {
		ctx, cancel := context.WithDeadline(context.Background(), start.Add(g.p.Timeout))
		defer cancel()
		from, err := pong(ctx, s)
		g.events <- event{slot, seq, time.Since(start), from, err}
	})
	return nil
}

// pong waits for the pong that comes to s. It fails with the Reason as soon as the daemon
// cannot reach the host.
func pong(ctx context.Context, s *rds.Socket) (from netip.AddrPort, err error) {
	for {
		m := rds.Received{}
		if err := s.Recv(rds.DontWait, &m); !errors.Is(err, rds.ErrWouldBlock) {
			return m.Addr, err
		}
		var n [1]rds.Notice
		for s.Notices(n[:]) > 0 {
			if n[0].Kind == rds.Unreachable {
				return from, n[0].Reason
			}
		}
		if _, err := s.Wait(ctx, rds.WaitSet{Message: true, Notice: true}); err != nil {
			return from, err
		}
	}
}

// ended prints what became of a ping.
func (g *pinger) ended(e *event) error {
	if e.err != nil {
		what := fmt.Sprintf("no answer within %v", g.p.Timeout)
		if why, ok := errors.AsType[rds.Reason](e.err); ok {
			what = why.Error()
		} else if !errors.Is(e.err, context.DeadlineExceeded) {
			return e.err
		}
		fmt.Fprintf(g.out, "%4d: ERROR: %s\n", e.seq, what)
		_ = g.socks[e.slot].Close()
		return g.bind(e.slot)
	}
	g.received++
	fmt.Fprintf(g.out, "%4d: %d usec", e.seq, e.rtt.Microseconds())
	if e.from.Addr() != g.p.To {
		fmt.Fprintf(g.out, " (%v)", e.from.Addr())
	}
	fmt.Fprintln(g.out)
	return nil
}
