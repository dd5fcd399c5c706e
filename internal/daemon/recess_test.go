package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// send sends a request whose answer is received later.
func (p *proc) send(r ipc.Request, fds ...int) {
	p.t.Helper()
	p.id++
	p.write(ipc.AppendFrame(nil, p.id, r), fds...)
}

// hears wants the next frame to be the answer to request id, of the type of want.
func (p *proc) hears(id uint32, want ipc.Body) *ipc.Message {
	p.t.Helper()
	p.ctl.SetReadDeadline(time.Now().Add(patience))
	m, err := p.ctl.Recv()
	if err != nil {
		p.t.Fatalf("answer %d: %v", id, err)
	}
	p.fds = append(p.fds, m.FDs...)
	if m.ID != id || m.Body.Type() != want.Type() {
		p.t.Fatalf("frame %d: %+v, not %d: %v", m.ID, m.Body, id, want.Type())
	}
	return m
}

// hearsNothing wants no frame.
func (p *proc) hearsNothing() {
	p.t.Helper()
	p.ctl.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	if m, err := p.ctl.Recv(); !errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Errorf("%+v, %v", m, err)
	}
}

func ctlRequest(t *testing.T, r ctl.Request) *ipc.Ctl {
	t.Helper()
	r.Schema = ctl.Schema
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return &ipc.Ctl{JSON: b}
}

// rdsctlOf is a connection of rdsctl.
func rdsctlOf(t *testing.T, d *Daemon) *proc {
	t.Helper()
	p := dialRaw(t, d)
	p.call(&ipc.Hello{Role: ipc.RoleCtl})
	return p
}

// blockEngine keeps the engine's thread busy until the returned function is called.
func blockEngine(t *testing.T, d *Daemon) (unblock func()) {
	t.Helper()
	blocked, over := make(chan struct{}), make(chan struct{})
	if !d.engine.Do(func() { close(blocked); <-over }) {
		t.Fatal("the engine has ended")
	}
	<-blocked
	unblock = sync.OnceFunc(func() { close(over) })
	t.Cleanup(unblock)
	return unblock
}

// takesRequest waits until the session of the process has taken a request of r's type.
func takesRequest(t *testing.T, d *Daemon, r ipc.Request) {
	t.Helper()
	eventually(t, "the session takes the request", func() error {
		d.admission.mu.Lock()
		defer d.admission.mu.Unlock()
		for c := range d.admission.open {
			if ipc.Type(c.request.Load()) == r.Type() {
				return nil
			}
		}
		return errors.New("it has not")
	})
}

// TestRecess: what processes send in a recess is answered after it, in order, once. This
// holds for what connects in the recess, too.
func TestRecess(t *testing.T) {
	d := startDaemon(t, nil)
	addr := d.config().Listen[0]
	early, later := dialRaw(t, d), rdsctlOf(t, d)
	procs := []*proc{attached(t, d), importing(t, d)}
	own := filledMemory(t, 1<<20, unix.F_SEAL_SHRINK)
	for range 3 {
		if err := d.admission.recess(context.Background(), true); err != nil {
			t.Fatal(err)
		}
		if err := d.admission.recess(context.Background(), true); err == nil {
			t.Error("two at a time")
		}
		from := [2]uint32{procs[0].id, procs[1].id}
		procs[0].send(&ipc.Bind{Addr: addr})
		procs[0].send(&ipc.Alloc{Size: 1 << 16})
		procs[0].send(&ipc.CloseSock{Sock: 1 << 20})
		procs[1].send(&ipc.Addrs{})
		procs[1].send(&ipc.Import{Len: 1 << 20}, own)
		procs[1].send(&ipc.GrowSend{})
		newcomer := dialRaw(t, d)
		for _, p := range []*proc{early, newcomer} {
			p.send(&ipc.Hello{Role: ipc.RoleCtl})
		}
		asked := ctlRequest(t, ctl.Request{Kind: ctl.KindSockets})
		later.send(asked)
		all := append(procs, early, later, newcomer)
		for _, p := range all {
			p.hearsNothing()
		}
		d.admission.resume()
		procs[0].hears(from[0]+1, &ipc.BindOK{})
		procs[0].hears(from[0]+2, &ipc.AllocOK{})
		procs[0].hears(from[0]+3, &ipc.Err{})
		procs[1].hears(from[1]+1, &ipc.AddrsOK{})
		procs[1].hears(from[1]+2, &ipc.ImportOK{})
		procs[1].hears(from[1]+3, &ipc.GrowSendOK{})
		early.hears(early.id, &ipc.HelloOK{})
		newcomer.hears(newcomer.id, &ipc.HelloOK{})
		later.hears(later.id, &ipc.CtlPart{})
		for _, p := range all {
			p.hearsNothing()
		}
		early = dialRaw(t, d)
	}
	d.admission.resume() // of no recess
	for _, p := range procs {
		p.call(&ipc.Addrs{})
	}
	if err := procs[0].ping(); err != nil {
		t.Error(err)
	}
}

// TestRecessWaits: a recess does not wait for requests that can be broken off, which are carried
// out after it, once. It waits for others, and for answers on their way.
func TestRecessWaits(t *testing.T) {
	d := startDaemon(t, nil)
	p, other, tool := attached(t, d), attached(t, d), rdsctlOf(t, d)
	unblock := blockEngine(t, d)
	p.send(&ipc.SetRcvBuf{Sock: p.sock, Bytes: 1 << 20})
	takesRequest(t, d, &ipc.SetRcvBuf{})
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("no more")
	cancel(why)
	if err := d.admission.recess(ctx, false); !errors.Is(err, why) {
		t.Error(err)
	}
	for range 2 {
		if err := d.admission.recess(context.Background(), true); err != nil {
			t.Error(err)
		}
		if n := d.brokenOff(); n != 1 {
			t.Fatalf("%d requests are carried out after the recess", n)
		}
		d.admission.resume()
		takesRequest(t, d, &ipc.SetRcvBuf{})
	}
	p.hearsNothing()
	tool.send(ctlRequest(t, ctl.Request{Kind: ctl.KindSockets}))
	takesRequest(t, d, &ipc.Ctl{})
	waits := func(breaks bool, until func()) {
		t.Helper()
		stands := make(chan error)
		go func() { stands <- d.admission.recess(context.Background(), breaks) }()
		select {
		case err := <-stands:
			t.Fatalf("stands already: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
		until()
		if err := <-stands; err != nil {
			t.Error(err)
		}
		d.admission.resume()
	}
	waits(false, unblock)
	p.hears(p.id, &ipc.OK{})
	p.hearsNothing()
	tool.hears(tool.id, &ipc.CtlPart{})

	c := d.connections()[0]
	c.answers.Add(1)
	waits(true, func() { d.admission.answered(c) })
	for _, p := range []*proc{p, other} {
		p.call(&ipc.Addrs{})
	}
	tool.send(ctlRequest(t, ctl.Request{Kind: ctl.KindSockets}))
	tool.hears(tool.id, &ipc.CtlPart{})
}

// brokenOff is how many requests of d's processes are to be carried out after the recess.
func (d *Daemon) brokenOff() (n int) {
	for _, c := range d.connections() {
		if c.again != nil {
			n++
		}
	}
	return n
}

// connections are those of d.
func (d *Daemon) connections() (all []*connection) {
	d.admission.mu.Lock()
	defer d.admission.mu.Unlock()
	for c := range d.admission.open {
		all = append(all, c)
	}
	return all
}

// TestRecessUnread: a process that does not read its answers ends, and keeps a recess
// waiting for no longer than a second.
func TestRecessUnread(t *testing.T) {
	d := startDaemon(t, nil)
	other := attached(t, d)
	unreading(t, d)
	if err := d.admission.recess(context.Background(), true); err != nil {
		t.Fatal(err)
	}
	d.admission.mu.Lock()
	if n := len(d.admission.open); n != 1 {
		t.Errorf("%d connections", n)
	}
	d.admission.mu.Unlock()
	d.admission.resume()
	other.call(&ipc.Addrs{})
}

// TestRecessInterrupts: rdsctl is told what to do if its request would take long.
func TestRecessInterrupts(t *testing.T) {
	d := startDaemon(t, nil)
	tool := rdsctlOf(t, d)
	unblock := blockEngine(t, d)
	tool.send(ctlRequest(t, ctl.Request{Kind: ctl.KindPing, Addr: netip.MustParseAddr("127.255.0.1"), Timeout: time.Minute}))
	takesRequest(t, d, &ipc.Ctl{})
	if err := d.admission.recess(context.Background(), true); err != nil {
		t.Error(err)
	}
	r, err := ctl.Parse(tool.hears(tool.id, &ipc.CtlPart{}).Body.(*ipc.CtlPart).JSON, ctl.KindPing)
	if err == nil || !strings.Contains(err.Error(), errReplaced.Error()) {
		t.Errorf("%+v, %v", r, err)
	}
	d.admission.resume()
	unblock()
	tool.send(ctlRequest(t, ctl.Request{Kind: ctl.KindSockets}))
	tool.hears(tool.id, &ipc.CtlPart{})
}

// TestRecessEnds: in a recess the engine can end a process, a process can end itself, and
// the daemon can shut down.
func TestRecessEnds(t *testing.T) {
	d := startDaemon(t, nil)
	killed, gone, stays := attached(t, d), attached(t, d), attached(t, d)
	if err := d.admission.recess(context.Background(), true); err != nil {
		t.Fatal(err)
	}
	killed.badSend()
	gone.close()
	if s := killed.reason(); !strings.Contains(s, "Text:") {
		t.Error(s)
	}
	eventually(t, "the killed one leaves in the recess", func() error {
		if n := d.admission.clientsOf()[config.UserAccount(uint32(os.Getuid()))]; n != 2 {
			return fmt.Errorf("%d processes", n)
		}
		return nil
	})
	d.admission.resume()
	eventually(t, "the one that has ended leaves after it", func() error {
		if n := d.admission.clientsOf()[config.UserAccount(uint32(os.Getuid()))]; n != 1 {
			return fmt.Errorf("%d processes", n)
		}
		return nil
	})
	stays.call(&ipc.Addrs{})
	if err := d.admission.recess(context.Background(), true); err != nil {
		t.Fatal(err)
	}
	// startDaemon checks that the daemon ends.
}

// badSend submits what the engine ends a process for.
func (p *proc) badSend() { p.put(func(e *shm.Entry) { e.Sub().Kind = 250 }) }

// TestRecessDeadlines: a connection's own deadline is later by the length of the recess, and
// holds after it.
func TestRecessDeadlines(t *testing.T) {
	d := startDaemon(t, nil)
	silent := dialRaw(t, d)
	var c *connection
	eventually(t, "the daemon accepts", func() error {
		d.admission.mu.Lock()
		defer d.admission.mu.Unlock()
		for c = range d.admission.open {
			if !c.deadline.IsZero() {
				return nil
			}
		}
		return errors.New("no connection")
	})
	at := time.Now().Add(time.Hour)
	d.admission.limit(c, at)
	if err := d.admission.recess(context.Background(), true); err != nil {
		t.Fatal(err)
	}
	const stood = 20 * time.Millisecond
	time.Sleep(stood)
	d.admission.resume()
	d.admission.mu.Lock()
	if later := c.deadline.Sub(at); later < stood {
		t.Errorf("the deadline is %v later", later)
	}
	d.admission.mu.Unlock()
	d.admission.limit(c, time.Now().Add(-1))
	if s := silent.reason(); s != "nothing" {
		t.Error(s)
	}
}

// TestLateAnswers: requests that are answered late are answered around a recess.
func TestLateAnswers(t *testing.T) {
	d := startDaemon(t, nil)
	p := attached(t, d)
	buf := p.call(&ipc.Alloc{Size: 1 << 16}).Body.(*ipc.AllocOK).Buffer
	region := p.call(&ipc.Register{Sock: p.sock, Buffer: buf, Len: 1 << 16, Access: abi.RightRead}).Body.(*ipc.RegisterOK).Region
	p.send(&ipc.Free{Buffer: buf, Wait: 1})
	free := p.id
	p.call(&ipc.Addrs{}) // the Free has begun
	if err := d.admission.recess(context.Background(), true); err != nil {
		t.Fatal(err)
	}
	p.send(&ipc.Release{Region: region})
	p.hearsNothing()
	d.admission.resume()
	answered := map[uint32]bool{}
	for range 2 {
		p.ctl.SetReadDeadline(time.Now().Add(patience))
		m, err := p.ctl.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := m.Body.(*ipc.OK); !ok || answered[m.ID] {
			t.Errorf("%d: %+v", m.ID, m.Body)
		}
		answered[m.ID] = true
	}
	if !answered[free] || !answered[p.id] {
		t.Errorf("%v", answered)
	}
	p.hearsNothing()
}
