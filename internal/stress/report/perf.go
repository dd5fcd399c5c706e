package report

import (
	"fmt"
	"io"
	"strings"
)

// Counter is the value of one of the daemon's counters.
type Counter struct {
	Name  string
	Value uint64
}

// Perf prints rds-stress's CSV, whose lines begin with "::". It has the columns, the daemon's
// counters and the machine's CPU times.
type Perf struct {
	W                             io.Writer
	ReqBytes, AckBytes, RDMABytes int
	last                          []Counter
	cpu                           CPUTimes
}

// Header prints the names of the columns. The first line's differences are from counters and
// cpu.
func (p *Perf) Header(counters []Counter, cpu CPUTimes) {
	fmt.Fprint(p.W, "::nr_tasks:count,req_size:bytes,ack_size:bytes,rdma_size:bytes,req_sent:count,thruput:kB/s,thruput_rdma:kB/s,tx_delay:microseconds,rtt:microseconds,cpu:percent")
	for _, c := range counters {
		unit := "count"
		if strings.Contains(c.Name, "_bytes") {
			unit = "bytes"
		}
		fmt.Fprintf(p.W, ",%s:%s", c.Name, unit)
	}
	fmt.Fprintln(p.W, ",user:percent,system:percent,idle:percent,irq:percent,intr:count")
	p.last, p.cpu = counters, cpu
}

// Line prints one line. counters are the daemon's present ones, in the header's order.
func (p *Perf) Line(l *Line, counters []Counter, cpu CPUTimes) {
	fmt.Fprintf(p.W, "::%d,%d,%d,%d,%d,%f,%f,%f,%f,%f", l.Tasks, p.ReqBytes, p.AckBytes, p.RDMABytes, l.RequestsSent,
		l.thruput(), l.perSecond(l.RDMAInBytes+l.RDMAOutBytes)/1024, mean(l.SendTime, l.SendCalls), mean(l.RoundTripTime, l.RoundTrips), max(l.CPU, 0))
	for i, was := range p.last {
		now := was.Value
		if i < len(counters) && counters[i].Name == was.Name {
			now = counters[i].Value
			p.last[i].Value = now
		}
		d := float64(int64(now - was.Value)) // negative if a gauge has gone down
		if l.Time > 0 {
			d /= l.Time.Seconds()
		}
		fmt.Fprintf(p.W, ",%f", d)
	}
	d := cpu.since(p.cpu)
	p.cpu = cpu
	all := max(d.User+d.System+d.Idle+d.IRQ, 1)
	percent := func(n uint64) float64 { return 100 * float64(n) / float64(all) }
	fmt.Fprintf(p.W, ",%f,%f,%f,%f,%d\n", percent(d.User), percent(d.System), percent(d.Idle), percent(d.IRQ), d.Interrupts)
}
