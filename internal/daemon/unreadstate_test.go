package daemon

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ipc"
)

// endedUnread is a process whose session has ended before it read the answer to its Hello.
func endedUnread(t *testing.T, d *Daemon) *proc {
	t.Helper()
	p := helloUnread(t, d)
	eventually(t, "the answer", func() error {
		if !p.answered() {
			return errors.New("not there")
		}
		return nil
	})
	p.write(rawFrame(0xffff, 0, 1))
	p.awaitEnd()
	return p
}

// TestUnreadReadInPause: a process whose session has ended reads what it was sent while its
// daemon is handing over. The descriptor of its connection is part of the state, and stays until
// the other daemon has it, or until there is none.
func TestUnreadReadInPause(t *testing.T) {
	uid := uint32(os.Getuid())
	for _, taken := range []bool{true, false} {
		d := startDaemon(t, nil)
		p := endedUnread(t, d)
		x := part(t, d)
		d.admission.mu.Lock()
		var c *connection
		for c = range d.admission.ending {
		}
		d.admission.mu.Unlock()
		m, err := p.ctl.Recv()
		if err != nil {
			t.Fatal(err)
		}
		m.CloseFDs()
		eventually(t, "the daemon knows that it was read", func() error {
			if c.Unread() {
				return errors.New("it does not")
			}
			return nil
		})
		_ = c.Conn.Close() // as the goroutine does that waits for this
		if c.FD() < 0 {
			x.resume()
			t.Fatal("the descriptor is closed, and the state names it")
		}
		if taken {
			d = x.succeed()
		} else {
			x.resume()
		}
		eventually(t, "nothing is left", func() error {
			if n := d.admission.clientsOf()[config.UserAccount(uid)]; n != 0 {
				return fmt.Errorf("%d processes count", n)
			}
			return nil
		})
		<-c.Received()
	}
}

// TestUnreadCountHandedOver: a daemon that takes over counts as many descriptors for a process
// that has not read them as there are, so that the processes of one user do not take the share of
// others.
func TestUnreadCountHandedOver(t *testing.T) {
	d, uid := usersDaemon(t, func(c *config.Config) { c.Limits.MaxClients = 16 })
	uid.Store(1001)
	endedUnread(t, d)
	busy, lives := attached(t, d), attached(t, d)
	busy.send(&ipc.Addrs{}) // whose answer has no descriptor
	lives.send(&ipc.Alloc{Size: 4096})
	for _, p := range []*proc{lives, busy} {
		eventually(t, "the answer", func() error {
			if !p.answered() {
				return errors.New("not there")
			}
			return nil
		})
	}
	before := d.unreceived.ofUsers()[config.UserAccount(1001)].Used
	if want := uint64(4 + fewParams.SendWindows + fewParams.RecvWindows + 1); before != want {
		t.Errorf("%d descriptors count, want %d", before, want)
	}
	d = part(t, d).succeed()
	if now := d.unreceived.ofUsers()[config.UserAccount(1001)].Used; now != before {
		t.Errorf("the successor counts %d descriptors, not %d", now, before)
	}
}
