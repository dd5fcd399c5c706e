package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// Users that neither run the daemon nor are root.
const (
	alice = 4_000_000_000 + iota
	bob
	carol
)

// crowd is a daemon whose connections are of whom the test says.
type crowd struct {
	t   *testing.T
	d   *Daemon
	uid atomic.Uint32
}

func newCrowd(t *testing.T, edit func(*config.Config)) *crowd {
	c := &crowd{t: t}
	c.d = startDaemonOf(t, edit, func(conn *ipc.Conn) ipc.Cred {
		uid := c.uid.Load()
		return ipc.Cred{PID: conn.Peer().PID, UID: uid, GID: uid}
	})
	return c
}

// dial connects as uid. The daemon has seen it when this returns.
func (c *crowd) dial(uid uint32) *ipc.Client {
	c.t.Helper()
	c.uid.Store(uid)
	seen := c.arrived()
	x := dial(c.t, c.d)
	eventually(c.t, "the daemon accepts", func() error {
		if c.arrived() == seen {
			return errors.New("nobody has arrived")
		}
		return nil
	})
	return x
}

func (c *crowd) arrived() uint64 {
	c.d.admission.mu.Lock()
	defer c.d.admission.mu.Unlock()
	return c.d.admission.arrived
}

// hello says what the connection is.
func hello(c *ipc.Client, role ipc.Role) error {
	_, fds, err := c.Call(&ipc.Hello{Role: role, Params: fewParams}, nil)
	for _, fd := range fds {
		unix.Close(fd)
	}
	return err
}

func (c *crowd) attach(uid uint32) (*ipc.Client, error) {
	x := c.dial(uid)
	return x, hello(x, ipc.RoleClient)
}

// ask puts a question to the daemon as rdsctl of uid does.
func (c *crowd) ask(uid uint32, kind ctl.Kind) *ctl.Response {
	c.t.Helper()
	x := c.dial(uid)
	defer x.Close()
	if err := hello(x, ipc.RoleCtl); err != nil {
		c.t.Fatal(err)
	}
	req, err := json.Marshal(ctl.Request{Schema: ctl.Schema, Kind: kind})
	if err != nil {
		c.t.Fatal(err)
	}
	b, err := x.CallJSON(req)
	if err != nil {
		c.t.Fatal(err)
	}
	r, err := ctl.Parse(b, kind)
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

func TestClientQuota(t *testing.T) {
	c := newCrowd(t, func(cfg *config.Config) {
		cfg.Quota.User[config.Clients] = 2
		cfg.Quota.User[config.RegisteredBytes] = 3 << 20
	})
	var procs []*ipc.Client
	for i := range 3 {
		p, err := c.attach(alice)
		if (err == nil) != (i < 2) || err != nil && (!errors.Is(err, unix.ENOBUFS) || !strings.Contains(err.Error(), "quota.clients")) {
			t.Errorf("process %d: %v", i+1, err)
		}
		procs = append(procs, p)
	}
	for _, uid := range []uint32{bob, 0, 0, 0} {
		if _, err := c.attach(uid); err != nil {
			t.Errorf("uid %d: %v", uid, err)
		}
	}
	alloc := func(p *ipc.Client) error {
		_, fds, err := p.Call(&ipc.Alloc{Size: 1 << 20}, nil)
		for _, fd := range fds {
			unix.Close(fd)
		}
		return err
	}
	for i := range 4 {
		if err := alloc(procs[i%2]); (err == nil) != (i < 3) || err != nil && !strings.Contains(err.Error(), "quota.registered_bytes") {
			t.Errorf("MiB %d: %v", i+1, err)
		}
	}
	// A process that is gone has nothing any more: its place and memory are the
	// user's again.
	procs[0].Close()
	eventually(t, "another process attaches after one has gone", func() error {
		p, err := c.attach(alice)
		if err == nil {
			procs[0] = p
		}
		return err
	})
	eventually(t, "the memory of the process is given back", func() error {
		if n := c.d.engine.Memory().OfUsers()[config.UserAccount(alice)].Registered; n != 1<<20 {
			return fmt.Errorf("%d bytes are registered", n)
		}
		return nil
	})
	for i := range 3 {
		if err := alloc(procs[0]); (err == nil) != (i < 2) {
			t.Errorf("MiB %d after: %v", i+2, err)
		}
	}
}

func TestWhoSeesWhat(t *testing.T) {
	c := newCrowd(t, nil)
	addr := c.d.config().Listen[0]
	for i, uid := range []uint32{alice, alice, bob} {
		p, err := c.attach(uid)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := p.Call(&ipc.Bind{Addr: addr, Port: uint16(100 + i)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		uid            uint32
		sockets, users int
	}{{alice, 2, 1}, {bob, 1, 1}, {carol, 0, 0}, {0, 3, 3}, {uint32(unix.Getuid()), 3, 3}} {
		socks := c.ask(tc.uid, ctl.KindSockets)
		if len(socks.Sockets) != tc.sockets || len(socks.Sockets)+int(socks.OtherSockets) != 3 {
			t.Errorf("uid %d sees %d sockets, %d of others", tc.uid, len(socks.Sockets), socks.OtherSockets)
		}
		s := c.ask(tc.uid, ctl.KindStatus).Status
		users := map[uint32]ctl.User{}
		for _, u := range s.Users {
			users[*u.UID] = u
		}
		// Who asks has a connection, and thereby a line.
		delete(users, carol)
		if tc.users == 3 {
			if users[alice].Sockets.Used != 2 || users[alice].Clients.Used != 2 || users[bob].Sockets.Used != 1 ||
				*users[bob].Sockets.Quota != 1<<16 || users[alice].QueuedBytes.Used == 0 {
				t.Errorf("uid %d sees users %+v", tc.uid, s.Users)
			}
		} else if _, own := users[tc.uid]; len(users) != tc.users || own != (tc.users == 1) {
			t.Errorf("uid %d sees users %+v", tc.uid, s.Users)
		}
	}
}

// TestSilentUser: a user whose connections say nothing, more than there may be,
// and who has as many rdsctl as it may, keeps neither another user's process and
// rdsctl out nor an administrator.
func TestSilentUser(t *testing.T) {
	c := newCrowd(t, nil)
	early := c.dial(bob)
	for range 2 * maxSilent {
		c.dial(alice)
	}
	if err := hello(early, ipc.RoleClient); err != nil {
		t.Errorf("the connection of another user was closed: %v", err)
	}
	for range maxCtlers / 2 {
		if err := hello(c.dial(alice), ipc.RoleCtl); err != nil {
			t.Fatal(err)
		}
	}
	if err := hello(c.dial(alice), ipc.RoleCtl); !errors.Is(err, unix.EUSERS) {
		t.Errorf("one rdsctl more than half of all: %v", err)
	}
	if err := hello(c.dial(carol), ipc.RoleCtl); err != nil {
		t.Errorf("another user's rdsctl: %v", err)
	}
	if err := hello(c.dial(0), ipc.RoleCtl); err != nil {
		t.Errorf("the administrator's: %v", err)
	}
}

// fewParams are those of a client with little shared memory.
var fewParams = shm.Params{SubEntries: 256, EventEntries: 16, MaxMsgs: 256, MaxRx: 16, Slots: 64, Cells: 64, SendWindows: 1, RecvWindows: 1}
