package librds

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/rdsd/rdsd/rds"
)

// option is the value of NAME=VALUE from word i on.
func (p *player) option(i int, name string) string {
	for ; i < len(p.w); i++ {
		if v, ok := strings.CutPrefix(p.w[i], name+"="); ok {
			return v
		}
	}
	return ""
}

// meant is the incarnation inc=N; inc=last is that of the last message's sender.
func (p *player) meant(i int) uint32 {
	inc := p.option(i, "inc")
	if inc == "last" {
		return p.lastInc
	}
	n, _ := strconv.ParseUint(inc, 0, 32)
	return uint32(n)
}

func (p *player) giveUp(i int) time.Duration {
	ms, _ := strconv.Atoi(p.option(i, "giveup"))
	return time.Duration(ms) * time.Millisecond
}

func (p *player) sendMsg() string {
	p.arm()
	m := rds.Message{Addr: p.to(), Payload: payload(p.w[3]), GiveUpAfter: p.giveUp(4), DstInc: p.meant(4)}
	if token := p.option(4, "notify"); token != "" {
		m.Notify = true
		m.Token, _ = strconv.ParseUint(token, 0, 64)
	}
	m.Traceparent = p.option(4, "trace")
	if p.option(4, "cookie") != "" {
		m.Cookie = p.regions[p.option(4, "cookie")].Cookie()
	}
	_, err := p.sock().Send(p.ctx(4), &m)
	return errorText(err)
}

func (p *player) two() string {
	flags := func(i int) (notify, silent bool) {
		f := p.w[11+i]
		return f == "notify" || f == "both", f == "silent" || f == "both"
	}
	op := &rds.RDMA{Write: true, Cookie: p.cookie(3), RemoteOff: uint64(p.number(4)), Token: 1,
		Local: []rds.Segment{{Buf: p.buf(5), Off: int(p.number(6)), Len: int(p.number(7))}}}
	op.Notify, op.Silent = flags(0)
	a := &rds.Atomic{Cookie: p.cookie(3), RemoteOff: uint64(p.number(8)), Add: uint64(p.number(9)), Token: 2,
		Local: rds.Segment{Buf: p.buf(5), Len: 8}}
	a.Notify, a.Silent = flags(1)
	m := rds.Message{Addr: p.to(), Op: op, Atomic: a, GiveUpAfter: p.giveUp(13), DstInc: p.meant(13)}
	if p.w[10] != "-" {
		m.Payload = []byte(p.w[10])
	}
	_, err := p.sock().Send(p.ctx(13), &m)
	return try(err, "op %d atomic %d", m.OpID, m.AtomicID)
}

func (p *player) masked() string {
	ctx, cancel := limit()
	defer cancel()
	a := p.atomicOf(p.w[3])
	m1, _ := strconv.ParseUint(p.w[8], 0, 64)
	if !a.CmpSwap {
		a.NoCarry = m1
	} else {
		a.CompareMask = m1
	}
	if p.w[9] != "-" {
		a.Masked = true
		a.SwapMask, _ = strconv.ParseUint(p.w[9], 0, 64)
	}
	old, err := p.sock().Atomic(ctx, p.addr(2), a)
	return try(err, "old %#x", old)
}

// reopen is rds_reopen: package rds has Options.Reopen for that, or a program opens anew.
func (p *player) reopen() string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(p.number(3))*time.Millisecond)
	defer cancel()
	old := p.clients[p.w[2]]
	if err := old.Err(); err == nil || errors.Is(err, rds.ErrClosed) {
		return "error EINVAL"
	}
	for {
		c, err := rds.Open(ctx, p.opened[p.w[2]])
		switch {
		case err == nil:
			p.clients[p.w[1]].Close()
			p.clients[p.w[1]], p.opened[p.w[1]] = c, p.opened[p.w[2]]
			return "ok"
		case ctx.Err() != nil:
			return "error ETIMEDOUT"
		case !errors.Is(err, rds.ErrNoDaemon) && !errors.Is(err, rds.ErrDaemonGone):
			return errorText(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// rebind is rds_rebind: a program binds anew, and sets what it had set.
func (p *player) rebind() string {
	name, was := p.w[1], p.w[3]
	old := p.socks[was]
	if old.Client().Err() == nil {
		return "error EINVAL"
	}
	s, err := p.clients[p.w[2]].Bind(old.LocalAddrPort())
	if err != nil {
		return errorText(err)
	}
	p.socks[name], p.remote[name] = s, p.remote[was]
	p.rcv[name], p.snd[name] = p.rcv[was], p.snd[was] // deadlines stay with the old one
	for _, option := range []string{"nonblock", "sndbuf", "rcvbuf", "lane", "anybody", "failunreachable", "congmonitor", "notices", "linger"} {
		n, set := p.options[was+option]
		if !set {
			continue
		}
		p.w = []string{"set", name, option, strconv.FormatInt(n, 10)}
		if text := p.set(); text != "ok" {
			return text
		}
	}
	return "ok"
}

// setNotices sets which kinds are queued, by the bits of RDS_OPT_NOTICES.
func setNotices(s *rds.Socket, bits int64) {
	var kinds []rds.NoticeKind
	for k := rds.Lost; k <= rds.NotGranted; k++ {
		if bits>>k&1 != 0 {
			kinds = append(kinds, k)
		}
	}
	s.SetNotices(kinds...)
}
