package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/rds"
	"golang.org/x/sys/unix"
)

// No process decides about a planned restart. Each state that a process can leave has its test,
// here or elsewhere:
//
//	rings full, statuses unread                     TestUpgradeStates; exactly engine.TestHaltFullRings
//	work left behind                                TestUpgradeStates; exactly engine.TestHaltChores
//	operations of all lengths, queued to finished   TestUpgradeStates; each step sim.TestSuccessionAnywhere
//	descriptors in flight                           TestUpgradeStates
//	rdsctl stopped, scrapes of metrics unread       TestUpgradeStates, TestUpgradeWatched
//	memory sealed, cut short or with holes          TestUpgradeStates
//	half a frame, answers unread, requests for much TestUpgradeBusy
//	what an adoption finds wrong                    TestUpgradeFault
//	log unread                                      cmd/rdsd.TestLogNotRead
//	ends in the restart                             TestUpgradeComers

// left is a state. leave brings it about and returns what has to be so after an upgrade.
type left struct {
	name     string
	expected []string // parts of the warnings of here's daemon
	leave    func(t *testing.T, here, there *host) (after func())
}

var leftStates = []left{
	{"rings full, stopped", nil, stoppedFull},
	{"rings full, unread", nil, unreadFull},
	{"operations on one host", nil, func(t *testing.T, here, _ *host) func() { return operations(t, here, here, 128<<20) }},
	{"operations to another host", nil, func(t *testing.T, here, there *host) func() { return operations(t, here, there, 32<<20) }},
	{"descriptors in flight", nil, descriptorsInFlight},
	{"readers stopped", nil, readersStopped},
	{"many processes", nil, manyProcesses},
	{"sealed memory", []string{"sealed"}, sealedMemory},
	{"holes in memory", []string{"client broke the rules", "took away", "lost in a planned restart", "goes on without it"}, holedMemory},
	{"memory cut short", []string{"client broke the rules"}, cutMemory},
}

// TestUpgradeStates: whatever state a process leaves, its daemon is replaced within one bound, and
// others lose nothing. What cannot be taken over costs that process its session.
func TestUpgradeStates(t *testing.T) {
	isolated(t, func(t *testing.T) {
		addr := newAddress(t)
		here := newHost(t, withAddress(addr), withArgs("-metrics-listen", addr.String()+":"+freePort(t, addr)))
		there := newHost(t)
		b := startBystanders(t, here, there)
		for _, s := range leftStates {
			t.Run(s.name, func(inner *testing.T) {
				here.t, there.t = inner, inner
				defer func() { here.t, there.t = t, t }()
				here.expected = append(here.expected, s.expected...)
				after := s.leave(inner, here, there)
				here.upgradeWithin()
				b.progress()
				for _, l := range b.loads {
					if err := errors.Join(l.audit.failure(), l.ops.failure()); err != nil {
						inner.Error(err)
					}
				}
				after()
			})
		}
		b.finish()
	})
}

// stoppedFull is a stopped process with traffic of all kinds, to which others send until it is
// congested. It goes on.
func stoppedFull(t *testing.T, here, there *host) func() {
	at := here.at(7000)
	w := startWorker(t, here, at, there.at(9))
	src := here.bind(here.open(), 0)
	w.pause()
	a := newAudit()
	a.fill(t, src, at, 20_000)
	return func() {
		w.Resume()
		if err := a.send(src, at, make([]byte, minPayload)); err != nil { // there is room again
			t.Error(err)
		}
		w.Kill()
	}
}

// unreadFull is a process that leaves all rings full: that of events with messages and statuses, of
// which others wait for room, that of ids, and that of descriptors, for which it does not ring.
func unreadFull(t *testing.T, here, _ *host) func() {
	r := here.raw()
	r.submit(r.dest(r.at))
	msgs, ops := r.p.MaxMsgs/4, r.p.MaxMsgs/4
	send := func(from, n uint32) {
		for id := range n {
			r.await(func() {
				*r.seg.SubProducer().Reserve().Sub() = shm.Sub{Kind: shm.KindSend, Sock: r.sock, MsgID: from + id, Len: 4}
			}, 1)
		}
	}
	send(0, msgs)
	for id := range ops {
		r.await(func() {
			*r.seg.SubProducer().Reserve().Sub() = shm.Sub{Kind: shm.KindSendOp, Sock: r.sock, MsgID: msgs + id}
			*r.seg.SubProducer().Reserve().SubOp() = shm.SubOp{Op: abi.OpWrite, Flags: abi.FlagNotify, NSeg: 1, Len: 8, Cookie: 5, OpID: uint64(id) + 1}
		}, 2)
	}
	eventually(t, "a full event ring", func() error {
		if n := r.seg.EventConsumer().Avail(); n < int(r.p.EventEntries) {
			return fmt.Errorf("%d events", n)
		}
		return nil
	})
	rest := min(r.p.SubEntries, r.p.MaxMsgs-msgs-ops)
	for id := range rest {
		if x := r.seg.SubProducer().Reserve(); x != nil {
			*x.Sub() = shm.Sub{Kind: shm.KindSend, Sock: r.sock, MsgID: msgs + ops + id, Len: 4}
			continue
		}
		rest = id
		break
	}
	r.seg.SubProducer().Publish()
	return func() {
		for got, statuses := uint32(0), uint32(0); got < msgs+rest || statuses < ops; {
			r.ring() // the daemon may sleep until there is room
			switch e := r.event(); shm.EvKind(e.Kind()) {
			case shm.EvData:
				got++
				r.returnID(e.Event().RxID)
			case shm.EvStatus:
				statuses++
			default:
				t.Fatalf("event %+v", e.Notice())
			}
		}
	}
}

// await waits until the submission ring has room for n entries, has fill write them, and rings.
func (r *raw) await(fill func(), n int) {
	r.t.Helper()
	eventually(r.t, "room", func() error {
		if r.seg.SubProducer().Free() < n {
			return errors.New("there is none")
		}
		return nil
	})
	fill()
	r.seg.SubProducer().Publish()
	r.ring()
}

// operations is a process with operations of size bytes, of which some have finished, with their
// statuses unread, one is half done and others wait. All of them get a status.
func operations(t *testing.T, here, there *host, size int) func() {
	const ops = 24
	c, other := here.open(), there.open()
	s, to := here.bind(c, 0), there.bind(other, 0)
	local, mem := mustAlloc(t, c, size), mustAlloc(t, other, size)
	reg, err := to.Register(mem, 0, size, rds.AllowWrite)
	if err == nil {
		err = reg.Expose(t.Context(), s.LocalAddrPort())
	}
	if err != nil {
		t.Fatal(err)
	}
	granted(t, to, s)
	last := local.Bytes()[size-8:]
	binary.LittleEndian.PutUint64(last, 1)
	for i := range ops {
		op := &rds.RDMA{Write: true, Cookie: reg.Cookie(), Local: []rds.Segment{{Buf: local, Len: size}}, Notify: true, Token: uint64(i)}
		if _, err := s.Send(context.Background(), &rds.Message{Addr: to.LocalAddrPort(), Op: op}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the end of the first operation", func() error {
		if binary.LittleEndian.Uint64(mem.Bytes()[size-8:]) == 0 {
			return errors.New("it goes on")
		}
		return nil
	})
	return func() {
		var all [ops]rds.Completion
		n := s.Completions(all[:])
		t.Logf("%d of %d operations have ended", n, ops)
		eventually(t, "statuses", func() error {
			if n += s.Completions(all[n:]); n < ops {
				return fmt.Errorf("%d of %d", n, ops)
			}
			return nil
		})
		seen := map[uint64]bool{}
		for _, x := range all {
			if seen[x.Token] || x.Status != rds.Success && (here == there || x.Status != rds.Dropped) {
				t.Errorf("%+v", x)
			}
			seen[x.Token] = true
		}
	}
}

// descriptorsInFlight are processes that have not read what was sent to them with descriptors.
func descriptorsInFlight(t *testing.T, here, _ *host) func() {
	small := shm.Params{SubEntries: 256, EventEntries: 256, MaxMsgs: 256, MaxRx: 256, Slots: 64, Cells: 64, SendWindows: 1, RecvWindows: 1}
	hello := &ipc.Hello{Role: ipc.RoleClient, Name: "unread", Params: small}
	comer, alloc, ended := dialRawConn(t, here), dialRawConn(t, here), dialRawConn(t, here)
	for _, r := range []*rawConn{comer, alloc, ended} {
		r.asks(hello)
	}
	alloc.hears(&ipc.HelloOK{})
	alloc.asks(&ipc.Alloc{Size: 1 << 20})
	alloc.asks(&ipc.GrowSend{}) // waits until that answer is read
	for _, r := range []*rawConn{comer, alloc, ended} {
		r.awaits()
	}
	_ = ended.c.CloseWrite()
	return func() {
		comer.hears(&ipc.HelloOK{})
		comer.asks(&ipc.Addrs{})
		comer.hears(&ipc.AddrsOK{})
		alloc.hears(&ipc.AllocOK{})
		alloc.hears(&ipc.GrowSendOK{})
		ended.hears(&ipc.HelloOK{}) // what it was sent stays
	}
}

// awaits waits until an answer is there to be read.
func (r *rawConn) awaits() {
	r.t.Helper()
	raw, err := r.c.SyscallConn()
	if err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, "an answer", func() (err error) {
		_ = raw.Control(func(fd uintptr) {
			_, _, err = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		})
		return err
	})
}

// readersStopped are rdsctl that are stopped while they show what goes on, and clients of the
// metrics that do not read. A trace and a capture end, with the reason unless an answer was in the way.
func readersStopped(t *testing.T, here, _ *host) func() {
	var tools []*process
	file, metrics := t.TempDir()+"/x.pcapng", here.args[slices.Index(here.args, "-metrics-listen")+1]
	for _, args := range [][]string{{"trace", "-d", "1m"}, {"capture", "-w", file, "-d", "1m"}, {"events", "-f"}} {
		tools = append(tools, startProcess(t, nil, program("rdsctl"), append(args, "-socket", here.sock)...))
	}
	tools[0].saw("\n")
	tools[2].saw("up")
	eventually(t, "the capture", func() error { _, err := os.Stat(file); return err })
	for _, p := range tools {
		p.pause()
	}
	for i := range 20 {
		c, err := net.Dial("tcp", metrics)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.(*net.TCPConn).SetReadBuffer(1)
		fmt.Fprintf(c, "GET /metrics HTTP/1.1\r\n")
		if i%2 == 0 {
			fmt.Fprintf(c, "Host: x\r\n\r\n")
		}
	}
	return func() {
		for _, p := range tools {
			p.Resume()
		}
		for _, p := range tools[:2] {
			if code := p.wait(); code == 0 {
				t.Errorf("%v: status 0, %s", p.Cmd, p.log())
			}
			if n := here.logged("rdsctl ended"); n == 0 {
				contains(t, "rdsctl", p.log(), "the daemon is being replaced by a new one")
			}
		}
		tools[2].saw("upgrade done")
		tools[2].Kill()
	}
}

// manyProcesses are 32 processes with many sockets, half of which end when the upgrade begins.
func manyProcesses(t *testing.T, here, _ *host) func() {
	params := rds.Params{SubEntries: 64, EventEntries: 128, MaxMsgs: 64, MaxRx: 64, Slots: 16, Cells: 16, SendWindows: 1, RecvWindows: 1}
	var stay [][]*rds.Socket
	var leave []*rds.Client
	for i := range 32 {
		c := here.openWith(rds.Options{Params: params})
		var socks []*rds.Socket
		for range 16 {
			socks = append(socks, here.bind(c, 0))
		}
		if i%2 == 0 {
			stay = append(stay, socks)
			continue
		}
		leave = append(leave, c)
	}
	taken, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for looks := time.NewTicker(time.Millisecond); len(here.processes()) < 3; { // the successor is not there yet
			select {
			case <-looks.C:
				continue
			case <-taken:
			}
			break
		}
		for _, c := range leave {
			c.Close()
		}
	}()
	return func() {
		close(taken)
		<-over
		buf := make([]byte, 16)
		for i, socks := range stay {
			to := stay[(i+1)%len(stay)][i]
			if _, err := socks[15-i].SendTo([]byte("hello"), to.LocalAddrPort()); err != nil {
				t.Error(err)
			}
			if n, _, err := to.RecvFrom(buf); err != nil || string(buf[:n]) != "hello" {
				t.Errorf("%q, %v", buf[:n], err)
			}
		}
	}
}

// sealedMemory is a process that has sealed memory against writing which the daemon has mapped.
// That memory cannot be mapped anew.
func sealedMemory(t *testing.T, here, _ *host) func() {
	c := here.open()
	own := newMemfd(t, 1<<20)
	t.Cleanup(func() { unix.Close(own) })
	if err := unix.Ftruncate(own, 4096); !errors.Is(err, unix.EPERM) {
		t.Errorf("memory that can be imported was cut short: %v", err)
	}
	if _, err := c.Import(own, 0, 1<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(own), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE); err != nil {
		t.Fatal(err)
	}
	return func() {
		<-c.Done()
		contains(t, "the reason", c.Err().Error(), "sealed")
	}
}

// holedMemory is a process that has taken pages away from its rings and from memory that it has
// imported. Whether its session goes on is its own affair.
func holedMemory(t *testing.T, here, _ *host) func() {
	r, c := here.raw(), here.open()
	own := newMemfd(t, 8<<20)
	t.Cleanup(func() { unix.Close(own) })
	if _, err := c.Import(own, 0, 8<<20); err != nil {
		t.Fatal(err)
	}
	for fd, size := range map[int]int64{own: 8 << 20, r.fds[0]: int64(len(r.mem)), r.fds[4]: shm.WindowSize} {
		if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, size); err != nil {
			t.Fatal(err)
		}
	}
	return func() {}
}
