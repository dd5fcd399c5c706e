package engine

import "github.com/rdsd/rdsd/internal/stats"

// This file is what drives an engine: Turn again and again, on one goroutine. After a turn
// that found nothing, the driver may spin while Active. It may sleep when MayBlock and Park
// agree, until one of the devices' descriptors is readable, wake is called, a client rings,
// or NextTimer is due.

// DrivenBy says how the engine wakes who drives it, from any goroutine, and for how
// many ns it leaves alone a device that has no queue pair. Before the first turn.
func (e *Engine) DrivenBy(wake func(), deviceRest int64) {
	e.post.Wake, e.devices.rest = wake, deviceRest
}

// FDs are the devices' descriptors.
func (e *Engine) FDs() (fds []int) {
	for _, r := range e.devices.rails {
		if fd := r.dev.FD(); fd >= 0 {
			fds = append(fds, fd)
		}
	}
	return fds
}

// Park announces sleep to every client and looks once more: false, there is
// something to do. From Halt to Resume nothing that they have is taken.
func (e *Engine) Park() bool {
	return e.Halts() || e.clients.parkAll() && !e.post.Has() && !e.clients.rung.Load()
}

// Slept ends the devices' rest: one of them may have ended the sleep.
func (e *Engine) Slept() { e.devices.restUntil = 0 }

// Hurry has every turn look at the devices.
func (e *Engine) Hurry() { e.devices.rest, e.devices.restUntil = 0, 0 }

// NextTimer is when the engine has something to do by time alone, by the clock of Turn, 0: never.
func (e *Engine) NextTimer() int64 {
	if e.due.next == 0 || e.Halted() {
		return 0
	}
	return e.due.next + e.behind
}

// Do runs f on the engine's goroutine, soon, and returns at once. After the
// engine has ended it reports false and drops f. Safe for any goroutine.
func (e *Engine) Do(f func()) bool { return e.post.Add(f) }

// Count counts one more of c, soon. Safe for any goroutine.
func (e *Engine) Count(c stats.Counter) { e.Do(func() { e.st.C[c]++ }) }

// CountAll counts n more of c, as Count does. Safe for any goroutine.
func (e *Engine) CountAll(c stats.Counter, n uint64) { e.Do(func() { e.st.C[c] += n }) }

// End refuses closures from now on. Nobody turns the engine any more.
func (e *Engine) End() { e.post.Close() }
