package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
	"golang.org/x/sys/unix"
)

// verdict is what doctor and check say of a host.
type verdict struct {
	found         []ctl.Finding
	doctor, check int
	text          string
}

// judge runs doctor and check by run, which returns the output and the exit status.
func judge(run func(args ...string) (string, int)) (v verdict) {
	v.text, v.doctor = run("doctor", "-o", "json-v2")
	_, v.check = run("check", "health")
	var r struct {
		Doctor []struct{ Finding *ctl.Finding }
	}
	if err := json.Unmarshal([]byte(v.text), &r); err != nil {
		v.text += err.Error()
	}
	for _, f := range r.Doctor {
		if f.Finding != nil {
			v.found = append(v.found, *f.Finding)
		}
	}
	return v
}

// is reports whether the verdict is one finding of a kind: as a check returns it, with that text and an error that contains error.
func (v *verdict) is(check, level, text, why string) error {
	codes := map[string][2]int{ctl.LevelWarn: {0, 1}, ctl.LevelError: {1, 2}}
	for _, f := range v.found {
		if f.Check == check && f.Level == level && strings.Contains(f.Text, text) && strings.Contains(f.Error, why) &&
			f.Who != "" && f.Do != "" && v.doctor == codes[level][0] && v.check == codes[level][1] {
			return nil
		}
	}
	return fmt.Errorf("want %s %s: %q, %q, and statuses %v; doctor %d, check %d: %s", level, check, text, why, codes[level], v.doctor, v.check, v.text)
}

// wellOrNot is is, or with no kind that the host is well.
func (v *verdict) wellOrNot(s state) error {
	if s.check != "" {
		return v.is(s.check, s.level, s.text, s.why)
	}
	// The certificates of tests are valid for a day, which is a warning.
	if slices.ContainsFunc(v.found, func(f ctl.Finding) bool { return f.Check != ctl.FindWarning }) || v.doctor != 0 {
		return fmt.Errorf("doctor %d, check %d: %s", v.doctor, v.check, v.text)
	}
	return nil
}

// state is what a host is judged as. The zero state is that all is well.
type state struct{ check, level, text, why string }

// judged waits until the host is judged so.
func (h *host) judged(s state) {
	h.t.Helper()
	eventually(h.t, fmt.Sprintf("%v %s", h.addr(), s.check), func() error {
		v := h.judge()
		return v.wellOrNot(s)
	})
}

func (h *host) judge() verdict {
	return judge(func(args ...string) (string, int) {
		p := startProcess(h.t, nil, program("rdsctl"), append(args, "-socket", h.sock)...)
		code := p.wait()
		return p.stdout(), code
	})
}

// send sends a message to a port of other that nobody has to have bound.
func (h *host) sendTo(s *rds.Socket, other *host) {
	h.t.Helper()
	if _, err := s.SendTo([]byte("x"), other.at(4000)); err != nil {
		h.t.Fatal(err)
	}
}

// TestJudgedUnreached brings two hosts into the states in which one cannot reach the other. Both are judged.
func TestJudgedUnreached(t *testing.T) {
	isolated(t, func(t *testing.T) {
		ca := tlstest.NewCA(t)
		plain := newHost(t)
		secured, _ := newSecured(t, ca)
		other, _ := newSecured(t, tlstest.NewCA(t))
		for name, tc := range map[string]struct {
			here, there *host
			is, isThere state
		}{
			"TLS there": {plain, secured, state{why: "the peer wants TLS"}, state{why: "begins without TLS"}},
			"authority": {other, secured, state{why: "unknown authority"}, state{why: "TLS"}},
			"port":      {plain, newHost(t, withArgs("-port", "18635")), state{why: "refused"}, state{check: "well"}},
		} {
			t.Run(name, func(t *testing.T) {
				here, there := *tc.here, *tc.there
				here.t, there.t = t, t
				s := here.bind(here.open(), 0)
				here.sendTo(s, &there)
				here.judged(state{ctl.FindPeer, ctl.LevelError, "messages wait for " + there.addr().String(), tc.is.why})
				if tc.isThere.check == "" {
					there.judged(state{ctl.FindRefused, ctl.LevelWarn, here.addr().String() + " was turned away", tc.isThere.why})
				} else {
					there.judged(state{})
				}
				s.Close()
				here.judged(state{ctl.FindPeer, ctl.LevelWarn, there.addr().String() + " was wanted and could not be reached", tc.is.why}) // nobody wants it any more
			})
		}
	})
}

// TestJudgedKilled kills a daemon that has been connected, and starts it again. A daemon that is stopped does not ack.
func TestJudgedKilled(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		a, b := hosts[0], hosts[1]
		s := a.bind(a.open(), 0)
		a.rdsctl("ping", b.addr().String(), "-c", "1")
		a.judged(state{})
		b.pause()
		a.sendTo(s, b)
		a.judged(state{ctl.FindUnacked, ctl.LevelWarn, b.addr().String() + " does not ack", ""})
		b.Resume()
		a.judged(state{})
		b.Kill()
		a.sendTo(s, b)
		a.judged(state{ctl.FindPeer, ctl.LevelError, "messages wait for " + b.addr().String(), "refused"})
		contains(t, "rdsctl peers", a.rdsctl("peers"), "refused", " ago)")
		contains(t, "rdsctl top", a.rdsctl("top", "-once", "-d", "50ms"), "messages wait for "+b.addr().String(), "rdsctl ping")
		contains(t, "rdsctl status", a.rdsctl("status"), "error: messages wait for "+b.addr().String())
		b.start()
		a.judged(state{})
	})
}

// TestJudgedFull has a receiver that does not read while a sender waits.
func TestJudgedFull(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		a, b := hosts[0], hosts[1]
		src, dst := a.bind(a.open(), 0), b.bind(b.open(), 4000)
		eventually(t, "congestion", func() error {
			for {
				err := newAudit().sendIn(rds.DontWait, src, dst.LocalAddrPort(), make([]byte, 5000))
				if errors.Is(err, syscall.ENOBUFS) {
					return nil
				}
				if err != nil {
					return err
				}
			}
		})
		a.judged(state{ctl.FindReceiver, ctl.LevelWarn, dst.LocalAddrPort().String(), ""})
		b.judged(state{ctl.FindReader, ctl.LevelWarn, dst.LocalAddrPort().String() + " is full", ""})
		dst.Close()
		b.judged(state{})
		a.judged(state{})
	})
}

// TestJudgedReader has a process that does not read, with a socket that is not full, for ten seconds.
func TestJudgedReader(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		src, dst := hosts[0].bind(hosts[0].open(), 0), hosts[1].bind(hosts[1].open(), 4000)
		hosts[0].sendTo(src, hosts[1])
		hosts[1].judged(state{ctl.FindReader, ctl.LevelWarn, "does not read " + dst.LocalAddrPort().String(), ""})
		hosts[0].judged(state{})
		if _, _, err := dst.RecvFrom(make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		hosts[1].judged(state{})
	})
}

// TestJudgedWarnings has a daemon that is drained, and one with hardly a descriptor left.
func TestJudgedWarnings(t *testing.T) {
	isolated(t, func(t *testing.T) {
		h := newHost(t)
		h.judged(state{})
		h.rdsctl("daemon", "drain", "-wait", "0s")
		h.judged(state{ctl.FindWarning, ctl.LevelWarn, "drained", ""})
		h.rdsctl("daemon", "resume")
		h.judged(state{})
		h.expected = append(h.expected, "too many open files")
		var was unix.Rlimit
		if err := unix.Prlimit(h.pid(), unix.RLIMIT_NOFILE, nil, &was); err != nil {
			t.Fatal(err)
		}
		free := 0 // the lowest descriptor that is
		for ; ; free++ {
			if _, err := os.Lstat(fmt.Sprintf("/proc/%d/fd/%d", h.pid(), free)); err != nil {
				break
			}
		}
		few := unix.Rlimit{Cur: uint64(free + 2), Max: was.Max} // rdsctl needs one
		if err := unix.Prlimit(h.pid(), unix.RLIMIT_NOFILE, &few, nil); err != nil {
			t.Fatal(err)
		}
		h.judged(state{ctl.FindWarning, ctl.LevelWarn, "descriptors are in use", ""})
		if err := unix.Prlimit(h.pid(), unix.RLIMIT_NOFILE, &was, nil); err != nil {
			t.Fatal(err)
		}
		h.judged(state{})
	})
}

// TestJudgedQuota has a user with all sockets that it may have.
func TestJudgedQuota(t *testing.T) {
	isolatedAsRoot(t, func(t *testing.T) {
		h := openToAll(t, withArgs("-quota-sockets", "2"))
		u := h.startUser("attached")
		u.do("bind "+h.at(4000).String(), "bound")
		h.judged(state{})
		u.do("bind "+h.at(4001).String(), "bound")
		h.judged(state{ctl.FindQuota, ctl.LevelWarn, fmt.Sprintf("uid %d uses nine tenths or more of its quota.sockets of 2", nobody), ""})
		u.Kill()
		h.judged(state{})
	})
}

// judgedNet is host.judged for a host in a namespace.
func judgedNet(h *netHost, s state) {
	h.t.Helper()
	eventually(h.t, h.name, func() error {
		v := judge(func(args ...string) (string, int) {
			out := strings.TrimSpace(h.run("c=0; bin/rdsctl " + strings.Join(args, " ") + " || c=$?; echo; echo $c"))
			i := strings.LastIndexByte(out, '\n')
			code, err := strconv.Atoi(out[i+1:])
			if err != nil {
				h.t.Fatal(err)
			}
			return out[:max(i, 0)], code
		})
		return v.wellOrNot(s)
	})
}

// TestJudgedHosts has a host that does not allow the other one, and then does, and the other way round.
// Then no packet passes.
func TestJudgedHosts(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("nft is not installed: apt-get install -y --no-install-recommends nftables")
	}
	a, b := twoHosts(t)
	allow := func(h *netHost, peer string) {
		h.run("echo 'peers.allow = [\"" + peer + "\"]' >/run/rdsd.toml; bin/rdsctl config reload")
	}
	for h, args := range map[*netHost]string{a: "-listen 10.0.0.1 -config /run/rdsd.toml", b: "-listen 10.0.0.2 -config /run/rdsd.toml"} {
		h.run("export RDSD_SOCKET=/run/rdsd.sock\ncp bin/* /usr/local/bin/; echo 'peers.allow = [\"10.0.0.9\"]' >/run/rdsd.toml; rdsd -socket /run/rdsd.sock -tls-mode off -tls-warn off " + args + " >/run/rdsd.log 2>&1 &\n" + ready)
	}
	allow(a, "10.0.0.2")
	c, err := rds.Open(t.Context(), rds.Options{Socket: "/proc/" + a.pid() + "/root/run/rdsd.sock"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sock, err := c.Bind(netip.MustParseAddrPort("10.0.0.1:4000"))
	if err != nil {
		t.Fatal(err)
	}
	send := func() {
		if _, err := sock.SendTo([]byte("x"), netip.MustParseAddrPort("10.0.0.2:4000")); err != nil {
			t.Fatal(err)
		}
	}
	send()
	judgedNet(a, state{ctl.FindPeer, ctl.LevelError, "messages wait for 10.0.0.2", "reject"})
	judgedNet(b, state{ctl.FindRefused, ctl.LevelWarn, "10.0.0.1 was turned away", "not in peers.allow"})
	allow(b, "10.0.0.1")
	judgedNet(a, state{})
	judgedNet(b, state{})
	b.run("pkill -STOP -x rdsd")
	send() // it has no ack when b is forbidden
	allow(a, "10.0.0.9")
	b.run("pkill -CONT -x rdsd")
	judgedNet(a, state{ctl.FindPeer, ctl.LevelError, "messages wait for 10.0.0.2", "not in peers.allow"})
	allow(a, "10.0.0.2")
	judgedNet(a, state{})
	judgedNet(b, state{})
	a.run("nft add table ip hole; nft 'add chain ip hole in { type filter hook input priority 0; }'; nft add rule ip hole in iifname wire drop")
	send()
	judgedNet(a, state{ctl.FindUnacked, ctl.LevelWarn, "10.0.0.2 does not ack", ""})
}
