package main

import (
	"fmt"
	"slices"

	"github.com/rdsd/rdsd/test/bench/worker"
)

// figureName names one of a case's figures.
type figureName string

const (
	mainFigure figureName = "main"
	p99Figure  figureName = "p99"
	p999Figure figureName = "p99.9"
	cpuFigure  figureName = "cpu"
	allocs     figureName = "allocs"
	kibEach    figureName = "kib_each"        // extras of workers
	cpuPercent figureName = "cpu_percent"     //
	wakeupRate figureName = "wakeups_per_s"   //
	sysCalls   figureName = worker.CallsExtra //
)

// ref names a figure of a case.
type ref struct {
	name   string
	figure figureName
}

// goal is a bound for a figure, or for its ratio to another figure of the same run.
type goal struct {
	measure string
	of      ref
	over    *ref // nil: the bound is for the figure itself
	atLeast bool // otherwise the bound is an upper one
	limit   float64
	stretch float64 // 0: none
	unit    string
}

func (g goal) text() string {
	sign := "<="
	if g.atLeast {
		sign = ">="
	}
	what := ""
	if g.over != nil {
		what = "x " + g.over.name
		if g.over.figure != mainFigure {
			what += " " + string(g.over.figure)
		}
	} else {
		what = " " + g.unit
	}
	return fmt.Sprintf("%s %g%s", sign, g.limit, what)
}

// holds reports whether v is within limit.
func (g goal) holds(v, limit float64) bool {
	if g.atLeast {
		return v >= limit
	}
	return v <= limit
}

// verdict says how a figure meets its goal.
type verdict string

const (
	met       verdict = "met"
	stretched verdict = "met, stretch too"
	missed    verdict = "MISSED"
	unknown   verdict = "not measured"
)

// judge returns the verdict on v.
func (g goal) judge(v float64) verdict {
	switch {
	case !g.holds(v, g.limit):
		return missed
	case g.stretch != 0 && g.holds(v, g.stretch):
		return stretched
	}
	return met
}

// ratioGoal and boundGoal are short forms for the table below.
func ratioGoal(measure, of, over string, atLeast bool, limit, stretch float64) goal {
	return goal{measure: measure, of: ref{of, mainFigure}, over: &ref{over, mainFigure}, atLeast: atLeast, limit: limit, stretch: stretch}
}

func boundGoal(measure, of string, f figureName, atLeast bool, limit, stretch float64, unit string) goal {
	return goal{measure: measure, of: ref{of, f}, atLeast: atLeast, limit: limit, stretch: stretch, unit: unit}
}

// figures returns g for other figures than the main ones.
func (g goal) figures(of, over figureName) goal {
	g.of.figure = of
	if g.over != nil {
		g.over = &ref{g.over.name, over}
	}
	return g
}

// unnoticed is the tolerance of goals that say that nothing gets worse. It is smaller than the
// machine's own differences between runs.
const unnoticed = 0.2

// more and less are values of atLeast in the table of goals.
const more, less = true, false

// goals returns the table of goals.
func goals() []goal {
	return slices.Concat(datagramGoals(), operationGoals(), localGoals(), crowdGoals(), verbsGoals(), costGoals())
}

// datagramGoals has the goals of rates and round trips between two hosts.
func datagramGoals() []goal {
	return []goal{
		ratioGoal("one-way rate", "rds-rate", "model-rate", more, 0.7, 0.9),
		ratioGoal("one-way rate", "rds-rate", "tcp-rate", more, 30, 0),
		ratioGoal("one-way rate", "rds-rate", "zmq-rate", more, 3, 0),
		boundGoal("one-way rate", "rds-rate", mainFigure, more, 8, 12, "M/s"),
		// Threads may call at the same time, so the bare path has a lock here (docs/performance/2026-11-23-runs.md).
		ratioGoal("one-way rate, single calls", "rds-rate-1", "model-rate-1-lock", more, 0.7, 0),
		ratioGoal("round trip p50", "rds-rtt", "model-rtt", less, 1.3, 0),
		ratioGoal("round trip p50", "rds-rtt", "tcp-rtt", less, 2, 1),
		ratioGoal("round trip p50", "rds-rtt", "zmq-rtt", less, 0.4, 0),
		ratioGoal("round trip p99", "rds-rtt", "model-rtt", less, 1.3, 0).figures(p99Figure, p99Figure),
		ratioGoal("round trip p99", "rds-rtt", "tcp-rtt", less, 2, 1).figures(p99Figure, p99Figure),
		ratioGoal("round trip p99", "rds-rtt", "zmq-rtt", less, 0.4, 0).figures(p99Figure, p99Figure),
		ratioGoal("round trip p99", "rds-rtt", "rds-rtt", less, 3, 0).figures(p99Figure, mainFigure),
		ratioGoal("256 B datagrams", "rds-rate-256", "model-rate-256", more, 0.7, 0),
		ratioGoal("1 KiB datagrams", "rds-rate-1k", "model-rate-1k", more, 0.85, 0),
		ratioGoal("4 KiB datagrams", "rds-rate-4k", "model-rate-4k", more, 0.9, 0),
		ratioGoal("64 KiB datagrams", "rds-rate-64k", "model-rate-64k", more, 0.7, 0),
	}
}

// operationGoals has the goals of RDMA operations between two hosts.
func operationGoals() (gs []goal) {
	for _, at := range []string{"-1m", "-64m"} {
		gs = append(gs,
			ratioGoal("RDMA write, walking"+at, "rdma-write"+at, "model-bulk"+at, more, 0.85, 0),
			ratioGoal("RDMA write, walking"+at, "rdma-write"+at, "tcp-bulk"+at, more, 0.75, 0.9),
			ratioGoal("RDMA read, walking"+at, "rdma-read"+at, "rdma-write"+at, more, 0.9, 0))
	}
	return append(gs,
		ratioGoal("RDMA write 64 B", "rdma-write-64", "op-rtt", less, 0.9, 0),
		ratioGoal("RDMA read 64 B", "rdma-read-64", "op-rtt", less, 0.9, 0),
	)
}

// localGoals has the goals of datagrams and operations on one host.
func localGoals() []goal {
	return []goal{
		boundGoal("same host round trip", "local-rtt", mainFigure, less, 4, 1.5, "us"),
		ratioGoal("same host rate", "local-rate", "model-local-rate", more, 0.7, 0),
		boundGoal("same host rate", "local-rate", mainFigure, more, 20, 0, "M/s"),
		ratioGoal("same host RDMA write", "local-write-1m", "memcpy-1m", more, 0.7, 0),
		ratioGoal("same host RDMA write", "local-write-64m", "memcpy-64m", more, 0.7, 0),
	}
}

// crowdGoals has the goals of many sockets and many peers.
func crowdGoals() []goal {
	gs := []goal{
		ratioGoal("fan-in 64 to 1", "fan-in", "fan-one", more, 0.7, 0),
		ratioGoal("fan-out 1 to 64", "fan-out", "fan-one", more, 0.7, 0),
		ratioGoal("64 to 64", "fan-all", "fan-one", more, 0.5, 0),
		ratioGoal("same host fan-out 1 to 64", "local-fan-out", "local-fan-one", more, 0.5, 0),
		ratioGoal("same host 64 to 64", "local-fan-all", "local-fan-one", more, 0.5, 0),
	}
	for _, of := range []string{"flood", "flood-64k", "reads"} {
		gs = append(gs, ratioGoal("fairness: p99 beside "+of, "fair-"+of, "fair-quiet", less, 10, 0).figures(p99Figure, p99Figure))
	}
	for _, l := range []struct {
		what string
		kib  float64
	}{{"peers", 16}, {"sockets", 1}} {
		gs = append(gs,
			boundGoal("idle "+l.what+": memory", "idle-"+l.what+"-rtt", kibEach, less, l.kib, 0, "KiB each"),
			ratioGoal("idle "+l.what+": round trip", "idle-"+l.what+"-rtt", "idle-none-rtt", less, 1+unnoticed, 0),
			ratioGoal("idle "+l.what+": rate", "idle-"+l.what+"-rate", "idle-none-rate", more, 1-unnoticed, 0))
	}
	return gs
}

// verbsGoals has the goals of queue pairs without a daemon.
func verbsGoals() (gs []goal) {
	for _, v := range []struct {
		of             string
		limit, stretch float64
	}{{"verbs-write", 0.8, 0.9}, {"verbs-read", 0.8, 0.9}, {"verbs-write-crc", 0.4, 0}, {"verbs-read-crc", 0.4, 0}} {
		gs = append(gs, ratioGoal("queue pairs alone", v.of, "tcp-bulk-64m", more, v.limit, v.stretch))
	}
	return append(gs,
		boundGoal("queue pairs alone", "verbs-send", mainFigure, more, 5, 10, "M/s"))
}

// costGoals has the goals of what rdsd costs its host: processor time, garbage, system calls.
func costGoals() []goal {
	return []goal{
		ratioGoal("CPU at full rate", "rds-rate", "model-rate", less, 1.4, 0).figures(cpuFigure, cpuFigure),
		boundGoal("idle daemon: wake-ups", "idle-daemon", wakeupRate, less, 2, 0, "/s"),
		boundGoal("idle daemon: CPU", "idle-daemon", cpuPercent, less, 0.1, 0, "%"),
		ratioGoal("busy: hogs", "busy-hogs-rds", "busy-quiet-rds", less, 3, 0),
		ratioGoal("busy: hogs, one session", "busy-session-rds", "busy-quiet-rds", less, 3, 0),
		ratioGoal("busy: CPU quota", "busy-quota-rds", "busy-quiet-rds", less, 3, 0),
		boundGoal("garbage: rate", "rds-rate", allocs, less, 0.001, 0, "a message"),
		boundGoal("garbage: single calls", "rds-rate-1", allocs, less, 0.001, 0, "a message"),
		boundGoal("garbage: same host", "local-rate", allocs, less, 0.001, 0, "a message"),
		boundGoal("system calls: rate", "calls-rds", sysCalls, less, 0.01, 0, "a message"),
		boundGoal("system calls: single calls", "calls-rds-1", sysCalls, less, 0.01, 0, "a message"),
		boundGoal("system calls: same host", "calls-local", sysCalls, less, 0.01, 0, "a message"),
		ratioGoal("garbage: p99.9 with 1 GiB heap", "gc-rtt", "gc-quiet", less, 1+unnoticed, 0).figures(p999Figure, p999Figure),
	}
}
