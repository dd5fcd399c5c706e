package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rdsd/rdsd/internal/wait"
)

// way is a key that names a way to wait.
func way(p *wait.Strategy) value {
	return scalar(quoted, func(s string) (err error) {
		*p, err = wait.Parse(s)
		return err
	}, func() string { return p.String() })
}

// CPURange is the CPUs from First to Last, as Linux numbers them.
type CPURange struct{ First, Last int }

// String is the form that the configuration has.
func (r CPURange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// AutoThreads is io.threads = auto.
const AutoThreads = -1

// Threads returns how many I/O threads a daemon has that may use so many CPUs, and whether they have only what
// its engine has no time for.
func (c *Config) Threads(cpus int) (n int, spill bool) {
	if c.IOThreads != AutoThreads {
		return c.IOThreads, false
	}
	return min(max(cpus-2, 0), 4), true
}

// threads is a key that has a number of I/O threads, or "auto".
func threads(p *int, most uint64) value {
	n := number(p, 0, most)
	return scalar(quoted|integer, func(s string) error {
		if s == auto {
			*p = AutoThreads
			return nil
		}
		return n.set([]string{s})
	}, func() string {
		if *p == AutoThreads {
			return auto
		}
		return n.get()
	})
}

const auto = "auto"

// mostCPU is the highest number that the system call takes.
const mostCPU = 1023

func parseCPUs(s string) (CPURange, error) {
	first, last, ranged := strings.Cut(s, "-")
	if !ranged {
		last = first
	}
	a, err := strconv.ParseUint(first, 10, 16)
	b, err2 := strconv.ParseUint(last, 10, 16)
	if err != nil || err2 != nil || a > b || b > mostCPU {
		return CPURange{}, fmt.Errorf(`%q is no CPU and no range of CPUs from 0 to %d`, s, mostCPU)
	}
	return CPURange{int(a), int(b)}, nil
}
