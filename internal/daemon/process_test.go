package daemon

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
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
	t    testing.TB
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
func dialRaw(t testing.TB, d *Daemon) *proc {
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
func attached(t testing.TB, d *Daemon) *proc {
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
	p.ctl.SetReadDeadline(time.Now().Add(patience))
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
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ev := p.seg.EventConsumer(); ev.Next(&e) {
			ev.Release()
			p.seg.RecvRetProducer().Put(e.Event().RxID)
			p.seg.RecvRetProducer().Publish()
			shm.Ring(p.fds[2])
			return nil
		}
	}
	return errors.New("no answer")
}

// write sends bytes as one packet, with descriptors.
func (p *proc) write(b []byte, fds ...int) {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	p.c.SetWriteDeadline(time.Now().Add(patience))
	p.c.WriteMsgUnix(b, oob, nil) // the daemon may have closed by now
}

// reason reads until the end and returns what the daemon said last.
func (p *proc) reason() string {
	last := "nothing"
	p.ctl.SetReadDeadline(time.Now().Add(patience))
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

// leftovers is Engine.Leaks of a daemon that runs.
func (d *Daemon) leftovers() (left []string) {
	if err := d.loop.ask(context.Background(), func() { left = engine.Leaks(d.engine) }); err != nil {
		left = append(left, err.Error())
	}
	return left
}
