package daemon

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

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
		if err := unix.Fallocate(p.fds[0], 0, 0, int64(shm.SegmentSize(p.p))); err != nil { // else the session may end because of the holes
			p.t.Error(err)
		}
		shm.Ring(p.fds[2])
	}, "ring"},
	{"read-only memory mapped for writing", true, func(p *proc) {
		for _, i := range []int{1, 5} {
			if m, err := shm.MapFD(p.fds[i], 4096, true); err == nil {
				m.Close()
				p.t.Error("it can be written")
			}
		}
	}, ""},
	{"read-only memory opened again by the daemon's own user, and overwritten", true, func(p *proc) {
		for _, i := range []int{1, 5} {
			fd, err := p.reopened(i)
			if err != nil {
				p.t.Skip(err)
			}
			defer unix.Close(fd)
			if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096); err != nil {
				p.t.Error(err)
			}
			if _, err := unix.Pwrite(fd, bytes.Repeat([]byte{0xff}, 1<<16), 0); err != nil {
				p.t.Error(err)
			}
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
		g := p.call(&ipc.Register{Sock: p.sock, Buffer: b.Body.(*ipc.AllocOK).Buffer, Len: 8, Access: abi.RightRead}).Body.(*ipc.RegisterOK)
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
	if t.Failed() {
		return
	}
	eventually(t, "nothing is left", func() error {
		left := d.leftovers()
		if n := descriptors(); n > before {
			left = append(left, fmt.Sprintf("%d descriptors, %d before", n, before))
		}
		if len(left) > 0 {
			return fmt.Errorf("left: %q", left)
		}
		return nil
	})
}
