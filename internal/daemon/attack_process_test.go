package daemon

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// proc is a client over a control socket, with nothing of the library's between
// it and the daemon.
type proc struct {
	t    *testing.T
	d    *Daemon
	c    *net.UnixConn
	ctl  *ipc.Conn
	p    shm.Params
	fds  []int
	maps []*shm.Mapping
	seg  *shm.Segment
	sock uint32
	addr ipc.BindOK
	id   uint32 // of the last request
	msg  uint32
}

// dialRaw connects and says nothing.
func dialRaw(t *testing.T, d *Daemon) *proc {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: d.config().Socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	p := &proc{t: t, d: d, c: c}
	if p.ctl, err = ipc.NewConn(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p
}

// attached is a process with a socket, and slot 0 open to it.
func attached(t *testing.T, d *Daemon) *proc {
	t.Helper()
	p := dialRaw(t, d)
	m := p.call(&ipc.Hello{Role: ipc.RoleClient, Name: "hostile", Params: fewParams})
	p.p, p.fds = m.Body.(*ipc.HelloOK).Params, m.FDs
	seg, err := shm.MapFD(p.fds[0], shm.SegmentSize(p.p), true)
	if err != nil {
		t.Fatal(err)
	}
	p.maps = append(p.maps, seg)
	if p.seg, err = shm.OpenSegment(seg.Mem); err != nil {
		t.Fatal(err)
	}
	p.addr = *p.call(&ipc.Bind{Addr: d.config().Listen[0]}).Body.(*ipc.BindOK)
	p.sock = p.addr.Sock
	p.put(func(e *shm.Entry) {
		*e.SubDest() = shm.SubDest{Kind: shm.KindOpenDest, Sock: p.sock, Port: p.addr.Port, Addr: p.addr.Addr.As16(), Gen: 1}
	})
	return p
}

func (p *proc) close() {
	p.ctl.Close()
	for _, m := range p.maps {
		m.Close()
	}
	for _, fd := range p.fds {
		unix.Close(fd)
	}
	p.maps, p.fds = nil, nil
}

func (p *proc) put(fill func(*shm.Entry)) {
	fill(p.seg.SubProducer().Reserve())
	p.seg.SubProducer().Publish()
	shm.Ring(p.fds[2])
}

// call makes a request and takes the next frame for its answer.
func (p *proc) call(r ipc.Request) *ipc.Message {
	p.t.Helper()
	p.id++
	if err := p.ctl.Send(p.id, r); err != nil {
		p.t.Fatal(err)
	}
	p.ctl.SetReadDeadline(time.Now().Add(10 * time.Second))
	m, err := p.ctl.Recv()
	if err != nil {
		p.t.Fatalf("answer to %T: %v", r, err)
	}
	return m
}

// refused wants EPROTO.
func (p *proc) refused(r ipc.Request) {
	p.t.Helper()
	if e, ok := p.call(r).Body.(*ipc.Err); !ok || e.Errno != uint32(unix.EPROTO) {
		p.t.Errorf("%T: %+v", r, e)
	}
}

// ping sends a message to itself and reads it.
func (p *proc) ping() error {
	p.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindSend, Sock: p.sock, MsgID: p.msg % 200, Len: 8} })
	p.msg++
	var e shm.Entry
	for range 5000 {
		if ev := p.seg.EventConsumer(); ev.Next(&e) {
			ev.Release()
			p.seg.RecvRetProducer().Put(e.Event().RxID)
			p.seg.RecvRetProducer().Publish()
			shm.Ring(p.fds[2])
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return errors.New("no answer")
}

// write sends bytes as one packet, with descriptors.
func (p *proc) write(b []byte, fds ...int) {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	p.c.SetWriteDeadline(time.Now().Add(5 * time.Second))
	p.c.WriteMsgUnix(b, oob, nil) // the daemon may have closed by now
}

// reason reads until the end and returns what the daemon said last.
func (p *proc) reason() string {
	last := "nothing"
	p.ctl.SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		m, err := p.ctl.Recv()
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return "goes on"
			}
			return last
		}
		m.CloseFDs()
		last = fmt.Sprintf("%+v", m.Body)
	}
}

func rawFrame(typ, flags uint16, id uint32, body ...byte) []byte {
	b := binary.LittleEndian.AppendUint16(nil, typ)
	b = binary.LittleEndian.AppendUint16(b, flags)
	return append(binary.LittleEndian.AppendUint32(b, id), body...)
}

// never wants something the kernel must forbid.
func (p *proc) never(what string, err error) {
	p.t.Helper()
	if err == nil {
		p.t.Errorf("%s was possible", what)
	}
}

// reopened is one of its descriptors opened again, for reading and writing.
func (p *proc) reopened(i int) (int, error) {
	return unix.Open(fmt.Sprintf("/proc/self/fd/%d", p.fds[i]), unix.O_RDWR|unix.O_NONBLOCK, 0)
}

type processAttack struct {
	name  string
	hello bool // by an attached process, not a new connection
	do    func(*proc)
	end   string // as attack.end; "closed": without a word
}

var processAttacks = []processAttack{
	{"memory truncated and grown", true, func(p *proc) {
		for _, i := range []int{0, 1, 4, 5} {
			for _, size := range []int64{0, 4096, 1 << 30} {
				p.never("a new size", unix.Ftruncate(p.fds[i], size))
			}
		}
	}, ""},
	{"a buffer truncated", true, func(p *proc) {
		m := p.call(&ipc.Alloc{Size: 4096})
		p.never("a new size", unix.Ftruncate(m.FDs[0], 0))
		m.CloseFDs()
	}, ""},
	{"holes punched into what is the daemon's", true, func(p *proc) {
		for _, i := range []int{1, 5} {
			p.never("a hole", unix.Fallocate(p.fds[i], unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096))
		}
	}, ""},
	{"holes punched into its own rings", true, func(p *proc) {
		if err := p.ping(); err != nil { // so that there is an index to go back
			p.t.Error(err)
		}
		if err := unix.Fallocate(p.fds[0], unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 1<<20); err != nil {
			p.t.Skip(err)
		}
		shm.Ring(p.fds[2])
	}, "ring"},
	{"read-only memory mapped for writing", true, func(p *proc) {
		for _, i := range []int{1, 5} {
			if m, err := shm.MapFD(p.fds[i], 4096, true); err == nil {
				m.Close()
				p.t.Error("it can be written")
			}
			fd, err := p.reopened(i)
			if err != nil {
				continue
			}
			_, err = unix.Pwrite(fd, []byte{1}, 0)
			p.never("a write", err)
			_, err = unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			p.never("a mapping", err)
			unix.Close(fd)
		}
	}, ""},
	{"seals of its own", true, func(p *proc) {
		for _, i := range []int{0, 1, 4, 5} {
			_, err := unix.FcntlInt(uintptr(p.fds[i]), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
			p.never("a seal", err)
		}
	}, ""},
	{"the doorbell filled, and made to block", true, func(p *proc) {
		b := make([]byte, 4096)
		for {
			if _, err := unix.Write(p.fds[2], b); err != nil {
				break
			}
		}
		unix.SetNonblock(p.fds[2], false)
	}, ""},
	{"its own doorbell filled from the wrong end", true, func(p *proc) {
		fd, err := p.reopened(3)
		if err != nil {
			p.t.Skip(err)
		}
		defer unix.Close(fd)
		for b := make([]byte, 4096); err == nil; {
			_, err = unix.Write(fd, b)
		}
		p.seg.ClientAsleep().Store(1)
		p.ping()
	}, ""},
	{"doorbells closed", true, func(p *proc) {
		unix.Close(p.fds[3])
		p.fds[3] = -1
		p.seg.ClientAsleep().Store(1)
		p.ping()
		unix.Close(p.fds[2])
		p.fds[2] = -1
	}, ""},
	{"the control socket closed, the rings still used", true, func(p *proc) {
		p.ctl.Close()
		for range 100 {
			if e := p.seg.SubProducer().Reserve(); e != nil {
				*e.Sub() = shm.Sub{Kind: shm.KindSend, Sock: p.sock, MsgID: p.msg, Len: 8}
				p.seg.SubProducer().Publish()
				p.msg++
			}
			shm.Ring(p.fds[2])
		}
	}, "closed"},
	{"one direction of the control socket closed", true, func(p *proc) { p.c.CloseWrite() }, "closed"},
	{"descriptors with a request", true, func(p *proc) {
		p.write(ipc.AppendFrame(nil, 9, &ipc.GrowSend{}), 0, 1, 2, p.fds[0])
	}, "closed"},
	{"253 descriptors", true, func(p *proc) {
		fds := make([]int, ipc.MaxFDs)
		for i := range fds {
			fds[i] = p.fds[0]
		}
		p.write(ipc.AppendFrame(nil, 9, &ipc.GrowSend{}), fds...)
	}, "closed"},
	{"the control socket sent through itself", true, func(p *proc) {
		f, err := p.c.File()
		if err != nil {
			p.t.Fatal(err)
		}
		defer f.Close()
		for range 5 {
			p.write(rawFrame(14, 0, 9), int(f.Fd()))
		}
	}, "closed"},
	{"a second Hello", true, func(p *proc) { p.refused(&ipc.Hello{Role: ipc.RoleClient}) }, ""},
	{"answers instead of requests", true, func(p *proc) { p.write(ipc.AppendFrame(nil, 9, &ipc.OK{})) }, "closed"},
	{"a goodbye to the daemon", true, func(p *proc) { p.write(ipc.AppendFrame(nil, 0, &ipc.Goodbye{Text: "bye"})) }, "closed"},
	{"an unknown request", true, func(p *proc) { p.write(rawFrame(999, 0, 9)) }, "closed"},
	{"a request with the daemon's id", true, func(p *proc) { p.write(ipc.AppendFrame(nil, 0, &ipc.GrowSend{})) }, "closed"},
	{"a request with flags", true, func(p *proc) { p.write(rawFrame(14, 0xfffe, 9)) }, "closed"},
	{"a request cut short", true, func(p *proc) { p.write(rawFrame(5, 0, 9, 1, 2)) }, "closed"},
	{"a request and more", true, func(p *proc) { p.write(rawFrame(5, 0, 9, 1, 2, 3, 4, 5)) }, "closed"},
	{"an empty packet", true, func(p *proc) { p.write(nil, p.fds[0]) }, "closed"},
	{"a frame longer than any", true, func(p *proc) { p.write(make([]byte, ipc.MaxFrame+1)) }, "closed"},
	{"an rdsctl's question of a client", true, func(p *proc) { p.refused(&ipc.Ctl{JSON: []byte("{}")}) }, ""},
	{"requests whose answers it does not read", true, func(p *proc) {
		for i := range uint32(300) {
			p.write(ipc.AppendFrame(nil, 10+i, &ipc.SetRcvBuf{Sock: 1 << 30, Bytes: 1}))
			if i > 200 {
				break
			}
		}
		p.ctl.Close()
	}, "closed"},
	{"a thousand releases of one region", true, func(p *proc) {
		b := p.call(&ipc.Alloc{Size: 4096})
		b.CloseFDs()
		g := p.call(&ipc.Register{Sock: p.sock, Buffer: b.Body.(*ipc.AllocOK).Buffer, Len: 8, Access: ipc.AccessRead}).Body.(*ipc.RegisterOK)
		for range 1000 {
			p.call(&ipc.Release{Region: g.Region})
		}
	}, ""},
	{"a request before Hello", false, func(p *proc) { p.write(ipc.AppendFrame(nil, 1, &ipc.Bind{Addr: p.d.config().Listen[0]})) }, "closed"},
	{"garbage before Hello", false, func(p *proc) { p.write([]byte("GET / HTTP/1.1\r\n\r\n")) }, "closed"},
	{"Hello in the role of nobody", false, func(p *proc) { p.write(ipc.AppendFrame(nil, 1, &ipc.Hello{Role: 77})) }, "unknown role"},
	{"Hello for everything there is", false, func(p *proc) {
		h := &ipc.Hello{Role: ipc.RoleClient, Params: shm.DefaultParams()}
		h.Params.SendWindows = 1 << 30
		p.write(ipc.AppendFrame(nil, 1, h))
	}, "want 1 to 1024"},
	{"Hello with rings of odd sizes", false, func(p *proc) {
		h := &ipc.Hello{Role: ipc.RoleClient, Params: shm.DefaultParams()}
		h.Params.MaxMsgs = 12345
		p.write(ipc.AppendFrame(nil, 1, h))
	}, "power of two"},
	{"Hello of a later version", false, func(p *proc) {
		p.write(ipc.AppendFrame(nil, 1, &ipc.Hello{Role: ipc.RoleClient, Version: 999})[:16])
	}, "version 999"},
	{"an rdsctl that binds", false, func(p *proc) {
		p.call(&ipc.Hello{Role: ipc.RoleCtl})
		p.write(ipc.AppendFrame(nil, 9, &ipc.Bind{Addr: p.d.config().Listen[0]}))
	}, "closed"},
	{"JSON without end", false, func(p *proc) {
		p.call(&ipc.Hello{Role: ipc.RoleCtl})
		for range 3 {
			p.call(&ipc.Ctl{JSON: []byte(strings.Repeat(`{"a":[`, 10_000))})
		}
		p.ctl.Close()
	}, "closed"},
}

// TestProcessAttacks is TestAttacks for what needs a control socket and
// descriptors, on one daemon that goes on through all of it.
func TestProcessAttacks(t *testing.T) {
	d := startDaemon(t, nil)
	letDescriptorsIn(t, d)
	descriptors := func() int {
		e, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(e)
	}
	before := descriptors()
	victim := attached(t, d)
	t.Logf("%d attacks", len(processAttacks))
	for _, x := range processAttacks {
		t.Run(x.name, func(t *testing.T) {
			p := dialRaw
			if x.hello {
				p = attached
			}
			a := p(t, d)
			x.do(a)
			switch {
			case x.end == "":
				if m := a.call(&ipc.SetRcvBuf{Sock: a.sock, Bytes: 4096}); m.Body.Type() != (&ipc.OK{}).Type() {
					t.Errorf("its session: %+v", m.Body)
				}
			case x.end == "closed":
				if why := a.reason(); why == "goes on" {
					t.Error("its session goes on")
				}
			default:
				if why := a.reason(); !strings.Contains(why, x.end) {
					t.Errorf("the last word was %q, want %q", why, x.end)
				}
			}
			if err := victim.ping(); err != nil {
				t.Errorf("another client: %v", err)
			}
			a.close()
		})
	}
	victim.close()
	for range 500 {
		left := d.leftovers()
		if n := descriptors(); n > before {
			left = append(left, fmt.Sprintf("%d descriptors, %d before", n, before))
		}
		if len(left) == 0 {
			return
		}
		if t.Failed() {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("left: %q, %d descriptors, %d before", d.leftovers(), descriptors(), before)
}

// leftovers is Engine.Leaks of a daemon that runs.
func (d *Daemon) leftovers() (left []string) {
	if err := d.ask(context.Background(), func() { left = engine.Leaks(d.e) }); err != nil {
		left = append(left, err.Error())
	}
	return left
}
