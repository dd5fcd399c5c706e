package model

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// App is the end of an application. One goroutine uses it, locked to its thread.
type App struct {
	in   *consumer
	out  *producer
	bell int
	spin time.Duration
	sent uint64
}

// App returns the application's end of h. Before it sleeps, it yields for spin.
func (h *Host) App(spin time.Duration) *App {
	return &App{in: newConsumer(h.toApp, h.relayBell), out: newProducer(h.toRelay, h.relayBell), bell: h.appBell, spin: spin}
}

// Other returns an application's end of h in the relay's place: the two applications then have
// the ends of the same rings, and nothing is between them.
func (h *Host) Other(spin time.Duration) *App {
	in, out := h.relayEnds()
	return &App{in: in, out: out, bell: h.relayBell, spin: spin}
}

// Send copies p into the ring. The relay sees it with the next Publish. If the ring has no
// room, Send publishes what is there and waits.
func (a *App) Send(p []byte) {
	h := header{n: uint32(len(p)), to: 1, seq: a.sent}
	a.sent++
	dst := a.out.reserve(h)
	if dst == nil {
		a.out.publish()
		a.wait(&a.out.blocked, func() bool { dst = a.out.reserve(h); return dst != nil })
	}
	copy(dst, p)
}

// Publish shows the relay what was sent: it ends the run.
func (a *App) Publish() { a.out.publish() }

// Write has the relay write n bytes of this host's region, from off, to the same place of the
// other host's region. The other application receives an empty datagram once they are there. If
// as many writes as most are in progress, Write first waits until the connection has taken one.
// An application that writes sends no datagrams.
func (a *App) Write(off, n, most int) {
	free := func() bool { return a.out.at-a.out.head.Load() < uint64(most)*frameBytes(0) }
	if !free() {
		a.wait(&a.out.blocked, free)
	}
	a.out.reserve(writeHeader(off, n))
	a.out.publish()
}

// Wait waits until there is a datagram. If there is none yet, it first does what Release does.
func (a *App) Wait() {
	ready := func() bool { _, p := a.in.peek(); return p != nil }
	if !ready() {
		a.in.release()
		a.wait(&a.in.hungry, ready)
	}
}

// Receive copies the next datagram to p and returns its length; ok is false if there is none.
func (a *App) Receive(p []byte) (n int, ok bool) {
	h, payload := a.in.peek()
	if payload == nil {
		return 0, false
	}
	n = copy(p, payload)
	a.in.drop(h)
	return n, true
}

// Release gives the relay the room of what was received.
func (a *App) Release() { a.in.release() }

// wait yields until ready or for a.spin. Then it announces in asleep that it sleeps, and
// sleeps until the relay rings and ready holds.
func (a *App) wait(asleep *atomic.Uint32, ready func() bool) {
	for start := time.Now(); time.Since(start) < a.spin; {
		yield()
		if ready() {
			return
		}
	}
	var count [8]byte
	for {
		asleep.Store(1)
		if ready() {
			asleep.Store(0)
			return
		}
		_, _ = unix.Read(a.bell, count[:])
	}
}
