package librds

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/krds"
	"github.com/rdsd/rdsd/rds"
)

// until reads conditions from word i on: NAME or NAME=ADDR or NAME=ADDR/ID.
func (p *player) until(i int) rds.WaitSet {
	var w rds.WaitSet
	for _, c := range p.w[i:] {
		name, arg, _ := strings.Cut(c, "=")
		at, id, _ := strings.Cut(arg, "/")
		var to netip.AddrPort
		if at != "" {
			to = netip.MustParseAddrPort(at)
		}
		n, _ := strconv.ParseUint(id, 0, 64)
		switch op := (rds.OpRef{Addr: to.Addr(), ID: n}); name {
		case "message":
			w.Message = true
		case "space":
			w.SendSpace = true
		case "sendto":
			w.SendTo = append(w.SendTo, to)
		case "completion":
			w.Completion = true
		case "notice":
			w.Notice = true
		case "zerocopy":
			w.ZeroCopy = true
		case "congestion":
			*krds.Congestion(&w) = true
		case "op":
			w.Op = append(w.Op, op)
		case "status":
			w.Status = append(w.Status, op)
		case "relief":
			w.Relief = append(w.Relief, to)
		}
	}
	return w
}

// readyText names the conditions that hold, in the order of the set that was asked for.
func readyText(asked []string, w rds.WaitSet) string {
	holds := map[string]int{"sendto": len(w.SendTo), "op": len(w.Op), "status": len(w.Status), "relief": len(w.Relief)}
	for name, on := range map[string]bool{"message": w.Message, "space": w.SendSpace, "completion": w.Completion, "notice": w.Notice,
		"zerocopy": w.ZeroCopy, "congestion": *krds.Congestion(&w)} {
		if on {
			holds[name] = 1
		}
	}
	text := "ready:"
	for _, c := range asked {
		name, _, _ := strings.Cut(c, "=")
		if holds[name] > 0 {
			text += " " + name
		}
	}
	return text
}

func (p *player) wait() string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(p.number(2))*time.Millisecond)
	defer cancel()
	got, err := p.sock().Wait(ctx, p.until(3))
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return errorText(err)
	}
	return readyText(p.w[3:], got)
}

// takeables is the poll set of a new socket, in the order of rds.h.
var takeables = []string{"message", "completion", "notice", "zerocopy", "congestion"}

// poll is what a socket is polled for, and the descriptor, which rds_fd returns by itself.
type poll struct {
	set rds.WaitSet
	fd  int
}

func (p *player) pollSet() string {
	set := p.until(2)
	fd, err := p.sock().PollFD(set)
	if err == nil {
		p.polls[p.w[1]] = poll{set, fd}
	}
	return errorText(err)
}

// polling is the poll of the socket. If there is none yet, it is that of a new socket of librds.
func (p *player) polling() (at poll, err error) {
	at, is := p.polls[p.w[1]]
	if !is {
		at.set = rds.WaitSet{Message: true, Completion: true, Notice: true, ZeroCopy: true}
		*krds.Congestion(&at.set) = true
		if at.fd, err = p.sock().PollFD(at.set); err == nil {
			p.polls[p.w[1]] = at
		}
	}
	return at, err
}

func (p *player) polled() string {
	at, err := p.polling()
	if err != nil {
		return errorText(err)
	}
	got, err := p.sock().Wait(rds.DontWait, at.set)
	if err != nil && !errors.Is(err, rds.ErrWouldBlock) {
		return errorText(err)
	}
	all := append(slices.Clone(takeables), "space", "sendto", "op", "status", "relief")
	return readyText(all, got)
}

func (p *player) fd() string {
	at, err := p.polling()
	if err != nil {
		return errorText(err)
	}
	fds := []unix.PollFd{{Fd: int32(at.fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int(p.number(2)))
		switch {
		case err == unix.EINTR:
		case err == nil && n == 1 && fds[0].Revents&unix.POLLIN != 0:
			return "readable"
		default:
			return "not readable"
		}
	}
}
