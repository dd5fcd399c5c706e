package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
	"golang.org/x/sys/unix"
)

// pipelines asks for metrics over more connections than there are places, and reads no answer.
func (a *attacker) pipelines() error {
	many := make([]byte, 0, 1<<16)
	for len(many) < 1<<15 {
		many = fmt.Appendf(many, "GET /metrics HTTP/1.1\r\nHost: %s\r\n\r\n", a.Metrics)
	}
	for range 70 {
		go func() {
			for {
				c, err := net.Dial("tcp", a.Metrics)
				if err != nil {
					continue
				}
				for err == nil { // until the daemon closes it
					_, err = c.Write(many)
				}
				c.Close()
			}
		}()
	}
	begun()
	select {}
}

// takesPlaces attaches and binds as often as it may.
func (a *attacker) takesPlaces() error {
	took, err := 0, error(nil)
	for {
		var c *rds.Client
		if c, err = a.open(0); err != nil {
			break
		}
		for ; err == nil; _, err = c.Bind(a.Addrs[0]) {
			took++
		}
	}
	begun()
	for {
		_, _ = a.open(0)
		time.Sleep(time.Millisecond)
	}
}

// connects to the control socket as often as it can, and says nothing.
func (a *attacker) connects() error {
	for range 2 {
		go func() {
			for {
				if u, _, err := a.dials(); err == nil {
					u.Close()
				}
			}
		}()
	}
	begun()
	select {}
}

// opensLanes is 17 peers, which connect each lane and keep the connections.
func (a *attacker) opensLanes() error {
	begun()
	for {
		var all []net.Conn
		for _, from := range a.Peers {
			for lane := range 256 {
				d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), Timeout: time.Second}
				c, err := d.Dial("tcp", netip.AddrPortFrom(a.Addrs[0].Addr(), rdsPort).String())
				if err != nil {
					continue
				}
				all = append(all, c)
				private := wire.AppendPrivate(nil, &wire.Private{Src: from, Dst: a.Addrs[0].Addr(), Major: 3, Minor: 1, MinorMask: 1, Ext: 1, TOS: uint8(lane)})
				m := iwarp.MPA{Rev: 2, Enhanced: true, P2P: true, RTRWrite: true, IRD: 8, ORD: 8, Private: private}
				_, _ = c.Write(m.Append(nil))
			}
		}
		for _, c := range all {
			c.Close()
		}
	}
}

// asksAndReadsNot asks what rdsctl asks, follows its own messages, and reads no answer.
func (a *attacker) asksAndReadsNot() error {
	p, err := a.pair(4096)
	if err != nil {
		return err
	}
	for range 32 {
		u, c, err := a.dials()
		if err != nil {
			return err
		}
		_ = c.Send(1, &ipc.Hello{Role: ipc.RoleCtl})
		go func() {
			for i := uint32(2); ; i++ {
				for _, q := range []ctl.Request{{Kind: ctl.KindTrace, Do: ctl.DoBegin, Trace: &ctl.TraceSpec{Rate: ctl.MaxTraceRate}}, {Kind: ctl.KindTrace, Do: ctl.DoRead},
					{Kind: ctl.KindStatus}, {Kind: ctl.KindSockets}, {Kind: ctl.KindPeers}, {Kind: ctl.KindErrors}} {
					q.Schema = ctl.Schema
					b, _ := json.Marshal(q)
					if _, err := u.Write(ipc.AppendFrame(nil, i, &ipc.Ctl{JSON: b})); errors.Is(err, unix.EPIPE) {
						return
					}
				}
			}
		}()
	}
	begun()
	for b := make([]byte, 100); ; {
		if _, err := p.s.SendTo(b, p.to.LocalAddrPort()); err != nil {
			return err
		}
		if _, _, err := p.to.RecvFrom(b); err != nil {
			return err
		}
	}
}

// writesLogs breaks the rules, and binds what it must not, again and again: the daemon logs it.
func (a *attacker) writesLogs() error {
	begun()
	for {
		u, c, err := a.dials()
		if err != nil {
			continue
		}
		_ = c.Send(1, &ipc.Hello{Role: ipc.RoleClient, Params: few})
		_, _ = u.Write([]byte("hello, daemon, how are you?"))
		drainUnix(u)
		c.Close()
	}
}
