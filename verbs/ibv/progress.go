//go:build ibv && linux

package ibv

/*
#include "shim.h"
*/
import "C"

import (
	"time"

	"golang.org/x/sys/unix"
)

// Progress implements verbs.Device. The adapter moves the bytes, so only its events are
// left to handle.
func (d *Device) Progress() bool {
	if d.closed {
		return false
	}
	did := false
	var ev [8]unix.EpollEvent
	n, _ := unix.EpollWait(d.ep, ev[:], 0)
	for i := range max(n, 0) {
		switch fd := int(ev[i].Fd); fd {
		case int(d.cm.fd):
			did = d.pollCM() || did
		case int(d.ctx.async_fd):
			did = d.pollAsync() || did
		case int(d.channel.fd):
			did = d.pollChannel() || did
		case d.wake:
			did = d.runCalls() || did
		default:
			did = d.runTimers(time.Now()) || did
		}
	}
	d.updateWake()
	return did
}

// pollChannel reads the events of completion queues. An event says that an armed queue has
// got something. stage decides whether the queue's owner wants an event.
func (d *Device) pollChannel() bool {
	for C.ibvx_comp_event(d.channel) == 0 {
		for c := range d.cqs {
			c.event()
		}
	}
	return true
}

// call runs f on the owner's goroutine, in the next Progress.
func (d *Device) call(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, f)
	if d.wake >= 0 {
		_, _ = unix.Write(d.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

func (d *Device) runCalls() bool {
	d.mu.Lock()
	calls := d.calls
	d.calls = nil
	d.mu.Unlock()
	for _, f := range calls {
		f()
	}
	return len(calls) > 0
}

// updateWake keeps FD readable while there is something to take.
func (d *Device) updateWake() {
	if d.closed {
		return
	}
	want := d.fired > 0 || len(d.events) > 0 || d.asked && len(d.asyncs) > 0
	d.mu.Lock()
	defer d.mu.Unlock()
	want = want || len(d.calls) > 0
	var b [8]byte
	if want {
		b[0] = 1
		_, _ = unix.Write(d.wake, b[:])
	} else if d.woken {
		_, _ = unix.Read(d.wake, b[:])
	}
	d.woken = want
}
