package librds

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/krds"
	"github.com/rdsd/rdsd/rds"
)

// commands are the commands of a script, by name. tests/driver.c has the same.
var commands = map[string]func(p *player) string{
	"open": (*player).open, "error": (*player).clientError, "closeclient": (*player).closeClient, "bind": (*player).bind,
	"local": (*player).local, "addrs": (*player).addrs, "connect": (*player).connect, "close": (*player).close, "closewait": (*player).closeWait,
	"set": (*player).set, "get": (*player).get, "send": (*player).send, "fill": (*player).fill, "sendmsgs": (*player).sendMsgs,
	"recv": (*player).recv, "recvall": (*player).recvAll, "drain": (*player).drain, "cancel": (*player).cancel, "closedest": (*player).closeDest,
	"alloc": (*player).alloc, "import": (*player).importMemory, "poke": (*player).poke, "show": (*player).show, "free": (*player).free, "freewait": (*player).freeWait,
	"register": (*player).register, "expose": (*player).expose, "release": (*player).release, "sendcookie": (*player).sendCookie,
	"sendfrom": (*player).sendFrom, "zcdone": (*player).zcDone, "rdma": (*player).rdma, "atomic": (*player).atomic,
	"transfer": (*player).transfer, "fadd": (*player).fadd, "cas": (*player).cas, "hwm": (*player).hwm, "barrier": (*player).barrier,
	"barrierall": (*player).barrierAll, "waitop": (*player).waitOp, "completions": (*player).completions, "notices": (*player).notices,
	"cong": (*player).cong, "wait": (*player).wait, "pollset": (*player).pollSet, "polled": (*player).polled, "fd": (*player).fd,
	"sendmsg": (*player).sendMsg, "two": (*player).two, "masked": (*player).masked, "reopen": (*player).reopen, "rebind": (*player).rebind,
	"refusal": func(p *player) string { return p.refused },
}

func (p *player) open() string {
	ctx, cancel := limit()
	defer cancel()
	o := rds.Options{Socket: p.w[2], Params: rds.Params{Slots: uint32(p.number(3))}}
	c, err := rds.Open(ctx, o)
	if err == nil {
		p.clients[p.w[1]], p.opened[p.w[1]] = c, o
	}
	return errorText(err)
}

func (p *player) clientError() string {
	c := p.clients[p.w[1]]
	if p.number(2) != 0 {
		select {
		case <-c.Done():
		case <-time.After(10 * time.Second):
		}
	}
	return errorText(c.Err())
}

func (p *player) closeClient() string { return errorText(p.clients[p.w[1]].Close()) }

func (p *player) bind() string {
	s, err := p.clients[p.w[2]].Bind(p.addr(3))
	p.refused = ""
	if e := (*ipc.Err)(nil); errors.As(err, &e) {
		p.refused = e.Text
	}
	if err == nil {
		p.socks[p.w[1]] = s
		p.rcv[p.w[1]], p.snd[p.w[1]] = 10*time.Second, 0 // a message that does not come is an answer, too
	}
	return errorText(err)
}

func (p *player) addrs() string {
	addrs, err := p.clients[p.w[1]].Addrs()
	text := ""
	for _, a := range addrs {
		text += " " + addrText(netip.AddrPortFrom(a, 0))
	}
	return try(err, "%s", text)
}

func (p *player) local() string { return addrText(p.sock().LocalAddrPort()) }

// connect has the answers that rds_connect gives: package rds does not connect.
func (p *player) connect() string {
	a := p.addr(2)
	switch ip := a.Addr(); {
	case ip.IsUnspecified():
		return "error EDESTADDRREQ"
	case ip.IsMulticast(), ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "error EINVAL"
	case ip.Is4() != p.sock().LocalAddrPort().Addr().Is4():
		return "error EOPNOTSUPP"
	}
	p.remote[p.w[1]] = a
	return "ok"
}

func (p *player) close() string {
	ms := p.options[p.w[1]+"linger"]
	if ms <= 0 {
		return errorText(p.sock().Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(ms)*time.Millisecond)
	defer cancel()
	return errorText(p.sock().CloseWait(ctx))
}

func (p *player) closeWait() string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(p.number(2))*time.Millisecond)
	defer cancel()
	err := p.sock().CloseWait(ctx)
	p.refused = ""
	if err != nil && strings.Contains(err.Error(), "not delivered") { // librds says the first of them
		_, p.refused, _ = strings.Cut(strings.Split(err.Error(), "\n")[0], ": ")
	}
	return errorText(err)
}

func (p *player) set() string {
	s, n := p.sock(), p.number(3)
	ms := time.Duration(n) * time.Millisecond
	var err error
	switch p.w[2] {
	case "sndbuf":
		err = s.SetSndBuf(int(n))
	case "rcvbuf":
		err = s.SetRcvBuf(int(n))
	case "sndtimeo":
		p.snd[p.w[1]] = ms
	case "rcvtimeo":
		p.rcv[p.w[1]] = ms
	case "lane":
		err = s.SetLane(uint8(n))
	case "anybody":
		err = s.SetAnybody(n != 0)
	case "failunreachable":
		s.SetFailUnreachable(n != 0)
	case "congmonitor":
		krds.Of(s).SetCongMonitor(n != 0)
	case "notices":
		setNotices(s, n)
	case "linger":
		if n < 0 {
			err = syscall.EINVAL
		}
	}
	if err == nil {
		p.options[p.w[1]+p.w[2]] = n
	}
	return errorText(err)
}

func (p *player) get() string {
	n, set := p.options[p.w[1]+p.w[2]]
	if !set && (p.w[2] == "sndbuf" || p.w[2] == "rcvbuf") {
		n = 512 << 10
	}
	return fmt.Sprint(n)
}

func (p *player) send() string {
	p.arm()
	m := rds.Message{Addr: p.to(), Payload: payload(p.w[3])}
	if !m.Addr.IsValid() {
		return "error ENOTCONN"
	}
	_, err := p.sock().Send(p.ctx(4), &m)
	return try(err, "%d", len(m.Payload))
}

func (p *player) fill() string {
	m := rds.Message{Addr: p.addr(2), Payload: payload(p.w[3])}
	for range 100000 {
		_, err := p.sock().Send(rds.DontWait, &m)
		switch {
		case errors.Is(err, rds.ErrWouldBlock):
			time.Sleep(time.Millisecond)
		case err != nil:
			return errorText(err)
		}
	}
	return "not congested"
}

func (p *player) sendMsgs() string {
	p.arm()
	var ms []rds.Message
	for _, w := range p.w[3:] {
		ms = append(ms, rds.Message{Addr: p.to(), Payload: payload(w)})
	}
	n, err := p.sock().SendBatch(p.ctx(len(p.w)), ms)
	if n > 0 {
		err = nil // as sendmmsg
	}
	return try(err, "%d", n)
}

func (p *player) recv() string {
	p.arm()
	size := p.number(2)
	if size == 0 {
		size = 2 << 20
	}
	m := rds.Received{Payload: make([]byte, size)}
	var err error
	if !p.has(2, "peek") {
		err = p.sock().Recv(p.ctx(2), &m)
	} else if _, err = p.sock().Wait(p.ctx(2), rds.WaitSet{Message: true}); err == nil {
		_, err = krds.Of(p.sock()).Recv(&m, true)
	}
	if err != nil {
		return errorText(err)
	}
	p.lastInc = m.SrcInc
	return msgText(&m)
}

func (p *player) recvAll() string {
	p.arm()
	text := ""
	for want := int(p.number(2)); want > 0; {
		ms := make([]rds.Received, min(want, 64))
		for i := range ms {
			ms[i].Payload = make([]byte, 4096)
		}
		n, err := p.sock().RecvBatch(p.ctx(len(p.w)), ms)
		if err != nil {
			return text + errorText(err)
		}
		for i := range n {
			text += msgText(&ms[i])
		}
		want -= n
	}
	return text
}

func (p *player) drain() string {
	m := rds.Received{Payload: make([]byte, 1<<20)}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		_, err := p.sock().Wait(ctx, rds.WaitSet{Message: true})
		cancel()
		if err != nil || p.sock().Recv(rds.DontWait, &m) != nil {
			return "ok"
		}
	}
}

func (p *player) cancel() string    { return errorText(p.sock().CancelSentTo(p.addr(2))) }
func (p *player) closeDest() string { return errorText(p.sock().CloseDest(p.addr(2))) }

func (p *player) notices() string {
	ns := make([]rds.Notice, 16)
	ns = ns[:p.sock().Notices(ns)]
	text := fmt.Sprintf("%d:", len(ns))
	for _, n := range ns {
		text += fmt.Sprintf(" %v %s %d reason %d", n.Kind, addrText(n.To), n.Count, uint8(n.Reason))
	}
	return text
}

func (p *player) cong() string { return fmt.Sprintf("%#x", krds.Of(p.sock()).CongUpdates()) }
