package rdsib

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/test/vmlab/lab"
)

const (
	sizes = " -sizes 0-20,1000,4095-4097,8192,8193,70000,1048576 "
	asked = " -sizes 1-3,4095-4097,65536,1000000 "
)

// rdsctl of an emulated host, which may stand still for a time.
const rdsctl = "rdsctl --timeout 60s --socket " + lab.Control + " "

// pair is a host with rdsd and a host with the kernel's RDS.
type pair struct {
	lab.Pair
	daemon *lab.Job // rdsd
}

// TestRDSIB runs all cases with rdsd at the smaller address, then at the larger address. The
// numbers of cases are those of statements of test/conformance.
func TestRDSIB(t *testing.T) {
	if os.Getenv(lab.DirVariable) == "" {
		t.Skip("needs a virtual machine: make vm")
	}
	keep := lab.Short("larger", "133", "162", "91")
	for _, name := range []string{"smaller", "larger"} {
		if !keep(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			l := lab.Boot(t, lab.Config{Hosts: 2, Capture: true, Limit: lab.Life(18 * time.Minute)})
			p := &pair{Pair: lab.NewPair(t, l, name == "smaller")}
			l.Install(t, lab.Build(t, "cmd/rdsd", "-tags=ibv"), lab.Build(t, "cmd/rdsctl"), lab.Build(t, "test/vmlab/krds"))
			l.Each(t, time.Minute, `
				lab_load rdma_rxe rdma_ucm ib_uverbs sch_netem
				rdma link add rxe0 type rxe netdev eth0
				lab_sync rxe`)
			p.K.Load(t, "rds", "rds_rdma")
			p.start()
			for _, s := range []struct {
				name string
				run  func(*pair)
			}{
				{"133 pings", pings},
				{"162 sizes", everySize},
				{"177 congestion", func(p *pair) { p.Congestion() }},
				{"91 RDMA", operations},
				{"93 bad keys", badKeys},
				{"172 resets", resets},
				{"161 crossing", crossing},
				{"97 RDMA and resets", operationsAndResets},
				{"159 a dead link", deadLink},
				{"150 killed", func(p *pair) { p.Killed(p.daemon, p.start) }},
				{"156 IPv6", version6},
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

// start runs rdsd and makes the first connection to the kernel.
func (p *pair) start() {
	p.Helper()
	p.daemon = p.R.Start(p.T, `exec rdsd -socket `+lab.Control+` -transport verbs -listen $ME,$ME6 -peers-allow 10.9.0.0/24,fd00:9::/64 -peers-kernel 10.9.0.0/24,fd00:9::/64 -tls-mode off`)
	p.R.Run(p.T, 2*time.Minute, "lab_wait 100 rdsctl --socket "+lab.Control+" status >/dev/null")
	p.R.Run(p.T, lab.StepLimit, p.At(p.R, "ping -from %s -to %s -n 1", p.IP(p.R), p.IP(p.K))) // makes the connection
}

// both calls f twice: first rdsd's host begins, then the kernel's.
func (p *pair) both(f func(p *pair, from, to *lab.Host)) {
	p.Both(func(t *testing.T, from, to *lab.Host) {
		q := *p
		q.T = t
		f(&q, from, to)
	})
}

// peer returns what rdsd reports of its connection to the kernel.
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
	out := p.R.Run(p.T, lab.StepLimit, rdsctl+"peers -o json-v2")
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		p.Fatalf("%v: %s", err, out)
	}
	for _, b := range all.Peers {
		if err := json.Unmarshal(b, &x); err != nil {
			p.Fatal(err)
		}
		if x.Remote == p.IP(p.K) {
			return x
		}
	}
	p.Fatalf("no peer %s: %s", p.IP(p.K), out)
	return x
}

// reset makes rdsd break its connection to the kernel.
func (p *pair) reset() {
	p.Helper()
	p.R.Run(p.T, lab.StepLimit, rdsctl+"peer reset "+p.IP(p.K))
}

func pings(p *pair) {
	p.Pings(60)
	if x := p.peer(); !x.Kernel || x.State != "up" || x.Transport != "rxe0" {
		p.Errorf("%+v", x)
	}
}

func everySize(p *pair) {
	n := 60
	if testing.Short() {
		n = 30 // each size once
	}
	p.both(func(p *pair, from, to *lab.Host) { p.Streams(from, to, 4, n, sizes) })
	// The last messages ask for no ack. rdsd asks for it later, so in the end all are acked.
	p.Until("ack of everything", time.Minute, func() bool { return p.peer().Unacked == 0 })
}

// operations checks RDMA reads and writes of all sizes, and all bytes that they move. Some have local memory in two pieces, some
// are silent. Each uses memory that is registered for one use.
func operations(p *pair) {
	p.both(func(p *pair, from, to *lab.Host) {
		j := p.Serve(to, "rdma-serve -at %s -n 80 -limit 150s", p.Port(to, 4000))
		out := from.Run(p.T, lab.StepLimit, p.At(from, "rdma-ask -from %s -to %s -n 80 -silent -patience 60s -limit 150s"+asked, p.IP(from), p.Port(to, 4000)))
		if !strings.Contains(out, "80 operations in place, 0 asked for again") {
			p.Errorf("%q", out)
		}
		if out := p.Ended(j); !strings.Contains(out, "80 operations: 80 status 0") {
			p.Errorf("%q", out)
		}
	})
	if n := p.peer().Resets; n != 0 {
		p.Errorf("%d resets: %s", n, p.peer().LastError)
	}
}

// kill kills a server of operations. It fails the test if the server has ended before, which the
// server does when it finds an error.
func (p *pair) kill(j *lab.Job) {
	p.Helper()
	select {
	case <-j.Done():
		p.Errorf("the server ended: %s", j.Out())
	default:
		j.Kill()
	}
}

// badKeys checks that a key that the other side refuses breaks the connection and does nothing else.
func badKeys(p *pair) {
	p.both(func(p *pair, from, to *lab.Host) {
		before := p.peer().Resets
		j := to.Start(p.T, p.At(to, "rdma-serve -at %s -n 1000000 -limit 170s", p.Port(to, 4001)))
		p.Until("a server", time.Minute, func() bool { return strings.Contains(j.Out(), "ready") })
		// Each bad key has a process of its own, because the kernel may finish a broken connection
		// only when the program that has registrations on it has ended.
		for range 4 {
			out := from.Run(p.T, lab.StepLimit, p.At(from, "rdma-ask -from %s -to %s -n 10 -bad 10 -patience 8s -limit 40s"+asked, p.IP(from), p.Port(to, 4001)))
			if !strings.Contains(out, "9 operations in place") {
				p.Errorf("%q", out)
			}
		}
		p.kill(j)
		if n := p.peer().Resets - before; n < 4 {
			p.Errorf("%d resets", n)
		}
		p.Streams(from, to, 1, 20, "")
	})
}

// resets checks that a connection that breaks while both sides send loses nothing and delivers
// nothing twice.
func resets(p *pair) {
	const more = " -sizes 0,100,5000,60000 "
	before := p.peer().Resets
	jr := p.Serve(p.R, "recv -at %s -limit 150s"+more, p.Port(p.R, 4000))
	jk := p.Serve(p.K, "recv -at %s -limit 150s"+more, p.Port(p.K, 4000))
	sr := p.R.Start(p.T, p.At(p.R, "send -from %s -to %s -n 400 -limit 150s"+more, p.Port(p.R, 5000), p.Port(p.K, 4000)))
	sk := p.K.Start(p.T, p.At(p.K, "send -from %s -to %s -n 400 -limit 150s"+more, p.Port(p.K, 5000), p.Port(p.R, 4000)))
	for range 6 {
		select {
		case <-sr.Done():
		default:
			p.reset()
			time.Sleep(time.Second)
		}
	}
	for _, j := range []*lab.Job{sr, sk} {
		p.Ended(j)
	}
	for _, j := range []*lab.Job{jr, jk} {
		if out := p.Ended(j); !strings.Contains(out, "400 messages") {
			p.Errorf("%q", out)
		}
	}
	if n := p.peer().Resets - before; n == 0 {
		p.Error("no reset")
	}
}

// crossing breaks the connection while both sides have something to send, so that both connect at
// the same time. It does so 10 times, or as often as RDSD_VMLAB_CROSSINGS says.
func crossing(p *pair) {
	n := 10
	if s := os.Getenv("RDSD_VMLAB_CROSSINGS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			p.Fatal(err)
		}
	}
	before := p.peer().Resets
	k := p.K.Start(p.T, "until [ -e /xfer/crossed ]; do "+p.At(p.K, "ping -from %s -to %s -n 1", p.IP(p.K), p.IP(p.R))+" || exit 1; done")
	p.R.Run(p.T, lab.StepLimit+time.Duration(n)*5*time.Second, fmt.Sprintf("for i in $(seq %d); do %s peer reset %s && %s || exit 1; done; touch /xfer/crossed",
		n, rdsctl, p.IP(p.K), p.At(p.R, "ping -from %s -to %s -n 1", p.IP(p.R), p.IP(p.K))))
	p.Ended(k)
	if resets := p.peer().Resets - before; resets < n {
		p.Errorf("%d resets", resets)
	} else {
		p.Logf("%d resets", resets)
	}
}

// operationsAndResets checks that operations that a reset has ended can be asked for again until
// all are done.
func operationsAndResets(p *pair) {
	p.both(func(p *pair, from, to *lab.Host) {
		before := p.peer().Resets
		j := to.Start(p.T, p.At(to, "rdma-serve -at %s -n 1000000 -limit 170s", p.Port(to, 4002)))
		p.Until("a server", time.Minute, func() bool { return strings.Contains(j.Out(), "ready") })
		a := from.Start(p.T, p.At(from, "rdma-ask -from %s -to %s -n 60 -patience 8s -limit 150s -sizes 5000,300000", p.IP(from), p.Port(to, 4002)))
		for range 5 {
			select {
			case <-a.Done():
			case <-j.Done():
				p.Fatalf("the server ended: %s", j.Out())
			case <-time.After(500 * time.Millisecond):
				p.reset()
			}
		}
		if out := p.Ended(a); !strings.Contains(out, "60 operations in place") {
			p.Errorf("%q", out)
		} else {
			p.Logf("%s%d resets", out, p.peer().Resets-before)
		}
		if p.peer().Resets == before {
			p.Error("no reset")
		}
		p.kill(j)
	})
}

// deadLink checks that both sides connect again, and that messages arrive once, after a link has
// carried nothing for 8 s.
func deadLink(p *pair) {
	p.both(func(p *pair, from, to *lab.Host) {
		const more = " -sizes 100,20000 "
		j := p.Serve(to, "recv -at %s -limit 150s"+more, p.Port(to, 4000))
		s := from.Start(p.T, p.At(from, "send -from %s -to %s -n 300 -limit 150s"+more, p.Port(from, 5000), p.Port(to, 4000)))
		p.K.Run(p.T, time.Minute, "tc qdisc add dev eth0 root netem loss 100%; sleep 8; tc qdisc del dev eth0 root")
		p.Ended(s)
		if out := p.Ended(j); !strings.Contains(out, "300 messages") {
			p.Errorf("%q", out)
		}
	})
}

// version6 checks IPv6, which has another port and other private data.
func version6(p *pair) {
	p.V6 = true
	pings(p)
	p.both(func(p *pair, from, to *lab.Host) { p.Streams(from, to, 2, 20, "") })
}
