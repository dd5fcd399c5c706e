package loadgen

import (
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"time"

	"github.com/rdsd/rdsd/internal/latency"
)

// Interval is what was done in some time.
type Interval struct {
	Time       time.Duration    `json:"time_ns"`
	Operations uint64           `json:"operations"`
	Bytes      uint64           `json:"bytes"`
	Latency    *latency.Summary `json:"latency,omitempty"`
}

// CPU is the CPU time of the measurement, nanoseconds; nil: not known.
type CPU struct {
	Client       *time.Duration `json:"client_ns,omitempty"` // with both ends in one process: of both
	ClientDaemon *time.Duration `json:"client_daemon_ns,omitempty"`
	Server       *time.Duration `json:"server_ns,omitempty"`
	ServerDaemon *time.Duration `json:"server_daemon_ns,omitempty"`
}

// Environment is what figures depend on.
type Environment struct {
	CPUs    int    `json:"cpus"`
	Arch    string `json:"arch"`
	Go      string `json:"go"`
	Version string `json:"rdsctl"`
}

// Report is a measurement.
type Report struct {
	Mode        string           `json:"mode"`
	Local       netip.Addr       `json:"local"`
	Server      netip.AddrPort   `json:"server"`
	OneProcess  bool             `json:"one_process"` // the server was in this process
	Size        int              `json:"size_bytes"`
	Depth       int              `json:"depth"`
	Sockets     int              `json:"sockets"`
	Rate        float64          `json:"rate_per_second,omitempty"` // open loop
	Sample      int              `json:"sample,omitempty"`          // one in so many has its latency measured
	Verified    bool             `json:"verified"`                  // every byte was compared, and nothing was wrong
	Started     time.Time        `json:"started"`
	WarmUp      time.Duration    `json:"warm_up_ns"`
	Interrupted bool             `json:"interrupted"`
	Interval                     // all of it
	PerSecond   float64          `json:"operations_per_second"`
	BytesPerSec float64          `json:"bytes_per_second"`
	Late        *latency.Summary `json:"late,omitempty"` // open loop: how late operations began
	Sent        uint64           `json:"sent"`           // messages, warm-up included
	Received    uint64           `json:"received"`       // by the server
	CPU         CPU              `json:"cpu"`
	Intervals   []Interval       `json:"intervals"`
	Environment Environment      `json:"environment"`
	Failure     string           `json:"failure,omitempty"`
}

func environment(version string) Environment {
	return Environment{runtime.NumCPU(), runtime.GOARCH, runtime.Version(), version}
}

func (i *Interval) perSecond(n uint64) float64 { return latency.PerSecond(n, i.Time) }

func us(d time.Duration) string {
	return fmt.Sprintf("%.2f", float64(d)/float64(time.Microsecond))
}

// columns of an interval's line.
const columns = "%10s %12s %10s %10s %10s %10s %10s\n"

// Header prints the names of an interval's columns.
func Header(w io.Writer) {
	fmt.Fprintf(w, columns, "seconds", "per second", "MB/s", "p50 us", "p99 us", "p99.9 us", "max us")
}

// Print prints an interval that ended at end.
func (i *Interval) Print(w io.Writer, end time.Duration) {
	l := i.Latency
	cells := [4]string{"-", "-", "-", "-"}
	if l != nil {
		cells = [4]string{us(l.P50), us(l.P99), us(l.P999), us(l.Max)}
	}
	fmt.Fprintf(w, columns, fmt.Sprintf("%.1f", end.Seconds()), fmt.Sprintf("%.0f", i.perSecond(i.Operations)),
		fmt.Sprintf("%.2f", i.perSecond(i.Bytes)/1e6), cells[0], cells[1], cells[2], cells[3])
}

// Print prints the whole of it for people.
func (r *Report) Print(w io.Writer) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-12s "+format+"\n", append([]any{name}, args...)...)
	}
	where := "between two processes"
	if r.OneProcess {
		where = "both ends in this process"
	}
	row("measured", "%s of %d bytes, %d sockets with %d outstanding, %v to %v, %s", r.Mode, r.Size, r.Sockets, r.Depth, r.Local, r.Server, where)
	row("rate", "%.0f a second, %.2f MB/s, over %v", r.PerSecond, r.BytesPerSec/1e6, r.Time.Round(time.Millisecond))
	distribution := func(name string, l *latency.Summary) {
		if l != nil {
			row(name, "min %s, mean %s, p50 %s, p90 %s, p99 %s, p99.9 %s, p99.99 %s, max %s us (%d)", us(l.Min), us(l.Mean), us(l.P50), us(l.P90), us(l.P99), us(l.P999), us(l.P9999), us(l.Max), l.Count)
		}
	}
	distribution("latency", r.Latency)
	if r.Late != nil {
		row("", "from when each was due: %.0f a second were asked for", r.Rate)
		distribution("begun late", r.Late)
	}
	r.CPU.print(row, r.Operations)
	checked := "counts only; -verify compares every byte"
	if r.Verified {
		checked = "every byte was as expected: none lost, twice, out of order or corrupt"
	}
	if r.Failure != "" {
		checked = r.Failure
	}
	if r.Sent > 0 {
		row("messages", "%d sent, %d received, warm-up included", r.Sent, r.Received)
	}
	row("checked", "%s", checked)
}

func (c *CPU) print(row func(string, string, ...any), ops uint64) {
	var all time.Duration
	for _, x := range []struct {
		name string
		d    *time.Duration
	}{{"client", c.Client}, {"its daemon", c.ClientDaemon}, {"server", c.Server}, {"its daemon", c.ServerDaemon}} {
		if x.d != nil {
			row("cpu", "%s %v", x.name, x.d.Round(time.Millisecond))
			all += *x.d
		}
	}
	if ops > 0 {
		row("", "%.2f us in all for each operation", float64(all)/float64(time.Microsecond)/float64(ops))
	}
}
