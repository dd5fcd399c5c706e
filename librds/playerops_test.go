package librds

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/rds"
)

func (p *player) buf(i int) *rds.Buffer { return p.bufs[p.arg(i)] }

func (p *player) alloc() string {
	b, err := p.clients[p.w[2]].Alloc(int(p.number(3)))
	if err == nil {
		p.bufs[p.w[1]] = b
	}
	return errorText(err)
}

func (p *player) importMemory() string {
	fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if p.w[4] != "file" {
		unix.Close(fd)
		if fd, err = unix.MemfdCreate("conformance", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err == nil {
			err = unix.Ftruncate(fd, p.number(3))
		}
		if err == nil {
			_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, int(p.number(4)))
		}
	}
	if err != nil {
		return err.Error()
	}
	defer unix.Close(fd)
	b, err := p.clients[p.w[2]].Import(fd, p.number(5), int(p.number(6)))
	if err == nil {
		p.bufs[p.w[1]] = b
	}
	return errorText(err)
}

func (p *player) poke() string {
	mem := p.buf(1).Bytes()
	if mem == nil {
		return "gone"
	}
	copy(mem[p.number(2):], payload(p.w[3]))
	return "ok"
}

func (p *player) show() string {
	mem := p.buf(1).Bytes()
	if mem == nil {
		return "gone"
	}
	return bytesText(mem[p.number(2):][:p.number(3)])
}

func (p *player) free() string { return errorText(p.buf(1).Free()) }

func (p *player) freeWait() string {
	ctx, cancel := limit()
	defer cancel()
	return errorText(p.buf(1).FreeWait(ctx))
}

func (p *player) register() string {
	r, err := p.socks[p.w[2]].Register(p.buf(3), int(p.number(4)), int(p.number(5)), rds.Access(p.number(6)))
	if err == nil {
		p.regions[p.w[1]] = r
	}
	return errorText(err)
}

func (p *player) expose() string {
	ctx, cancel := limit()
	defer cancel()
	if p.w[2] == "-" {
		return errorText(p.regions[p.w[1]].Expose(ctx, netip.AddrPortFrom(netip.IPv6Unspecified(), 0)))
	}
	return errorText(p.regions[p.w[1]].Expose(ctx, p.addr(2)))
}

func (p *player) release() string {
	ctx, cancel := limit()
	defer cancel()
	return errorText(p.regions[p.w[1]].Release(ctx))
}

// cookie is that of a region; a number is a cookie itself.
func (p *player) cookie(i int) rds.Cookie {
	if v, err := strconv.ParseUint(p.arg(i), 0, 64); err == nil {
		return rds.Cookie(v)
	}
	if r := p.regions[p.arg(i)]; r != nil {
		return r.Cookie()
	}
	return 0
}

func (p *player) sendCookie() string {
	_, err := p.sock().Send(p.ctx(len(p.w)), &rds.Message{Addr: p.to(), Payload: []byte(p.w[4]), Cookie: p.cookie(3)})
	return errorText(err)
}

func (p *player) sendFrom() string {
	_, err := p.sock().Send(p.ctx(len(p.w)), &rds.Message{Addr: p.to(), ZeroCopy: true, ZeroCopyCookie: uint32(p.number(6)),
		From: rds.Segment{Buf: p.buf(3), Off: int(p.number(4)), Len: int(p.number(5))}})
	return errorText(err)
}

func (p *player) zcDone() string {
	c := make([]uint32, 16)
	c = c[:p.sock().ZeroCopyDone(c)]
	text := fmt.Sprintf("%d:", len(c))
	for _, v := range c {
		text += fmt.Sprintf(" %d", v)
	}
	return text
}

func (p *player) rdma() string {
	count, off, n := int(p.number(9)), int(p.number(7)), int(p.number(8))
	var local []rds.Segment
	for i := range count {
		g := rds.Segment{Buf: p.buf(6), Off: off + i*(n/count), Len: n / count}
		if i == count-1 {
			g.Len = n - i*(n/count)
		}
		local = append(local, g)
	}
	op := &rds.RDMA{Write: p.w[3] != "read", Cookie: p.cookie(4), RemoteOff: uint64(p.number(5)), Local: local, Token: 77,
		Notify: p.has(11, "notify"), Report: p.has(11, "report"), Silent: p.has(11, "silent"),
		OwnerOnly: p.has(11, "owner")}
	m := rds.Message{Addr: p.to(), Op: op}
	if p.w[10] != "-" {
		m.Payload = []byte(p.w[10])
	}
	id, err := p.sock().Send(p.ctx(len(p.w)), &m)
	return try(err, "op %d", id)
}

func (p *player) atomicOf(kind string) *rds.Atomic {
	a := &rds.Atomic{CmpSwap: true, Cookie: p.cookie(4), RemoteOff: uint64(p.number(5)), Token: 88}
	if kind == "fadd" {
		a.CmpSwap, a.Add = false, uint64(p.number(6))
	} else {
		a.Compare, a.Swap = uint64(p.number(6)), uint64(p.number(7))
	}
	return a
}

func (p *player) atomic() string {
	a := p.atomicOf(p.w[3])
	a.Local = rds.Segment{Buf: p.buf(8), Off: int(p.number(9)), Len: int(p.number(10))}
	a.Notify, a.Report, a.Silent = p.has(11, "notify"), p.has(11, "report"), p.has(11, "silent")
	m := rds.Message{Addr: p.to(), Atomic: a}
	_, err := p.sock().Send(p.ctx(len(p.w)), &m)
	return try(err, "op %d", m.AtomicID)
}

func (p *player) transfer() string {
	ctx, cancel := limit()
	defer cancel()
	op := &rds.RDMA{Cookie: p.cookie(4), RemoteOff: uint64(p.number(5)), Local: []rds.Segment{{Buf: p.buf(6), Off: int(p.number(7)), Len: int(p.number(8))}},
		OwnerOnly: p.has(9, "owner")}
	if p.w[3] == "read" {
		return errorText(p.sock().RDMARead(ctx, p.addr(2), op))
	}
	return errorText(p.sock().RDMAWrite(ctx, p.addr(2), op))
}

func (p *player) synchronous(kind string) string {
	ctx, cancel := limit()
	defer cancel()
	old, err := p.sock().Atomic(ctx, p.addr(2), p.atomicOf(kind))
	return try(err, "old %d", old)
}

func (p *player) fadd() string { return p.synchronous("fadd") }
func (p *player) cas() string  { return p.synchronous("cas") }

func (p *player) hwm() string { return fmt.Sprint(p.sock().HWM(p.addr(2).Addr())) }

func (p *player) barrier() string {
	ctx, cancel := limit()
	defer cancel()
	_, err := p.sock().Barrier(ctx, p.addr(2).Addr(), uint64(p.number(3)))
	return errorText(err)
}

func (p *player) barrierAll() string {
	ctx, cancel := limit()
	defer cancel()
	return errorText(p.sock().BarrierAll(ctx))
}

func completionText(c rds.Completion) string {
	errno := "-"
	if c.Errno != 0 {
		errno = strings.TrimPrefix(errorText(c.Errno), "error ")
	}
	return fmt.Sprintf("token %d id %d %s %v %s", c.Token, c.ID, addrText(netip.AddrPortFrom(c.To, 0)), c.Status, errno)
}

func (p *player) waitOp() string {
	ctx, cancel := limit()
	defer cancel()
	c, err := p.sock().WaitOp(ctx, p.addr(2).Addr(), uint64(p.number(3)))
	if err != nil {
		return errorText(err)
	}
	return completionText(c)
}

func (p *player) completions() string {
	cs := make([]rds.Completion, 16)
	cs = cs[:p.sock().Completions(cs)]
	text := fmt.Sprintf("%d:", len(cs))
	for _, c := range cs {
		text += " " + completionText(c)
	}
	return text
}
