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

const sizes = " -sizes 0-50,1000,4095-4097,70000,1048576 "

// rdsctl of an emulated host, which may stand still for a time.
const rdsctl = "rdsctl --timeout 60s --socket " + lab.Control + " "

// pair is a host with rdsd and a host with the kernel's RDS.
type pair struct {
	lab.Pair
	l       *lab.Lab
	daemon  *lab.Job      // rdsd
	timeout time.Duration // tcp.timeout
	lanes   int           // tcp.lanes
}

// TestRDSTCP runs all cases with rdsd at the smaller address, then at the larger address. The
// numbers of cases are those of statements of test/conformance.
func TestRDSTCP(t *testing.T) {
	if os.Getenv(lab.DirVariable) == "" {
		t.Skip("needs a virtual machine: make vm")
	}
	keep := lab.Short("smaller", "133", "131", "143")
	for _, name := range []string{"smaller", "larger"} {
		if !keep(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			l := lab.Boot(t, lab.Config{Hosts: 2, Capture: true, Limit: 15 * time.Minute})
			p := &pair{Pair: lab.NewPair(t, l, name == "smaller"), l: l, timeout: 8 * time.Second, lanes: 8}
			if name == "larger" {
				p.timeout = 30 * time.Second
			}
			l.Install(t, lab.Build(t, "cmd/rdsd"), lab.Build(t, "cmd/rdsctl"), lab.Build(t, "test/vmlab/krds"))
			p.K.Load(t, "rds", "rds_tcp")
			p.start()
			for _, s := range []struct {
				name string
				run  func(*pair)
			}{
				{"133 pings", manyPings},
				{"131 sizes", everySize},
				{"143 direction", direction},
				{"153 lanes", lanes},
				{"177 congestion", func(p *pair) { p.Congestion() }},
				{"149 breaks", breaks},
				{"150 killed", func(p *pair) { p.Killed(p.daemon, p.start) }},
				{"145 crossing", crossing},
				{"155 black hole", blackHole},
				{"151 silence", silence},
			} {
				if !keep(s.name) {
					continue
				}
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

// start runs rdsd and waits until it answers.
func (p *pair) start() {
	p.Helper()
	p.daemon = p.R.Start(p.T, fmt.Sprintf(`
		cat >/run/rdsd.toml <<-END
		socket = "%s"
		listen = ["%s"]
		peers.allow = ["10.9.0.0/24"]
		tls.mode = "off"
		tcp = { peers = ["10.9.0.0/24"], lanes = %d, timeout = "%v" }
		END
		exec rdsd -config /run/rdsd.toml`, lab.Control, p.R.IP(), p.lanes, p.timeout))
	p.R.Run(p.T, time.Minute, "lab_wait 50 rdsctl --socket "+lab.Control+" status >/dev/null")
}

// restart ends rdsd with SIGTERM and starts it with tcp.lanes = lanes.
func (p *pair) restart(lanes int) {
	p.Helper()
	p.lanes = lanes
	p.R.Run(p.T, time.Minute, "pkill -x rdsd")
	p.daemon.Wait(time.Minute)
	p.start()
}

// both calls f twice: first rdsd's host begins, then the kernel's.
func (p *pair) both(f func(p *pair, from, to *lab.Host)) {
	p.Both(func(t *testing.T, from, to *lab.Host) {
		q := *p
		q.T = t
		f(&q, from, to)
	})
}

func manyPings(p *pair) {
	n := 1000
	if testing.Short() {
		n = 200
	}
	p.Pings(n)
}

func everySize(p *pair) {
	n := 120
	if testing.Short() {
		n = 60 // each size once
	}
	p.both(func(p *pair, from, to *lab.Host) { p.Streams(from, to, 8, n, sizes) })
}

var established = regexp.MustCompile(`(?m)^(\S+):(\d+) +(\S+):(\d+)\s*$`)

// connections returns the established RDS/TCP connections of a host: for each, the address and the
// port of the side that connected.
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

// direction checks that there are eight connections, and that the smaller address made each.
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
	out := p.R.Run(p.T, lab.StepLimit, rdsctl+"peers -o json-v2")
	if !strings.Contains(out, `"tcp"`) {
		p.Errorf("rdsctl peers: %s", out)
	}
}

// lanes breaks one lane. It checks that this lane comes back, that the other lanes stay, and that
// nothing is lost.
func lanes(p *pair) {
	_, before := p.connections(p.R)
	p.both(func(p *pair, from, to *lab.Host) {
		j := p.Serve(to, "recv -at %s:4000 -streams 8 -limit 100s", to.IP())
		s := from.Start(p.T, p.At(from, "send -from %s:5000 -to %s:4000 -sockets 8 -n 40 -delay 20ms -limit 100s", from.IP(), to.IP()))
		_, ports := p.connections(p.R)
		if len(ports) == 8 {
			p.R.Run(p.T, time.Minute, fmt.Sprintf("ss -K '( sport = %d or dport = %d )'", ports[3], ports[3]))
		} else {
			p.Errorf("%d connections while the streams run, want 8: no lane was broken", len(ports))
		}
		p.Ended(s)
		if out := p.Ended(j); strings.Count(out, "0 lost") != 8 {
			p.Errorf("%q", out)
		}
		p.Until("eight lanes", time.Minute, func() bool { f, _ := p.connections(p.R); return len(f) == 8 })
	})
	_, after := p.connections(p.R)
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

// breaks checks that connections that break under load lose nothing and deliver nothing twice.
func breaks(p *pair) {
	p.both(func(p *pair, from, to *lab.Host) {
		j := p.Serve(to, "recv -at %s:4000 -sizes 0,100,5000,60000 -limit 100s", to.IP())
		s := from.Start(p.T, p.At(from, "send -from %s:5000 -to %s:4000 -n 400 -sizes 0,100,5000,60000 -limit 100s", from.IP(), to.IP()))
		for i := range 6 {
			select {
			case <-s.Done():
			default:
				_, ports := p.connections(p.R)
				if len(ports) > 0 { // one lane after the other
					p.R.Run(p.T, time.Minute, fmt.Sprintf("ss -K '( sport = %d or dport = %d )'", ports[i%len(ports)], ports[i%len(ports)]))
				}
			}
		}
		p.Ended(s)
		if out := p.Ended(j); !strings.Contains(out, "400 messages") {
			p.Errorf("%q", out)
		}
	})
	p.Log(p.R.Run(p.T, lab.StepLimit, rdsctl+"peers"))
}

// crossing lets both sides begin at the same time. It checks that there are eight connections, and
// that nothing is lost or delivered twice.
func crossing(p *pair) {
	for i := range 3 {
		p.restart(8)
		jr := p.Serve(p.R, "recv -at %s:4000 -limit 100s", p.R.IP())
		jk := p.Serve(p.K, "recv -at %s:4000 -limit 100s", p.K.IP())
		sr := p.R.Start(p.T, p.At(p.R, "send -from %s:5000 -to %s:4000 -n 20 -limit 100s", p.R.IP(), p.K.IP()))
		sk := p.K.Start(p.T, p.At(p.K, "send -from %s:5000 -to %s:4000 -n 20 -limit 100s", p.K.IP(), p.R.IP()))
		for _, j := range []*lab.Job{sr, sk, jr, jk} {
			p.Ended(j)
		}
		p.Until(fmt.Sprintf("eight lanes in round %d", i), time.Minute, func() bool { f, _ := p.connections(p.R); return len(f) == 8 })
	}
}

// down waits until rdsd gives up its connections to a peer that has vanished. It checks that this
// takes at least half of tcp.timeout, and at most 30 s more than tcp.timeout.
func (p *pair) down() {
	p.Helper()
	start := time.Now()
	p.Until("end of the connections", p.timeout+30*time.Second, func() bool {
		return !strings.Contains(p.R.Run(p.T, lab.StepLimit, rdsctl+"peers"), " up ")
	})
	if d := time.Since(start); d < p.timeout/2 {
		p.Errorf("given up after %v already", d)
	} else {
		p.Logf("given up after %v", d)
	}
}

// blackHole lets a host vanish while messages are in progress. It checks that rdsd gives the host
// up after tcp.timeout, long before TCP's own limits, and that the messages arrive when it is back.
func blackHole(p *pair) {
	p.restart(1) // with more lanes a kernel may take messages for duplicates and drop them
	p.Streams(p.R, p.K, 1, 10, "")
	j := p.Serve(p.K, "recv -at %s:4000 -limit 100s", p.K.IP())
	p.K.Run(p.T, time.Minute, "ip link set eth0 down")
	s := p.R.Start(p.T, p.At(p.R, "send -from %s:5000 -to %s:4000 -n 20 -limit 100s", p.R.IP(), p.K.IP()))
	p.down()
	p.K.Run(p.T, time.Minute, "ip link set eth0 up")
	p.Ended(s)
	p.Ended(j)
}

// silence checks that keepalive finds a host that vanishes while no message is in progress.
func silence(p *pair) {
	p.restart(1)
	p.Streams(p.R, p.K, 1, 10, "")
	p.K.Run(p.T, time.Minute, "ip link set eth0 down")
	p.down()
	p.K.Run(p.T, time.Minute, "ip link set eth0 up")
	p.Streams(p.R, p.K, 1, 10, "")
}
