package engine

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/lists"
)

// errDrained is why no socket is bound while the daemon is drained.
var errDrained = fmt.Errorf("%w: the daemon is being drained by its administrator (rdsctl daemon resume ends that)", unix.ESHUTDOWN)

// A drain makes senders wait in the way of congestion: their destinations are congested
// until the drain ends. Messages that the daemon already has go on. A drain of the daemon
// applies to all destinations, and no socket can be bound during it. A drain of a peer's
// address applies to the destinations that lead there, over all lanes.

// drains are the drains in progress.
type drains struct {
	e *Engine

	all bool                // of the daemon
	of  map[netip.Addr]bool // of single addresses
}

// toldToWait reports whether sl's senders have to wait for the administrator.
func (d *drains) toldToWait(sl *slot) bool {
	return d.all || len(d.of) > 0 && d.of[sl.addr]
}

// setDrain begins or ends the drain of addr, the zero Addr: of the daemon.
// What this means for destinations is told them by eachSlot afterwards.
func (d *drains) setDrain(addr netip.Addr, on bool) {
	switch {
	case !addr.IsValid():
		d.all = on
	case on:
		if d.of == nil {
			d.of = map[netip.Addr]bool{}
		}
		d.of[addr] = true
	default:
		delete(d.of, addr)
	}
}

// knows reports whether addr is a peer's, or this host's own.
func (d *drains) knows(addr netip.Addr) bool {
	e := d.e
	if d.of[addr] || e.addrs.by[addr] != nil {
		return true
	}
	for _, p := range e.peers.all {
		if p.addr == addr {
			return true
		}
	}
	return false
}

// Drains is what is drained: the daemon, single addresses. The engine's goroutine only.
func (e *Engine) Drains() (all bool, addrs []netip.Addr) {
	return e.drains.all, lists.SortedFunc(maps.Keys(e.drains.of), netip.Addr.Compare)
}

// maxDrains bounds the drained addresses.
const maxDrains = 1024

// Drain begins or ends a drain, or only looks how far it is.
func (b Inspector) Drain(addr netip.Addr, do string) (d ctl.Drain, err error) {
	addr = addr.Unmap()
	e := b.e
	var refused error
	err = b.ask(func() {
		if addr.IsValid() && !e.drains.knows(addr) {
			refused = fmt.Errorf("%w: no connection to %v was ever made, and no socket sends there", ctl.ErrNotFound, addr)
			return
		}
		switch {
		case do == ctl.DrainBegin && len(e.drains.of) >= maxDrains && addr.IsValid() && !e.drains.of[addr]:
			refused = errors.New("too many addresses are drained: resume some, or drain the daemon")
			return
		case do != ctl.DrainLook:
			e.drains.setDrain(addr, do == ctl.DrainBegin)
		}
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return d, err
	}
	if do != ctl.DrainLook {
		err = b.steps(func(c *Client) int { return len(c.slots) }, func(c *Client, from, to int) bool {
			for _, sl := range c.slots[from:to] {
				if sl != nil && (!addr.IsValid() || sl.addr == addr) {
					e.dests.refresh(sl)
				}
			}
			return true
		})
		if err != nil {
			return d, err
		}
	}
	return b.drainLeft(addr)
}

// drainLeft counts what is under way.
func (b Inspector) drainLeft(addr netip.Addr) (d ctl.Drain, err error) {
	e := b.e
	err = b.eachMessage(func(t *txMsg) bool {
		if !addr.IsValid() || t.slot.addr == addr {
			d.Messages += uint64(t.sum.Datagrams)
			d.Bytes += uint64(t.sum.Bytes)
			d.Ops += uint64(t.nops)
		}
		return true
	})
	if err != nil {
		return d, err
	}
	// Submitted and not taken in yet: what a client wrote before it saw that it
	// has to wait.
	ringed := false
	err = b.ask(func() {
		for _, c := range e.clients.all {
			ringed = ringed || !c.sub.Empty()
		}
		if addr.IsValid() {
			d.Drained = e.drains.of[addr]
		} else {
			d.Drained = e.drains.all
		}
	})
	if err != nil {
		return d, err
	}
	err = b.eachSocket(func(s *socket) bool {
		d.Unread += uint64(s.rcvBytes)
		return true
	})
	d.Done = d.Drained && d.Messages == 0 && !ringed
	return d, err
}
