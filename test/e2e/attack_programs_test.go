package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/rds"
	"golang.org/x/sys/unix"
)

// roleAttacker is a client process of another user that harms the victim as well as it can. The
// role goes on with a struct attacker.
const roleAttacker = "attacker "

// attacker is what an attacking process is told.
type attacker struct {
	parties
	Program string
	Metrics string       // metrics.listen of the first host
	Peers   []netip.Addr // addresses of peers that are no daemons

	kept []*ipc.Conn // stay open
}

// programs are what attackers do, until they are killed. They call begun when they have begun. A
// refusal is no failure: the program tries again. A program that has got what it must not have
// returns an error that says so.
var programs = map[string]func(a *attacker) error{
	"compute": (*attacker).computes,
	"unread":  (*attacker).readsNoAnswers,
	"holes":   (*attacker).punches,
	"freed":   (*attacker).keepsFreed,
	"fill":    (*attacker).fillsHoles,
	"metrics": (*attacker).pipelines,
	"hellos":  (*attacker).asksForMuch,
	"places":  (*attacker).takesPlaces,
	"connect": (*attacker).connects,
	"lanes":   (*attacker).opensLanes,
	"copies":  (*attacker).copies,
	"kept":    (*attacker).sendsToFull,
	"asks":    (*attacker).asksAndReadsNot,
	"logs":    (*attacker).writesLogs,
}

func attackerMain(what string) int {
	var a attacker
	err := json.Unmarshal([]byte(what), &a)
	if err == nil {
		err = programs[a.Program](&a)
	}
	fmt.Println("failed", err)
	bufio.NewReader(os.Stdin).ReadByte() // it is killed
	return 1
}

// begun tells the test that the attack goes on.
func begun() { fmt.Println("attacks") }

// few are the parameters of a process that needs little.
var few = shm.Params{SubEntries: 256, EventEntries: 256, MaxMsgs: 256, MaxRx: 256, Slots: 64, Cells: 64, SendWindows: 1, RecvWindows: 1}

func (a *attacker) open(at int) (*rds.Client, error) {
	return rds.Open(context.Background(), rds.Options{Socket: a.Sockets[at], Params: rds.Params(few)})
}

// pair is two sockets of one process at the first host, and memory of one that the other may use.
type pair struct {
	c      *rds.Client
	s, to  *rds.Socket
	buf    *rds.Buffer
	cookie rds.Cookie
}

func (a *attacker) pair(size int) (*pair, error) {
	c, err := a.open(0)
	if err != nil {
		return nil, err
	}
	p := &pair{c: c}
	if p.s, err = c.Bind(a.Addrs[0]); err != nil {
		return nil, err
	}
	if p.to, err = c.Bind(a.Addrs[0]); err != nil {
		return nil, err
	}
	if p.buf, err = c.Alloc(size); err != nil {
		return nil, err
	}
	p.cookie, err = grants(p.to, p.buf, a.Addrs[0].Addr())
	return p, err
}

// grants lets all sockets of a host write into b, memory of s's process.
func grants(s *rds.Socket, b *rds.Buffer, to netip.Addr) (rds.Cookie, error) {
	r, err := s.Register(b, 0, len(b.Bytes()), rds.AllowWrite)
	if err != nil {
		return 0, err
	}
	return r.Cookie(), r.Expose(context.Background(), netip.AddrPortFrom(to, 0))
}

// write is a message that writes n bytes from off into the same place.
func (p *pair) write(off, n int) *rds.Message {
	return &rds.Message{Addr: p.to.LocalAddrPort(), Op: &rds.RDMA{Write: true, Cookie: p.cookie, RemoteOff: uint64(off),
		Local: []rds.Segment{{Buf: p.buf, Off: off, Len: n}}, Silent: true}}
}

// dials is a control connection without the library.
func (a *attacker) dials() (*net.UnixConn, *ipc.Conn, error) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: a.Sockets[0], Net: "unixpacket"})
	if err != nil {
		return nil, nil, err
	}
	conn, err := ipc.NewConn(c)
	return c, conn, err
}

// computes needs the processors and nothing of the daemon's.
func (a *attacker) computes() error {
	var n atomic.Uint64
	count := func() {
		for {
			n.Add(1)
		}
	}
	go count()
	begun()
	count()
	return nil
}

// readsNoAnswers says Hello, asks for a number of buffers, reads no answer and has its session ended
// by a bad frame. The connections stay, and with them the descriptors on their way.
func (a *attacker) readsNoAnswers() error {
	begun()
	for {
		u, c, err := a.dials()
		if err != nil {
			continue
		}
		a.kept = append(a.kept, c)
		_ = c.Send(1, &ipc.Hello{Role: ipc.RoleClient, Params: few})
		time.Sleep(10 * time.Millisecond) // so that it has the answer when the next request comes
		for i := range uint32(260) {
			_ = u.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
			if _, err := u.Write(ipc.AppendFrame(nil, 2+i, &ipc.Alloc{Size: 4096})); err != nil {
				break
			}
		}
		_, _ = u.Write([]byte{1, 2, 3})
	}
}

// punches takes the pages of a buffer away while the daemon copies within it. When the session ends
// it goes on with the next one.
func (a *attacker) punches() error {
	const size, piece = 32 << 20, 1 << 20
	var all []*pair
	for range 8 {
		p, err := a.pair(size)
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	begun()
	for _, p := range all {
		var over atomic.Bool
		go func() {
			for !over.Load() {
				_ = unix.Madvise(p.buf.Bytes(), unix.MADV_REMOVE)
			}
		}()
		for off := 0; p.c.Err() == nil; off = (off + piece) % size {
			_, _ = p.s.Send(context.Background(), p.write(off, piece))
		}
		over.Store(true)
	}
	for {
		_, _ = a.pair(size) // refused for a while
		time.Sleep(time.Millisecond)
	}
}

// keepsFreed keeps memory mapped that it has freed. It has won if that memory has pages.
func (a *attacker) keepsFreed() error {
	const size = 64 << 20
	c, err := ipc.Dial(context.Background(), a.Sockets[0])
	if err != nil {
		return err
	}
	if _, _, err := c.Call(&ipc.Hello{Role: ipc.RoleClient, Params: few}, nil); err != nil {
		return err
	}
	begun()
	for kept := []*shm.Mapping(nil); ; {
		r, fds, err := c.Call(&ipc.Alloc{Size: size}, nil)
		if err != nil {
			time.Sleep(time.Millisecond) // a quota
			continue
		}
		m, err := shm.MapFD(fds[0], size, true)
		if err != nil {
			return err
		}
		kept = append(kept, m)
		if _, _, err := c.Call(&ipc.Free{Buffer: r.(*ipc.AllocOK).Buffer, Wait: 1}, nil); err != nil {
			return err
		}
		if err := emptied(fds[0]); err != nil {
			return err
		}
		unix.Close(fds[0])
		if len(kept) == 200 {
			for _, m := range kept {
				m.Close()
			}
			kept = nil
		}
	}
}

// emptied waits until a memory file has no pages.
func emptied(fd int) error {
	var st unix.Stat_t
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if err := unix.Fstat(fd, &st); err != nil || st.Blocks == 0 {
			return err
		}
	}
	return fmt.Errorf("a freed buffer has %d blocks", st.Blocks)
}

// fillsHoles takes the pages of all its memory away, and then has the daemon write into it.
func (a *attacker) fillsHoles() error {
	const size, piece = 30 << 20, 1 << 20
	c, err := a.open(0)
	for ; err != nil; c, err = a.open(0) {
		time.Sleep(time.Millisecond) // not admitted
	}
	s, err := c.Bind(a.Addrs[0])
	if err != nil {
		return err
	}
	var all []*pair
	for range 24 {
		b, err := c.Alloc(size)
		if err != nil {
			break // the cgroup has no more
		}
		cookie, err := grants(s, b, a.Addrs[0].Addr())
		if err != nil {
			return err
		}
		all = append(all, &pair{c, s, s, b, cookie})
	}
	for _, p := range all {
		if err := unix.Madvise(p.buf.Bytes(), unix.MADV_REMOVE); err != nil {
			return err
		}
	}
	begun()
	for off := 0; ; off = (off + piece) % size {
		for _, p := range all {
			if _, err := s.Send(context.Background(), p.write(off, piece)); err != nil {
				select {} // its session has ended
			}
		}
	}
}

// asksForMuch has eight processes attach with as much shared memory as they get, again and again.
func (a *attacker) asksForMuch() error {
	big := few
	big.SendWindows, big.RecvWindows = 64, 64 // 512 MiB
	for range 8 {
		go func() {
			for {
				_, c, err := a.dials()
				if err != nil {
					continue
				}
				if c.Send(1, &ipc.Hello{Role: ipc.RoleClient, Params: big}) == nil {
					if m, err := c.Recv(); err == nil {
						m.CloseFDs()
					}
				}
				c.Close()
			}
		}()
	}
	begun()
	select {}
}

// copies queues as many operations of 256 MiB within the host as it may.
func (a *attacker) copies() error {
	p, err := a.pair(256 << 20)
	if err != nil {
		return err
	}
	begun()
	for {
		if _, err := p.s.Send(context.Background(), p.write(0, len(p.buf.Bytes()))); err != nil {
			return err
		}
	}
}

// sendsToFull sends operations to a port of the other host that refuses messages, and then reads
// all of them at once, again and again.
func (a *attacker) sendsToFull() error {
	const size = 64 << 10
	p, err := a.pair(size)
	if err != nil {
		return err
	}
	there, err := a.open(1)
	if err != nil {
		return err
	}
	full, err := there.Bind(a.Addrs[1])
	if err != nil {
		return err
	}
	b, err := there.Alloc(size)
	if err != nil {
		return err
	}
	if p.cookie, err = grants(full, b, a.Addrs[0].Addr()); err != nil {
		return err
	}
	if err := full.SetRcvBuf(4096); err != nil {
		return err
	}
	p.to = full
	var senders []*rds.Socket
	for range 24 {
		s, err := p.c.Bind(a.Addrs[0])
		if err != nil {
			return err
		}
		senders = append(senders, s)
	}
	begun()
	for {
		for range 10 {
			for _, s := range senders {
				m := p.write(0, size)
				m.Payload, m.Op.Silent = make([]byte, 1000), false
				_, _ = s.Send(rds.DontWait, m)
			}
		}
		time.Sleep(20 * time.Millisecond)
		for range 100 {
			if err := full.Recv(rds.DontWait, &rds.Received{}); err != nil {
				time.Sleep(time.Millisecond)
			}
		}
	}
}
