package e2e

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds"
)

// target is the registered memory of a socket.
type target struct {
	s   *rds.Socket
	buf *rds.Buffer
	reg *rds.Region
}

func newTarget(t *testing.T, c *rds.Client, s *rds.Socket, size int, access rds.Access) *target {
	t.Helper()
	b, err := c.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Register(b, 0, size, access)
	if err != nil {
		t.Fatal(err)
	}
	return &target{s, b, r}
}

func (g *target) expose(t *testing.T, to addrPort) *target {
	t.Helper()
	if err := g.reg.Expose(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	return g
}

// granted waits until s has the grants that owner has exposed to it.
func granted(t *testing.T, owner, s *rds.Socket) {
	t.Helper()
	if _, err := owner.SendTo(nil, s.LocalAddrPort()); err != nil {
		t.Fatal(err)
	}
	s.SetReadDeadline(time.Now().Add(patience))
	if _, _, err := s.RecvFrom(nil); err != nil {
		t.Fatal(err)
	}
}

// operate sends one operation with an empty message and returns its status.
func operate(t *testing.T, s *rds.Socket, to addrPort, op rds.RDMA) rds.Completion {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	op.Notify = true
	id, err := s.Send(context.Background(), &rds.Message{Addr: to, Op: &op})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.WaitOp(ctx, to.Addr(), id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Barrier(ctx, to.Addr(), id); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRefused issues operations that must be refused. Each must end with a status. None may be
// delivered or break the connection, and other traffic must go on.
func TestRefused(t *testing.T) {
	for _, where := range []string{"network", "host"} {
		t.Run(where, func(t *testing.T) {
			isolated(t, func(t *testing.T) { testRefused(t, where == "host") })
		})
	}
}

func testRefused(t *testing.T, same bool) {
	hosts := newHosts(t, 2)
	from, at := hosts[0], hosts[1]
	if same {
		from = at
	}
	ci, ct := from.open(), at.open()
	s, stranger := from.bind(ci, 4000), from.bind(ci, 4001)
	dst := at.bind(ct, 5000)
	to := dst.LocalAddrPort()
	const size = 64 << 10
	local, err := ci.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	fillPattern(local.Bytes(), 1)

	full := newTarget(t, ct, dst, size, rds.AllowRead|rds.AllowWrite).expose(t, s.LocalAddrPort())
	readOnly := newTarget(t, ct, dst, size, rds.AllowRead).expose(t, s.LocalAddrPort())
	writeOnly := newTarget(t, ct, dst, size, rds.AllowWrite).expose(t, s.LocalAddrPort())
	secret := newTarget(t, ct, dst, size, rds.AllowRead|rds.AllowWrite)
	released := newTarget(t, ct, dst, size, rds.AllowRead|rds.AllowWrite).expose(t, s.LocalAddrPort())
	once := newTarget(t, ct, dst, size, rds.AllowWrite|rds.UseOnce).expose(t, s.LocalAddrPort())
	if err := released.reg.Release(t.Context()); err != nil {
		t.Fatal(err)
	}

	granted(t, dst, s)

	// Other traffic, which must not be disturbed.
	a := newAudit()
	bystander, sink := from.bind(ci, 4002), at.bind(ct, 5001)
	done := make(chan struct{})
	go func() { a.take(sink); close(done) }()

	all := []rds.Segment{{Buf: local, Len: size}}
	for _, tc := range []struct {
		name  string
		s     *rds.Socket
		op    rds.RDMA
		errno syscall.Errno // 0 for success
	}{
		{"good write", s, rds.RDMA{Write: true, Cookie: full.reg.Cookie(), Local: all}, 0},
		{"good read", s, rds.RDMA{Cookie: full.reg.Cookie(), Local: all}, 0},
		{"unknown cookie", s, rds.RDMA{Write: true, Cookie: 0x1234_5678_9abc_def0, Local: all}, syscall.EINVAL},
		{"right key, wrong offset", s, rds.RDMA{Write: true, Cookie: full.reg.Cookie() ^ 1<<44, Local: all}, syscall.EINVAL},
		{"one byte beyond", s, rds.RDMA{Write: true, Cookie: full.reg.Cookie(), RemoteOff: 1, Local: all}, syscall.ERANGE},
		{"far beyond", s, rds.RDMA{Cookie: full.reg.Cookie(), RemoteOff: 1 << 63, Local: all}, syscall.ERANGE},
		{"wrap around", s, rds.RDMA{Write: true, Cookie: full.reg.Cookie(), RemoteOff: 1<<64 - size, Local: all}, syscall.ERANGE},
		{"write without the right", s, rds.RDMA{Write: true, Cookie: readOnly.reg.Cookie(), Local: all}, syscall.EACCES},
		{"read without the right", s, rds.RDMA{Cookie: writeOnly.reg.Cookie(), Local: all}, syscall.EACCES},
		{"guessed", s, rds.RDMA{Cookie: secret.reg.Cookie(), Local: all}, syscall.EACCES},
		{"granted to another port", stranger, rds.RDMA{Cookie: full.reg.Cookie(), Local: all}, syscall.EACCES},
		{"released", s, rds.RDMA{Write: true, Cookie: released.reg.Cookie(), Local: all}, syscall.EINVAL},
		{"once", s, rds.RDMA{Write: true, Cookie: once.reg.Cookie(), Local: all}, 0},
		{"once again", s, rds.RDMA{Write: true, Cookie: once.reg.Cookie(), Local: all}, syscall.EINVAL},
		{"good to the end", s, rds.RDMA{Write: true, Cookie: full.reg.Cookie(), Local: all}, 0},
	} {
		for range 20 {
			if err := a.send(bystander, sink.LocalAddrPort(), make([]byte, 5000)); err != nil {
				t.Fatal(err)
			}
		}
		tc.op.Token = 77
		c := operate(t, tc.s, to, tc.op)
		want := rds.Completion{Token: 77, ID: c.ID, To: to.Addr()}
		if tc.errno != 0 {
			want.Status, want.Errno = rds.RemoteError, tc.errno
		}
		// A key without a grant cannot be told from a key that does not exist.
		if c != want && !(tc.errno == syscall.EACCES && c.Status == rds.RemoteError && c.Errno == syscall.EINVAL) {
			t.Errorf("%s: %+v, want %+v", tc.name, c, want)
		}
	}
	if err := checkPattern(full.buf.Bytes(), 1); err != nil {
		t.Errorf("written: %v", err)
	}
	for name, g := range map[string]*target{"read only": readOnly, "secret": secret, "released": released, "write only": writeOnly} {
		for i, b := range g.buf.Bytes() {
			if b != 0 {
				t.Errorf("%s: byte %d is %#x", name, i, b)
				break
			}
		}
	}
	// The refused operations are not delivered. The four good ones are.
	delivered := 0
	for {
		if err := dst.Recv(rds.DontWait, &rds.Received{}); err != nil {
			break
		}
		delivered++
	}
	if delivered != 4 {
		t.Errorf("%d messages of operations delivered, want 4", delivered)
	}
	a.all(t, bystander)
	neverReset(t, hosts...)
	sink.Close()
	<-done
}

// TestRelease checks that nobody can touch the memory after Release, whatever is in progress.
func TestRelease(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		ci, ct := hosts[0].open(), hosts[1].open()
		s, dst := hosts[0].bind(ci, 0), hosts[1].bind(ct, 0)
		const size = 256 << 10
		local, err := ci.Alloc(size)
		if err != nil {
			t.Fatal(err)
		}
		fillPattern(local.Bytes(), 3)
		drop := make(chan struct{})
		go func() { newAudit().drop(dst); close(drop) }()
		rounds := 30
		if long {
			rounds = 500
		}
		for round := range rounds {
			g := newTarget(t, ct, dst, size, rds.AllowWrite).expose(t, s.LocalAddrPort())
			granted(t, dst, s)
			writing, wrote := make(chan struct{}), make(chan error, 1)
			go func() {
				for n := 0; ; n++ {
					id, err := s.Send(context.Background(), &rds.Message{Addr: dst.LocalAddrPort(), Op: &rds.RDMA{
						Write: true, Cookie: g.reg.Cookie(), Local: []rds.Segment{{Buf: local, Len: size}}, Notify: true}})
					var c rds.Completion
					if err == nil && n%4 == 3 {
						c, err = s.WaitOp(context.Background(), dst.LocalAddrPort().Addr(), id)
					}
					if n == round%8 {
						close(writing)
					}
					if err != nil || c.Status != rds.Success {
						if err == nil && (c.Status != rds.RemoteError || c.Errno != syscall.EINVAL) {
							err = fmt.Errorf("status %+v", c)
						}
						wrote <- err
						return
					}
				}
			}()
			select {
			case <-writing:
			case err := <-wrote:
				t.Fatalf("round %d, before Release: %v", round, err)
			}
			if err := g.reg.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			clear(g.buf.Bytes())
			if err := <-wrote; err != nil {
				t.Fatal(err)
			}
			if err := s.BarrierAll(t.Context()); err != nil {
				t.Fatal(err)
			}
			for i, b := range g.buf.Bytes() {
				if b != 0 {
					t.Fatalf("round %d: byte %d written after Release", round, i)
				}
			}
			var cs [1000]rds.Completion
			for s.Completions(cs[:]) > 0 {
			}
			if err := g.buf.Free(); err != nil {
				t.Fatal(err)
			}
		}
		neverReset(t, hosts...)
		dst.Close()
		<-drop
	})
}

// drop receives and drops messages until there is an error.
func (a *audit) drop(s *rds.Socket) {
	for {
		if _, _, err := s.RecvFrom(nil); err != nil {
			if !errors.Is(err, rds.ErrClosed) && !errors.Is(err, rds.ErrDaemonGone) {
				a.mu.Lock()
				a.wrong = append(a.wrong, err)
				a.mu.Unlock()
			}
			return
		}
	}
}
