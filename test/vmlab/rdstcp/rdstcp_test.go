package rdstcp

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/test/vmlab/lab"
)

const (
	control = "/run/rdsd.sock"
	sizes   = " -sizes 0-50,1000,4095-4097,70000,1048576 "
	limit   = 3 * time.Minute // for a step
)

// pair is a host with rdsd and one with the kernel's RDS.
type pair struct {
	*testing.T
	l       *lab.Lab
	r, k    *lab.Host // rdsd's, the kernel's
	daemon  *lab.Job
	timeout time.Duration // tcp.timeout
	lanes   int           // tcp.lanes
}

// TestRDSTCP runs everything with rdsd at the smaller address, then at the larger.
func TestRDSTCP(t *testing.T) {
	if os.Getenv(lab.DirVariable) == "" {
		t.Skip("needs a virtual machine: make vm")
	}
	for _, name := range []string{"smaller", "larger"} {
		t.Run(name, func(t *testing.T) {
			l := lab.Boot(t, lab.Config{Hosts: 2, Capture: true, Limit: 15 * time.Minute})
			p := &pair{T: t, l: l, r: l.A, k: l.B, timeout: 8 * time.Second, lanes: 8}
			if name == "larger" {
				p.r, p.k, p.timeout = l.B, l.A, 30*time.Second
			}
			l.Install(t, lab.Build(t, "cmd/rdsd"), lab.Build(t, "cmd/rdsctl"), lab.Build(t, "test/vmlab/krds"))
			p.k.Load(t, "rds", "rds_tcp")
			p.start()
			for _, s := range []struct {
				name string
				run  func(*pair)
			}{
				{"133 pings", pings},
				{"131 sizes", everySize},
				{"143 direction", direction},
				{"153 lanes", lanes},
				{"177 congestion", congestion},
				{"149 breaks", breaks},
				{"150 killed", killed},
				{"145 crossing", crossing},
				{"155 black hole", blackHole},
				{"151 silence", silence},
			} {
				t.Run(s.name, func(t *testing.T) {
					q := *p
					q.T = t
					s.run(&q)
					p.daemon = q.daemon
				})
			}
		})
	}
}

// start runs rdsd.
func (p *pair) start() {
	p.Helper()
	p.daemon = p.r.Start(p.T, fmt.Sprintf(`
		cat >/run/rdsd.toml <<-END
		socket = "%s"
		listen = ["%s"]
		peers.allow = ["10.9.0.0/24"]
		tcp = { peers = ["10.9.0.0/24"], lanes = %d, timeout = "%v" }
		END
		exec rdsd -config /run/rdsd.toml`, control, p.r.IP(), p.lanes, p.timeout))
	p.r.Run(p.T, time.Minute, "lab_wait 50 rdsctl --socket "+control+" status >/dev/null")
}

// restart ends rdsd in order and starts it with so many lanes.
func (p *pair) restart(lanes int) {
	p.Helper()
	p.lanes = lanes
	p.r.Run(p.T, time.Minute, "pkill -x rdsd")
	p.daemon.Wait(time.Minute)
	p.start()
}

// at is a krds command of one host.
func (p *pair) at(h *lab.Host, format string, args ...any) string {
	cmd := "krds -via kernel "
	if h == p.r {
		cmd = "krds -via rdsd -rdsd " + control + " "
	}
	return cmd + fmt.Sprintf(format, args...)
}

// both calls f with rdsd as the one that begins, then the kernel.
func (p *pair) both(f func(p *pair, from, to *lab.Host)) {
	for _, c := range []struct {
		name     string
		from, to *lab.Host
	}{{"rdsd to kernel", p.r, p.k}, {"kernel to rdsd", p.k, p.r}} {
		p.Run(c.name, func(t *testing.T) {
			q := *p
			q.T = t
			f(&q, c.from, c.to)
		})
	}
}

// serve starts a krds that says when it is ready.
func (p *pair) serve(h *lab.Host, format string, args ...any) *lab.Job {
	p.Helper()
	j := h.Start(p.T, p.at(h, format, args...))
	p.until("a receiver", time.Minute, func() bool { return strings.Contains(j.Out(), "ready") })
	return j
}

func (p *pair) until(what string, d time.Duration, done func() bool) {
	p.Helper()
	for end := time.Now().Add(d); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			p.Fatalf("no %s within %v", what, d)
		}
	}
}

// ended waits for a job that has to succeed.
func (p *pair) ended(j *lab.Job) string {
	p.Helper()
	r := j.Wait(limit)
	if r.Err() != nil {
		p.Fatalf("%v: %s", r.Err(), r.Out)
	}
	return r.Out
}

func pings(p *pair) {
	p.both(func(p *pair, from, to *lab.Host) {
		out := from.Run(p.T, limit, p.at(from, "ping -from %s -to %s -n 1000", from.IP(), to.IP()))
		if !strings.Contains(out, "1000 pings") {
			p.Errorf("%q", out)
		}
	})
}

// streams sends from many sockets at once, every byte checked.
func streams(p *pair, from, to *lab.Host, sockets, n int, more string) {
	p.Helper()
	j := p.serve(to, "recv -at %s:4000 -streams %d %s -limit 100s", to.IP(), sockets, more)
	from.Run(p.T, limit, p.at(from, "send -from %s:5000 -to %s:4000 -sockets %d -n %d %s -limit 100s", from.IP(), to.IP(), sockets, n, more))
	if out := p.ended(j); strings.Count(out, "0 lost") != sockets {
		p.Errorf("%q", out)
	}
}

func everySize(p *pair) {
	p.both(func(p *pair, from, to *lab.Host) { streams(p, from, to, 8, 120, sizes) })
}

var established = regexp.MustCompile(`(?m)^(\S+):(\d+) +(\S+):(\d+)\s*$`)

// connections are those of RDS/TCP that are up, from the side that connected.
func (p *pair) connections(h *lab.Host) (from []string, ports []int) {
	p.Helper()
	out := h.Run(p.T, time.Minute, "ss -Htn state established '( sport = 16385 or dport = 16385 )' | awk '{ print $3, $4 }'")
	for _, m := range established.FindAllStringSubmatch(out, -1) {
		addr, port := m[1], m[2]
		if port == "16385" {
			addr, port = m[3], m[4]
		}
		addr = strings.TrimSuffix(strings.TrimPrefix(addr, "[::ffff:"), "]")
		n, _ := strconv.Atoi(port)
		from, ports = append(from, addr), append(ports, n)
	}
	return from, ports
}

// Every connection runs from the smaller address, and there are eight.
func direction(p *pair) {
	for _, h := range p.l.Hosts() {
		from, _ := p.connections(h)
		if len(from) != 8 {
			p.Errorf("host %s: %d connections", h.Name(), len(from))
		}
		for _, a := range from {
			if a != p.l.A.IP() {
				p.Errorf("host %s: a connection from %s", h.Name(), a)
			}
		}
	}
	out := p.r.Run(p.T, time.Minute, "rdsctl --socket "+control+" peers -o json")
	if !strings.Contains(out, `"tcp"`) {
		p.Errorf("rdsctl peers: %s", out)
	}
}

// A lane that breaks off comes back; the others stay, and nothing is lost.
func lanes(p *pair) {
	_, before := p.connections(p.r)
	p.both(func(p *pair, from, to *lab.Host) {
		j := p.serve(to, "recv -at %s:4000 -streams 8 -limit 100s", to.IP())
		s := from.Start(p.T, p.at(from, "send -from %s:5000 -to %s:4000 -sockets 8 -n 40 -delay 20ms -limit 100s", from.IP(), to.IP()))
		_, ports := p.connections(p.r)
		if len(ports) > 0 {
			p.r.Run(p.T, time.Minute, fmt.Sprintf("ss -K '( sport = %d or dport = %d )'", ports[3], ports[3]))
		}
		p.ended(s)
		if out := p.ended(j); strings.Count(out, "0 lost") != 8 {
			p.Errorf("%q", out)
		}
		p.until("eight lanes", time.Minute, func() bool { f, _ := p.connections(p.r); return len(f) == 8 })
	})
	_, after := p.connections(p.r)
	kept := 0
	for _, a := range before {
		for _, b := range after {
			if a == b {
				kept++
			}
		}
	}
	if kept < 6 {
		p.Errorf("%v became %v: %d stayed", before, after, kept)
	}
}

// A receiver that is slow holds its sender up, and nothing is lost.
func congestion(p *pair) {
	p.both(func(p *pair, from, to *lab.Host) {
		const more = " -sizes 100000 "
		j := p.serve(to, "recv -at %s:4000 -rcvbuf 300000 -delay 20ms -limit 100s"+more, to.IP())
		from.Run(p.T, limit, p.at(from, "send -nonblock -from %s:5000 -to %s:4000 -n 80 -limit 100s"+more, from.IP(), to.IP()))
		p.ended(j)
	})
	out := p.r.Run(p.T, time.Minute, "rdsctl --socket "+control+" stats 2>/dev/null || true")
	p.Log(out)
}

// Connections that break off under load lose nothing and deliver nothing twice.
func breaks(p *pair) {
	p.both(func(p *pair, from, to *lab.Host) {
		j := p.serve(to, "recv -at %s:4000 -sizes 0,100,5000,60000 -limit 100s", to.IP())
		s := from.Start(p.T, p.at(from, "send -from %s:5000 -to %s:4000 -n 400 -sizes 0,100,5000,60000 -limit 100s", from.IP(), to.IP()))
		for i := 0; i < 6; i++ {
			select {
			case <-s.Done():
			default:
				_, ports := p.connections(p.r)
				if len(ports) > 0 { // of the sender: all its data is in there
					p.r.Run(p.T, time.Minute, fmt.Sprintf("ss -K '( sport = %d or dport = %d )'", ports[i%len(ports)], ports[i%len(ports)]))
				}
			}
		}
		p.ended(s)
		if out := p.ended(j); !strings.Contains(out, "400 messages") {
			p.Errorf("%q", out)
		}
	})
	p.Log(p.r.Run(p.T, time.Minute, "rdsctl --socket "+control+" peers"))
}

// After kill -9 nothing comes twice to a socket that lives on, and what is sent
// after the restart arrives.
func killed(p *pair) {
	j := p.serve(p.k, "recv -lossy -at %s:4000 -streams 1 -limit 100s", p.k.IP())
	s := p.r.Start(p.T, p.at(p.r, "send -lossy -from %s:5000 -to %s:4000 -n 100000 -sizes 24,3000 -limit 100s", p.r.IP(), p.k.IP()))
	p.until("a sender", time.Minute, func() bool { f, _ := p.connections(p.r); return len(f) > 0 })
	time.Sleep(2 * time.Second)
	p.r.Run(p.T, time.Minute, "pkill -9 -x rdsd")
	p.daemon.Wait(time.Minute)
	s.Wait(time.Minute)
	p.start()
	p.r.Run(p.T, limit, p.at(p.r, "send -lossy -from %s:5000 -to %s:4000 -n 50 -sizes 24,3000 -seed 7 -limit 100s", p.r.IP(), p.k.IP()))
	if out := p.ended(j); !strings.Contains(out, "50 messages, 75600 bytes, 0 lost") {
		p.Errorf("%q", out)
	}
	streams(p, p.k, p.r, 1, 50, "")
}

// Both begin at the same time: eight connections, nothing lost or twice.
func crossing(p *pair) {
	for i := range 3 {
		p.restart(8)
		jr := p.serve(p.r, "recv -at %s:4000 -limit 100s", p.r.IP())
		jk := p.serve(p.k, "recv -at %s:4000 -limit 100s", p.k.IP())
		sr := p.r.Start(p.T, p.at(p.r, "send -from %s:5000 -to %s:4000 -n 20 -limit 100s", p.r.IP(), p.k.IP()))
		sk := p.k.Start(p.T, p.at(p.k, "send -from %s:5000 -to %s:4000 -n 20 -limit 100s", p.k.IP(), p.r.IP()))
		for _, j := range []*lab.Job{sr, sk, jr, jk} {
			p.ended(j)
		}
		p.until(fmt.Sprintf("eight lanes in round %d", i), time.Minute, func() bool { f, _ := p.connections(p.r); return len(f) == 8 })
	}
}

// down waits for the daemon to give its connections up, about p.timeout after the
// peer has vanished.
func (p *pair) down() {
	p.Helper()
	start := time.Now()
	p.until("end of the connection", p.timeout+30*time.Second, func() bool {
		return !strings.Contains(p.r.Run(p.T, time.Minute, "rdsctl --socket "+control+" peers"), " up ")
	})
	if d := time.Since(start); d < p.timeout/2 {
		p.Errorf("given up after %v already", d)
	} else {
		p.Logf("given up after %v", d)
	}
}

// A host that vanishes with data on its way is found out by tcp.timeout, long
// before TCP's own limits; what was sent arrives when it is back.
func blackHole(p *pair) {
	p.restart(1) // with more a kernel may drop what it takes for old
	streams(p, p.r, p.k, 1, 10, "")
	j := p.serve(p.k, "recv -at %s:4000 -limit 100s", p.k.IP())
	p.k.Run(p.T, time.Minute, "ip link set eth0 down")
	s := p.r.Start(p.T, p.at(p.r, "send -from %s:5000 -to %s:4000 -n 20 -limit 100s", p.r.IP(), p.k.IP()))
	p.down()
	p.k.Run(p.T, time.Minute, "ip link set eth0 up")
	p.ended(s)
	p.ended(j)
}

// A host that vanishes in silence is found out by keepalive.
func silence(p *pair) {
	p.restart(1)
	streams(p, p.r, p.k, 1, 10, "")
	p.k.Run(p.T, time.Minute, "ip link set eth0 down")
	p.down()
	p.k.Run(p.T, time.Minute, "ip link set eth0 up")
	streams(p, p.r, p.k, 1, 10, "")
}
