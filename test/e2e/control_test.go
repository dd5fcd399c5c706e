package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
)

// ask sends one request to the daemon as rdsctl does.
func (h *host) ask(r ctl.Request) (*ctl.Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := ipc.Dial(ctx, h.sock)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if _, _, err := c.Call(&ipc.Hello{Version: ipc.Version, Role: ipc.RoleCtl, Name: "e2e"}, nil); err != nil {
		return nil, err
	}
	r.Schema = ctl.Schema
	req, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	b, err := c.CallJSON(req)
	if err != nil {
		return nil, err
	}
	var resp ctl.Response
	if err := json.Unmarshal(b, &resp); err != nil {
		return nil, err
	}
	if resp.Error != nil {
		return nil, fmt.Errorf("%v: %+v", r.Kind, *resp.Error)
	}
	return &resp, nil
}

// peer returns the connection to another host, or nil if there has never been one.
func (h *host) peer(to *host) *ctl.PeerInfo {
	h.t.Helper()
	r, err := h.ask(ctl.Request{Kind: ctl.KindPeers})
	if err != nil {
		h.t.Fatal(err)
	}
	for i := range r.Peers {
		if r.Peers[i].Remote == to.addr() {
			return &r.Peers[i]
		}
	}
	return nil
}

// reset resets the connection to another host.
func (h *host) reset(to *host) error {
	_, err := h.ask(ctl.Request{Kind: ctl.KindPeerReset, Addr: to.addr()})
	return err
}

// neverReset checks that no connection between the hosts was lost.
func neverReset(t *testing.T, hosts ...*host) {
	t.Helper()
	for _, h := range hosts {
		for _, o := range hosts {
			if p := h.peer(o); p != nil && p.Resets > 0 {
				t.Errorf("connection %v to %v was reset %d times, the last time by %q", p.Local, p.Remote, p.Resets, p.LastError)
			}
		}
	}
}

// rdsctl runs rdsctl, which must succeed, and returns its output.
func (h *host) rdsctl(args ...string) string {
	h.t.Helper()
	p := startProcess(h.t, nil, program("rdsctl"), append(args, "-socket", h.sock)...)
	if code := p.wait(); code != 0 || p.log() != "" {
		h.t.Errorf("rdsctl %v: status %d, %q", args, code, p.log())
	}
	return p.stdout()
}

// rdsctlJSON runs rdsctl and parses its output.
func (h *host) rdsctlJSON(args ...string) (r ctl.Response) {
	h.t.Helper()
	out := h.rdsctl(append(args, "-o", "json-v2")...)
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Schema != ctl.Schema {
		h.t.Errorf("rdsctl %v: %v, %q", args, err, out)
	}
	return r
}

func contains(t *testing.T, what, text string, wanted ...string) {
	t.Helper()
	for _, w := range wanted {
		if !strings.Contains(text, w) {
			t.Errorf("%s: no %q in\n%s", what, w, text)
		}
	}
}

func TestRdsctl(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		a, b := hosts[0], hosts[1]
		src, dst := a.bind(a.open(), 4001), b.bind(b.open(), 4002)
		audit := newAudit()
		done := make(chan struct{})
		go func() { audit.take(dst); close(done) }()
		for range 10 {
			if err := audit.send(src, dst.LocalAddrPort(), make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
		}
		audit.all(t, src)

		contains(t, "status", a.rdsctl("status"), "rdsd ", fmt.Sprint("pid ", a.pid()), a.sock, a.addr().String()+":18634", "1 client, 1 socket (")
		s := a.rdsctlJSON("status").Status
		if s == nil || s.PID != a.pid() || s.Socket != a.sock || s.Counts.Clients != 1 || s.Counts.Sockets != 1 || s.Counts.PeersUp != 1 ||
			s.Memory.Shared == 0 || s.Engine.State == "starting" || len(s.Listen) != 1 || s.Listen[0] != netip.AddrPortFrom(a.addr(), 18634) {
			t.Errorf("status: %+v", s)
		}

		contains(t, "sockets", a.rdsctl("sockets"), "ADDR", a.addr().String(), "4001", "e2e.test")
		if socks := a.rdsctlJSON("sockets").Sockets; len(socks) != 1 || socks[0].Addr != a.addr() || socks[0].Port != 4001 {
			t.Errorf("sockets: %+v", socks)
		}

		contains(t, "peers", a.rdsctl("peers"), "REMOTE", b.addr().String(), "up", "soft")
		p := a.rdsctlJSON("peers").Peers
		if len(p) != 1 || p[0].Remote != b.addr() || p[0].State != "up" || p[0].Resets != 0 || p[0].CRC || p[0].Instance == 0 || time.Since(p[0].Since) > patience {
			t.Errorf("peers: %+v", p)
		}

		contains(t, "ping", a.rdsctl("ping", b.addr().String(), "-c", "3", "-i", "1ms"), "reply from "+b.addr().String(), "seq 3")
		if r := a.rdsctlJSON("ping", b.addr().String(), "-c", "2", "-i", "1ms").PingReport; r == nil {
			t.Error("no ping report")
		}

		contains(t, "peer reset", a.rdsctl("peer", "reset", b.addr().String()), "1 connection(s) reset")
		// The next message makes a new connection.
		if err := audit.send(src, dst.LocalAddrPort(), make([]byte, 100)); err != nil {
			t.Error(err)
		}
		audit.all(t, src)
		if p := a.peer(b); p.State != "up" || p.Resets != 1 {
			t.Errorf("state %s, %d resets", p.State, p.Resets)
		}

		// A request that is impossible must fail with a reason.
		for _, tc := range []struct {
			args []string
			code int
			want string
		}{
			{[]string{"peer", "reset", "192.0.2.9"}, 4, "192.0.2.9"},
			{[]string{"ping", newAddress(t).String(), "-c", "1", "-timeout", "5s"}, 1, "connection refused"},
			{[]string{"stauts"}, 2, "stauts"},
			{[]string{"ping"}, 2, "ADDR"},
		} {
			p := startProcess(t, nil, program("rdsctl"), append(tc.args, "-socket", a.sock)...)
			if code := p.wait(); code != tc.code || !strings.Contains(p.log()+p.stdout(), tc.want) {
				t.Errorf("rdsctl %v: status %d, %q %q", tc.args, code, p.stdout(), p.log())
			}
		}
		dst.Close()
		<-done
	})
}
