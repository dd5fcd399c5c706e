package ibv

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/test/vmlab/lab"
)

// TestFaults has two daemons on two hosts under faults of the link and of each other. Messages
// must arrive once, in order, and unchanged.
func TestFaults(t *testing.T) {
	long(t)
	for _, driver := range []string{"rxe", "siw"} {
		t.Run(driver, func(t *testing.T) {
			l := lab.Boot(t, lab.Config{Hosts: 2, Limit: 12 * time.Minute})
			l.Install(t, lab.Build(t, "cmd/rdsd", "-tags=ibv"), lab.Build(t, "cmd/rdsctl"), lab.Build(t, "examples/blockstore"), lab.Build(t, "test/vmlab/krds"))
			f := &faults{Pair: lab.NewPair(t, l, true), driver: driver, file: l.File}
			f.Rdsds = true
			l.Each(t, time.Minute, fmt.Sprintf(`
				lab_load %[2]s rdma_ucm ib_uverbs sch_netem
				rdma link add %[1]s0 type %[1]s netdev eth0`, driver, modules[driver]))
			f.start(f.R)
			f.start(f.K)
			for _, s := range []struct {
				name string
				run  func(*faults)
			}{
				{"demo", demo},
				{"resets", streamsUnder(6, time.Second, func(f *faults) {
					f.reset(f.R, f.K)
				})},
				{"loss", streamsUnder(1, 0, func(f *faults) {
					f.K.Run(f.T, time.Minute, "tc qdisc add dev eth0 root netem loss 1%; sleep 5; tc qdisc del dev eth0 root")
				})},
				{"dead link", streamsUnder(1, time.Second, func(f *faults) {
					f.K.Run(f.T, time.Minute, "tc qdisc add dev eth0 root netem loss 100%; sleep 8; tc qdisc del dev eth0 root")
				})},
				{"vanished", vanished},
				{"killed", func(f *faults) { f.Killed(f.daemon, func() { f.start(f.R) }) }},
			} {
				t.Run(s.name, func(t *testing.T) {
					g := *f
					g.T = t
					t.Cleanup(g.explain)
					s.run(&g)
					f.daemon = g.daemon
				})
			}
		})
	}
}

// faults are two hosts with rdsd.
type faults struct {
	lab.Pair
	file   func(name string) string // Lab.File
	driver string
	daemon *lab.Job // R's
}

func (f *faults) start(h *lab.Host) {
	f.Helper()
	j := h.Start(f.T, "exec rdsd -socket "+lab.Control+" -transport verbs -listen $ME -peers-allow 10.9.0.0/24 -tls-mode off")
	if h == f.R {
		f.daemon = j
	}
	h.Run(f.T, 2*time.Minute, "lab_wait 100 rdsctl -socket "+lab.Control+" status")
}

// explain logs what both hosts report of their connection when a case has failed.
func (f *faults) explain() {
	if !f.Failed() {
		return
	}
	for _, h := range []*lab.Host{f.R, f.K} {
		r := h.Start(f.T, `
			rdsctl -socket `+lab.Control+` peers -o wide
			rdsctl -socket `+lab.Control+` backlog
			rdma resource show qp
			rdma statistic show link `+f.driver+`0/1
			ip -brief addr show dev eth0
			dmesg | tail -n 20`).Wait(time.Minute)
		f.Logf("host %s:\n%s", h.Name(), r.Out)
	}
}

// reset resets h's connections to another host. Status 4 means that there are none yet.
func (f *faults) reset(h, to *lab.Host) {
	f.Helper()
	h.Run(f.T, time.Minute, "rdsctl -socket "+lab.Control+" peer reset "+f.IP(to)+" || [ $? = 4 ]")
}

// streamsUnder runs a fault several times while both hosts send.
func streamsUnder(times int, between time.Duration, fault func(*faults)) func(*faults) {
	return func(f *faults) {
		const more, n = " -sizes 0,100,5000,60000 ", 400
		var recvs, sends []*lab.Job
		for _, h := range []*lab.Host{f.R, f.K} {
			recvs = append(recvs, f.Serve(h, "recv -at %s -limit 150s"+more, f.Port(h, 4000)))
		}
		for i, h := range []*lab.Host{f.R, f.K} {
			to := []*lab.Host{f.K, f.R}[i]
			sends = append(sends, h.Start(f.T, f.At(h, "send -from %s -to %s -n %d -delay 10ms -limit 150s"+more, f.Port(h, 5000), f.Port(to, 4000), n)))
		}
		for range times {
			time.Sleep(between)
			fault(f)
		}
		for _, j := range sends {
			f.Ended(j)
		}
		for _, j := range recvs {
			if out := f.Ended(j); !strings.Contains(out, fmt.Sprintf("%d messages", n)) {
				f.Errorf("%q", out)
			}
		}
	}
}

// vanished checks that a peer that cannot be reached is given up, and comes back. With siw that
// takes as long as TCP's settings say, which is too long for a test.
func vanished(f *faults) {
	if f.driver == "siw" {
		f.Skip("tcp_retries2: a quarter of an hour")
	}
	recv := f.Serve(f.K, "recv -at %s -limit 150s", f.Port(f.K, 4000))
	send := f.R.Start(f.T, f.At(f.R, "send -from %s -to %s -n 400 -delay 10ms -limit 150s", f.Port(f.R, 5000), f.Port(f.K, 4000)))
	f.Until("connection", time.Minute, func() bool { return f.states() == "up" })
	f.K.Run(f.T, time.Minute, "tc qdisc add dev eth0 root netem loss 100%")
	start := time.Now()
	f.Until("end of the connection", 100*time.Second, func() bool { return f.states() != "up" })
	f.Logf("given up after %v", time.Since(start).Round(time.Second))
	f.K.Run(f.T, time.Minute, "tc qdisc del dev eth0 root")
	f.Ended(send)
	f.Ended(recv)
}

// states returns the states of R's connections.
func (f *faults) states() (all string) {
	f.Helper()
	for _, p := range f.connections(f.R) {
		all += p.State
	}
	return all
}

// connections returns what a host's daemon reports of its peers.
func (f *faults) connections(h *lab.Host) []ctl.PeerInfo {
	f.Helper()
	var r ctl.Response
	if out := h.Run(f.T, time.Minute, "rdsctl -socket "+lab.Control+" peers -o json-v2"); json.Unmarshal([]byte(out), &r) != nil {
		f.Fatal(out)
	}
	return r.Peers
}
