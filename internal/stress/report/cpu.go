package report

import (
	"bytes"
	"os"
	"strconv"
)

// CPUTimes is the time that the machine's CPUs have spent since it started, in ticks.
type CPUTimes struct {
	User, System, Idle, IRQ uint64
	Interrupts              uint64
}

func (c CPUTimes) since(b CPUTimes) CPUTimes {
	return CPUTimes{c.User - b.User, c.System - b.System, c.Idle - b.Idle, c.IRQ - b.IRQ, c.Interrupts - b.Interrupts}
}

// Busy returns the percentage of all CPUs' time since b that was not idle.
func (c CPUTimes) Busy(b CPUTimes) float64 {
	d := c.since(b)
	all := d.User + d.System + d.Idle + d.IRQ
	if all == 0 {
		return 0
	}
	return 100 * float64(all-d.Idle) / float64(all)
}

// ReadCPU reads the times from /proc/stat.
func ReadCPU() (CPUTimes, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return CPUTimes{}, err
	}
	return parseCPU(b), nil
}

// parseCPU reads the lines "cpu" (user nice system idle iowait irq softirq steal) and "intr". A
// field that is missing counts as 0.
func parseCPU(stat []byte) (c CPUTimes) {
	for line := range bytes.Lines(stat) {
		f := bytes.Fields(line)
		field := func(i int) uint64 {
			if i >= len(f) {
				return 0
			}
			n, _ := strconv.ParseUint(string(f[i]), 10, 64)
			return n
		}
		switch {
		case len(f) == 0:
		case string(f[0]) == "cpu":
			c.User, c.System = field(1)+field(2), field(3)+field(8)
			c.Idle, c.IRQ = field(4)+field(5), field(6)+field(7)
		case string(f[0]) == "intr":
			c.Interrupts = field(1)
		}
	}
	return c
}
