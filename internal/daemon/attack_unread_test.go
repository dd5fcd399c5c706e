package daemon

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
	"golang.org/x/sys/unix"
)

// usersDaemon is a daemon whose connections are of the user that uid is when they begin.
func usersDaemon(t *testing.T, edit func(*config.Config)) (d *Daemon, uid *atomic.Uint32) {
	t.Helper()
	uid = &atomic.Uint32{}
	uid.Store(1000)
	return startDaemonOf(t, edit, func(c *ipc.Conn) ipc.Cred {
		id := c.Peer()
		id.UID = uid.Load()
		return id
	}), uid
}

// helloUnread connects, says Hello and does not read the answer.
func helloUnread(t *testing.T, d *Daemon) *proc {
	p := dialRaw(t, d)
	p.write(ipc.AppendFrame(nil, 1, &ipc.Hello{Role: ipc.RoleClient, Params: fewParams}))
	return p
}

// TestUnreadAnswers: a user whose processes read no answers, and have their sessions ended,
// again and again, has at most its share of the descriptors that the kernel lets the daemon
// send, and of the places of processes. Another user attaches and gets memory. When the
// processes are gone, nothing of the user's counts.
func TestUnreadAnswers(t *testing.T) {
	d, uid := usersDaemon(t, func(c *config.Config) { c.Limits.MaxClients = 16 })
	const most = 64
	d.unreceived.mu.Lock()
	d.unreceived.most = most
	d.unreceived.mu.Unlock()
	victim := attached(t, d)
	uid.Store(1001)
	sent := func() int { return int(d.unreceived.ofUsers()[config.UserAccount(1001)].Used) }
	var all []*proc
	for range 12 { // more than a user's places
		before := sent()
		p := helloUnread(t, d)
		all = append(all, p)
		eventually(t, "an answer", func() error {
			if sent() == before && !p.answered() {
				return errors.New("no answer yet")
			}
			return nil
		})
		d.soonTired()
		for i := range uint32(20) {
			p.write(ipc.AppendFrame(nil, 100+i, &ipc.Alloc{Size: 4096}))
		}
		p.write(rawFrame(0xffff, 0, 1)) // ends the session
		if len(all) > 1 {
			continue
		}
		p.awaitEnd()
		if n, first := sent(), 4+int(fewParams.SendWindows+fewParams.RecvWindows); n != first {
			t.Errorf("a process has %d descriptors unread, want the %d of its first answer", n, first)
		}
	}
	if n := sent(); n > most/2 || n < 8 {
		t.Errorf("%d descriptors of the user are unread, want at most %d", n, most/2)
	}
	// Those whose sessions have ended still count.
	for _, p := range all {
		p.awaitEnd()
	}
	if n := d.admission.clientsOf()[config.UserAccount(1001)]; n == 0 {
		t.Error("no process of the user counts, and their descriptors are unread")
	}
	uid.Store(1000)
	if err := hello(dial(t, d), ipc.RoleClient); err != nil {
		t.Errorf("another user's Hello: %v", err)
	}
	b := victim.call(&ipc.Alloc{Size: 4096})
	if _, ok := b.Body.(*ipc.AllocOK); !ok {
		t.Errorf("another user's memory: %+v", b.Body)
	}
	b.CloseFDs()
	if err := victim.ping(); err != nil {
		t.Error(err)
	}
	for _, p := range all {
		p.close()
	}
	eventually(t, "nothing is left", func() error {
		if n, c := sent(), d.admission.clientsOf()[config.UserAccount(1001)]; n != 0 || c != 0 {
			return fmt.Errorf("%d descriptors, %d processes", n, c)
		}
		return nil
	})
	uid.Store(1001)
	if err := hello(dial(t, d), ipc.RoleClient); err != nil {
		t.Errorf("the user's next Hello: %v", err)
	}
}

// soonTired has the daemon wait less for processes that do not read.
func (d *Daemon) soonTired() { d.tiresIn(100 * time.Millisecond) }

func (d *Daemon) tiresIn(t time.Duration) {
	d.admission.mu.Lock()
	defer d.admission.mu.Unlock()
	for c := range d.admission.open {
		c.SetSendTimeout(t)
	}
}

// answered reports whether a frame of the daemon is unread.
func (p *proc) answered() bool { return p.polled(unix.POLLIN) }

// awaitEnd waits until the daemon has closed its end. It reads nothing.
func (p *proc) awaitEnd() {
	p.t.Helper()
	eventually(p.t, "the session's end", func() error {
		if !p.polled(unix.POLLRDHUP) {
			return errors.New("it goes on")
		}
		return nil
	})
}

func (p *proc) polled(what int16) (is bool) {
	raw, err := p.c.SyscallConn()
	if err != nil {
		p.t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: what}}, 0)
		is = n == 1
	})
	return is
}

// TestRefusedDescriptors: a buffer and a window that cannot be sent to their process are
// ENOBUFS of that request. The session goes on, and a window comes with the next request.
func TestRefusedDescriptors(t *testing.T) {
	d, _ := usersDaemon(t, nil)
	p := attached(t, d)
	room := func(n int) {
		d.unreceived.mu.Lock()
		d.unreceived.most = n
		d.unreceived.mu.Unlock()
	}
	room(0)
	before := d.engine.Memory().Sum()
	for _, r := range []ipc.Request{&ipc.Alloc{Size: 4096}, &ipc.GrowSend{}} {
		if e, ok := p.call(r).Body.(*ipc.Err); !ok || e.Errno != uint32(unix.ENOBUFS) {
			t.Errorf("%T: %+v", r, e)
		}
	}
	before.Maps, before.Shared = before.Maps+1, before.Shared+4<<20 // the window
	eventually(t, "the buffer is gone", func() error {
		if now := d.engine.Memory().Sum(); now != before {
			return fmt.Errorf("%+v, want %+v", now, before)
		}
		return nil
	})
	room(8)
	m := p.call(&ipc.GrowSend{})
	if g, ok := m.Body.(*ipc.GrowSendOK); !ok || g.Windows != p.p.SendWindows+1 || len(m.FDs) != 1 {
		t.Errorf("GrowSend: %+v with %d descriptors", m.Body, len(m.FDs))
	}
	m.CloseFDs()
	if now := d.engine.Memory().Sum(); now != before {
		t.Errorf("%+v, want %+v", now, before)
	}
	if err := p.ping(); err != nil {
		t.Error(err)
	}
}

// TestUnreadHandedOver: a connection that has ended with descriptors unread counts in the
// daemon that takes over, too, until its process is gone.
func TestUnreadHandedOver(t *testing.T) {
	d := startDaemon(t, nil)
	p := dialRaw(t, d)
	p.write(ipc.AppendFrame(nil, 1, &ipc.Hello{Role: ipc.RoleClient, Params: fewParams}))
	eventually(t, "the answer", func() error {
		if !p.answered() {
			return errors.New("not there")
		}
		return nil
	})
	p.write(rawFrame(0xffff, 0, 1))
	p.awaitEnd()
	count := func(d *Daemon) (clients, descriptors int) {
		uid := uint32(os.Getuid())
		return d.admission.clientsOf()[config.UserAccount(uid)], int(d.unreceived.ofUsers()[config.UserAccount(uid)].Used)
	}
	if c, n := count(d); c != 1 || n == 0 {
		t.Errorf("%d processes, %d descriptors, want 1 and some", c, n)
	}
	next := part(t, d).succeed()
	if c, n := count(next); c != 1 || n == 0 {
		t.Errorf("the successor has %d processes, %d descriptors, want 1 and some", c, n)
	}
	p.close()
	eventually(t, "nothing is left", func() error {
		if c, n := count(next); c != 0 || n != 0 {
			return fmt.Errorf("%d processes, %d descriptors", c, n)
		}
		return nil
	})
}
