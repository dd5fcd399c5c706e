package rdsib

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/test/vmlab/lab"
)

const (
	control = "/run/rdsd.sock"
	sizes   = " -sizes 0-20,1000,4095-4097,8192,8193,70000,1048576 "
	asked   = " -sizes 1-3,4095-4097,65536,1000000 "
	limit   = 3 * time.Minute // for a step
)

// pair is a host with rdsd and one with the kernel's RDS.
type pair struct {
	*testing.T
	r, k   *lab.Host // rdsd's, the kernel's
	v6     bool
	daemon *lab.Job
}

// TestRDSIB runs everything with rdsd at the smaller address, then at the larger.
func TestRDSIB(t *testing.T) {
	if os.Getenv(lab.DirVariable) == "" {
		t.Skip("needs a virtual machine: make vm")
	}
	for _, name := range []string{"smaller", "larger"} {
		t.Run(name, func(t *testing.T) {
			l := lab.Boot(t, lab.Config{Hosts: 2, Capture: true, Limit: 18 * time.Minute})
			p := &pair{T: t, r: l.A, k: l.B}
			if name == "larger" {
				p.r, p.k = l.B, l.A
			}
			l.Install(t, lab.Build(t, "cmd/rdsd", "-tags=ibv"), lab.Build(t, "cmd/rdsctl"), lab.Build(t, "test/vmlab/krds"))
			l.Each(t, time.Minute, `
				lab_load rdma_rxe rdma_ucm ib_uverbs sch_netem
				rdma link add rxe0 type rxe netdev eth0
				lab_sync rxe`)
			p.k.Load(t, "rds", "rds_rdma")
			p.start()
			for _, s := range []struct {
				name string
				run  func(*pair)
			}{
				{"133 pings", pings},
				{"162 sizes", everySize},
				{"177 congestion", congestion},
				{"91 RDMA", operations},
				{"93 bad keys", badKeys},
				{"172 resets", resets},
				{"161 crossing", crossing},
				{"97 RDMA and resets", operationsAndResets},
				{"159 a dead link", deadLink},
				{"150 killed", killed},
				{"156 IPv6", version6},
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

func (p *pair) start() {
	p.Helper()
	p.daemon = p.r.Start(p.T, `exec rdsd -socket `+control+` -transport verbs -listen $ME,$ME6 -peers-allow 10.9.0.0/24,fd00:9::/64 -tls-mode off`)
	p.r.Run(p.T, 2*time.Minute, "lab_wait 100 rdsctl --socket "+control+" status >/dev/null")
	p.r.Run(p.T, limit, p.at(p.r, "ping -from %s -to %s -n 1", p.ip(p.r), p.ip(p.k))) // so that there is a connection
}

func (p *pair) ip(h *lab.Host) string {
	if !p.v6 {
		return h.IP()
	}
	return "fd00:9::" + h.IP()[len(h.IP())-1:]
}

func (p *pair) port(h *lab.Host, n int) string {
	if !p.v6 {
		return fmt.Sprintf("%s:%d", p.ip(h), n)
	}
	return fmt.Sprintf("[%s]:%d", p.ip(h), n)
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

// peer is what rdsd says of its connection to the kernel.
func (p *pair) peer() (x struct {
	Remote    string
	State     string
	Kernel    bool
	Transport string
	Resets    int
	LastError string `json:"last_error"`
	Unacked   int    `json:"unacked_messages"`
}) {
	p.Helper()
	var all struct{ Peers []json.RawMessage }
	out := p.r.Run(p.T, time.Minute, "rdsctl --socket "+control+" peers -o json")
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		p.Fatalf("%v: %s", err, out)
	}
	for _, b := range all.Peers {
		if err := json.Unmarshal(b, &x); err != nil {
			p.Fatal(err)
		}
		if x.Remote == p.ip(p.k) {
			return x
		}
	}
	p.Fatalf("no peer %s: %s", p.ip(p.k), out)
	return x
}

func (p *pair) reset() {
	p.Helper()
	p.r.Run(p.T, time.Minute, "rdsctl --socket "+control+" peer reset "+p.ip(p.k))
}

func pings(p *pair) {
	p.both(func(p *pair, from, to *lab.Host) {
		out := from.Run(p.T, limit, p.at(from, "ping -from %s -to %s -n 60", p.ip(from), p.ip(to)))
		if !strings.Contains(out, "60 pings") {
			p.Errorf("%q", out)
		}
	})
	if x := p.peer(); !x.Kernel || x.State != "up" || x.Transport != "rxe0" {
		p.Errorf("%+v", x)
	}
}

// streams sends from many sockets at once, every byte checked.
func streams(p *pair, from, to *lab.Host, sockets, n int, more string) {
	p.Helper()
	j := p.serve(to, "recv -at %s -streams %d %s -limit 150s", p.port(to, 4000), sockets, more)
	from.Run(p.T, limit, p.at(from, "send -from %s -to %s -sockets %d -n %d %s -limit 150s", p.port(from, 5000), p.port(to, 4000), sockets, n, more))
	if out := p.ended(j); strings.Count(out, "0 lost") != sockets {
		p.Errorf("%q", out)
	}
}

func everySize(p *pair) {
	p.both(func(p *pair, from, to *lab.Host) { streams(p, from, to, 4, 60, sizes) })
	// What nobody asks to be acked is acked some time all the same.
	p.until("ack of everything", time.Minute, func() bool { return p.peer().Unacked == 0 })
}

// A receiver that is slow holds its sender up, and nothing is lost.
func congestion(p *pair) {
	p.both(func(p *pair, from, to *lab.Host) {
		const more = " -sizes 100000 "
		j := p.serve(to, "recv -at %s -rcvbuf 300000 -delay 20ms -limit 150s"+more, p.port(to, 4000))
		from.Run(p.T, limit, p.at(from, "send -nonblock -from %s -to %s -n 80 -limit 150s"+more, p.port(from, 5000), p.port(to, 4000)))
		p.ended(j)
	})
}

// RDMA of all sizes, in pieces, silent ones among them; each in memory registered
// for one use.
func operations(p *pair) {
	p.both(func(p *pair, from, to *lab.Host) {
		j := p.serve(to, "rdma-serve -at %s -n 80 -limit 150s", p.port(to, 4000))
		out := from.Run(p.T, limit, p.at(from, "rdma-ask -from %s -to %s -n 80 -silent -patience 60s -limit 150s"+asked, p.ip(from), p.port(to, 4000)))
		if !strings.Contains(out, "80 operations in place, 0 asked for again") {
			p.Errorf("%q", out)
		}
		if out := p.ended(j); !strings.Contains(out, "80 operations: 80 status 0") {
			p.Errorf("%q", out)
		}
	})
	if n := p.peer().Resets; n != 0 {
		p.Errorf("%d resets: %s", n, p.peer().LastError)
	}
}

// A key that the other side refuses costs the connection, and nothing else.
func badKeys(p *pair) {
	p.both(func(p *pair, from, to *lab.Host) {
		before := p.peer().Resets
		j := to.Start(p.T, p.at(to, "rdma-serve -at %s -n 1000000 -limit 170s", p.port(to, 4001)))
		p.until("a server", time.Minute, func() bool { return strings.Contains(j.Out(), "ready") })
		// One process for each bad key: the kernel finishes a broken connection
		// when the program that holds its registrations has ended, at the latest.
		for range 4 {
			out := from.Run(p.T, limit, p.at(from, "rdma-ask -from %s -to %s -n 10 -bad 10 -patience 8s -limit 40s"+asked, p.ip(from), p.port(to, 4001)))
			if !strings.Contains(out, "9 operations in place") {
				p.Errorf("%q", out)
			}
		}
		j.Kill()
		if n := p.peer().Resets - before; n < 4 {
			p.Errorf("%d resets", n)
		}
		streams(p, from, to, 1, 20, "")
	})
}

// Connections that break off under load, in both directions at once, lose nothing
// and deliver nothing twice.
func resets(p *pair) {
	const more = " -sizes 0,100,5000,60000 "
	before := p.peer().Resets
	jr := p.serve(p.r, "recv -at %s -limit 150s"+more, p.port(p.r, 4000))
	jk := p.serve(p.k, "recv -at %s -limit 150s"+more, p.port(p.k, 4000))
	sr := p.r.Start(p.T, p.at(p.r, "send -from %s -to %s -n 400 -limit 150s"+more, p.port(p.r, 5000), p.port(p.k, 4000)))
	sk := p.k.Start(p.T, p.at(p.k, "send -from %s -to %s -n 400 -limit 150s"+more, p.port(p.k, 5000), p.port(p.r, 4000)))
	for range 6 {
		select {
		case <-sr.Done():
		default:
			p.reset()
			time.Sleep(time.Second)
		}
	}
	for _, j := range []*lab.Job{sr, sk} {
		p.ended(j)
	}
	for _, j := range []*lab.Job{jr, jk} {
		if out := p.ended(j); !strings.Contains(out, "400 messages") {
			p.Errorf("%q", out)
		}
	}
	if n := p.peer().Resets - before; n == 0 {
		p.Error("no reset")
	}
}

// Both have something to send when the connection is gone.
func crossing(p *pair) {
	for range 10 {
		p.reset()
		pr := p.r.Start(p.T, p.at(p.r, "ping -from %s -to %s -n 1", p.ip(p.r), p.ip(p.k)))
		pk := p.k.Start(p.T, p.at(p.k, "ping -from %s -to %s -n 1", p.ip(p.k), p.ip(p.r)))
		p.ended(pr)
		p.ended(pk)
	}
}

func operationsAndResets(p *pair) {
	p.both(func(p *pair, from, to *lab.Host) {
		j := to.Start(p.T, p.at(to, "rdma-serve -at %s -n 1000000 -limit 170s", p.port(to, 4002)))
		p.until("a server", time.Minute, func() bool { return strings.Contains(j.Out(), "ready") })
		a := from.Start(p.T, p.at(from, "rdma-ask -from %s -to %s -n 60 -patience 8s -limit 150s -sizes 5000,300000", p.ip(from), p.port(to, 4002)))
		for n := 0; n < 5; n++ {
			select {
			case <-a.Done():
			case <-time.After(2 * time.Second):
				p.reset()
			}
		}
		if out := p.ended(a); !strings.Contains(out, "60 operations in place") {
			p.Errorf("%q", out)
		} else {
			p.Log(out)
		}
		j.Kill()
	})
}

// A link that carries nothing for a while: both find out, and come back.
func deadLink(p *pair) {
	p.both(func(p *pair, from, to *lab.Host) {
		const more = " -sizes 100,20000 "
		j := p.serve(to, "recv -at %s -limit 150s"+more, p.port(to, 4000))
		s := from.Start(p.T, p.at(from, "send -from %s -to %s -n 300 -limit 150s"+more, p.port(from, 5000), p.port(to, 4000)))
		p.k.Run(p.T, time.Minute, "tc qdisc add dev eth0 root netem loss 100%; sleep 8; tc qdisc del dev eth0 root")
		p.ended(s)
		if out := p.ended(j); !strings.Contains(out, "300 messages") {
			p.Errorf("%q", out)
		}
	})
}

// After kill -9 nothing comes twice to a socket that lives on, and what is sent
// after the restart arrives.
func killed(p *pair) {
	j := p.serve(p.k, "recv -lossy -at %s -streams 1 -limit 170s", p.port(p.k, 4000))
	s := p.r.Start(p.T, p.at(p.r, "send -lossy -from %s -to %s -n 100000 -sizes 24,3000 -limit 150s", p.port(p.r, 5000), p.port(p.k, 4000)))
	time.Sleep(5 * time.Second)
	p.r.Run(p.T, time.Minute, "pkill -9 -x rdsd")
	p.daemon.Wait(time.Minute)
	s.Wait(time.Minute)
	p.start()
	p.r.Run(p.T, limit, p.at(p.r, "send -lossy -from %s -to %s -n 50 -sizes 24,3000 -seed 7 -limit 150s", p.port(p.r, 5000), p.port(p.k, 4000)))
	if out := p.ended(j); !strings.Contains(out, "50 messages, 75600 bytes, 0 lost") {
		p.Errorf("%q", out)
	}
	streams(p, p.k, p.r, 1, 50, "")
}

// version6 is the other port and the other private data.
func version6(p *pair) {
	p.v6 = true
	pings(p)
	p.both(func(p *pair, from, to *lab.Host) { streams(p, from, to, 2, 20, "") })
}
