package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdsd/rdsd/internal/stats"
)

// groups are the names for -groups, in the order of the table.
var groups = []string{"rtt", "rate", "calls", "size", "rdma", "flows", "op", "rpc", "local", "fan", "fair", "engines", "idle", "busy", "gc", "tls", "verbs", "plot"}

// system is a way between two applications that can be measured with any size of message.
type system struct {
	name, doc string
	topo      topology
	hub       string
	echo      string
	ping      string
	sink      string
	source    string
	args      []string
}

var systems = map[string]system{
	"rds":   {name: "rds", doc: "two daemons", topo: twoDaemons, echo: "rds-echo", ping: "rds-ping", sink: "rds-sink", source: "rds-source"},
	"tcp":   {name: "tcp", doc: "TCP, a write each", echo: "net-echo", ping: "net-ping", sink: "net-sink", source: "net-source"},
	"udp":   {name: "udp", doc: "UDP, a write each", echo: "udp-echo", ping: "net-ping", sink: "udp-sink", source: "net-source", args: []string{"net=udp"}},
	"seq":   {name: "seq", doc: "unix SEQPACKET, a write each", echo: "net-echo", ping: "net-ping", sink: "net-sink", source: "net-source", args: []string{"net=unixpacket"}},
	"zmq":   {name: "zmq", doc: "ZeroMQ over TCP", topo: peerProgram, echo: "zmq-echo", ping: "zmq-ping", sink: "zmq-sink", source: "zmq-source"},
	"aeron": {name: "aeron", doc: "Aeron, a driver for each", topo: peerProgram, hub: "aeron-drivers", echo: "aeron-echo", ping: "aeron-ping", sink: "aeron-sink", source: "aeron-source"},
	"nats":  {name: "nats", doc: "NATS, its server in between", topo: peerProgram, hub: "nats-hub", echo: "nats-echo", ping: "nats-ping", sink: "nats-sink", source: "nats-source"},
	"ofi":   {name: "ofi", doc: "libfabric's tcp;ofi_rxm", topo: peerProgram, echo: "ofi-echo", ping: "ofi-ping", sink: "ofi-sink", source: "ofi-source"},
	"ucx":   {name: "ucx", doc: "UCX over TCP", topo: peerProgram, echo: "ucx-echo", ping: "ucx-ping", sink: "ucx-sink", source: "ucx-source"},

	"embedded":    {name: "embedded", doc: "a daemon in each program", topo: embeddedDaemons, echo: "rds-echo", ping: "rds-ping", sink: "rds-sink", source: "rds-source"},
	"local":       {name: "local", doc: "one daemon", topo: oneDaemon, echo: "rds-echo", ping: "rds-ping", sink: "rds-sink", source: "rds-source"},
	"model":       {name: "model", doc: "model", topo: twoRelays, echo: "model-echo", ping: "model-ping", sink: "model-sink", source: "model-source"},
	"model-local": {name: "model-local", doc: "model, one relay", topo: oneRelay, echo: "model-echo", ping: "model-ping", sink: "model-sink", source: "model-source"},
}

// trip returns the case of a round trip through a system, flow that of its one-way rate.
func trip(of string, size int) testCase { return systems[of].trip(size) }

func flow(of string, size int) testCase { return systems[of].flow(size) }

func (s system) trip(size int) testCase {
	return testCase{name: s.name + "-rtt" + suffix(size), doc: fmt.Sprintf("%s round trip, %s", bytesName(size), s.doc), topo: s.topo, metric: latency,
		hub: s.hub, server: s.echo, client: s.ping, size: size, args: s.args}
}

func (s system) flow(size int) testCase {
	return testCase{name: s.name + "-rate" + suffix(size), doc: fmt.Sprintf("%s one way, %s", bytesName(size), s.doc), topo: s.topo, metric: rate,
		hub: s.hub, server: s.sink, client: s.source, serverMeasures: true, size: size, args: s.args}
}

// suffix is the part of a case's name that gives the size. The usual size has none.
func suffix(size int) string {
	if size == smallMessage {
		return ""
	}
	return "-" + sizeName(size)
}

func sizeName(size int) string {
	switch {
	case size >= 1<<20 && size%(1<<20) == 0:
		return fmt.Sprintf("%dm", size>>20)
	case size >= 1<<10 && size%(1<<10) == 0:
		return fmt.Sprintf("%dk", size>>10)
	}
	return fmt.Sprint(size)
}

func bytesName(size int) string {
	switch {
	case size >= 1<<20 && size%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", size>>20)
	case size >= 1<<10 && size%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", size>>10)
	}
	return fmt.Sprintf("%d B", size)
}

// against returns c with peer as the case that it is compared with.
func (c testCase) against(peer string) testCase {
	c.peer = peer
	return c
}

// with returns a variant of c with another name, another doc and the change.
func (c testCase) with(name, doc string, change func(*testCase)) testCase {
	c.name, c.doc = name, doc
	c.points = nil
	change(&c)
	return c
}

// allCases returns the cases in the order in which a round runs them. Cases that are compared
// follow one another.
func allCases() []testCase {
	var cs []testCase
	in := func(group string, more ...testCase) {
		for i := range more {
			more[i].group = group
		}
		cs = append(cs, more...)
	}
	in("rtt", trip("model", 64), trip("rds", 64).against("tcp-rtt"), trip("embedded", 64).against("rds-rtt"), trip("tcp", 64), trip("udp", 64), trip("seq", 64), trip("zmq", 64), trip("nats", 64), trip("aeron", 64), trip("ofi", 64), trip("ucx", 64))
	modelSingle, single := singleCalls()
	in("rate", flow("model", 64), flow("rds", 64).against("model-rate"), flow("embedded", 64).against("rds-rate"), flow("zmq", 64), flow("tcp", 64),
		modelSingle, modelSingle.with("model-rate-1-lock", "64 B one way, model, the same for threads at the same time: with a lock", func(c *testCase) {
			c.args = []string{"single=locked"}
		}), single,
		flow("tcp", 64).with("tcp-batch", "64 B one way, TCP, 64 KiB a write", func(c *testCase) { c.client = "net-batch" }),
		flow("udp", 64), flow("seq", 64), flow("nats", 64), flow("aeron", 64), flow("ofi", 64), flow("ucx", 64))
	in("calls", callCases()...)
	for _, size := range []int{256, 1 << 10, 4 << 10, 64 << 10} {
		bare := flow("model", size)
		in("size", bare, flow("rds", size).against(bare.name), flow("tcp", size).against(bare.name))
		if size == 64<<10 {
			in("size", flow("rds", size).with("rds-rate-64k-buf", "64 KiB one way, two daemons, socket buffers of 1 MiB", func(c *testCase) {
				c.args, c.peer = []string{"buffers=1048576"}, bare.name
			}))
		}
	}
	in("rdma", bulkCases()...)
	in("flows", flowCases()...)
	in("op",
		testCase{name: "rdma-write-64", doc: "RDMA write of 64 B to settlement", topo: twoDaemons, metric: latency, server: "rdma-target", client: "rdma-write-trip", size: 64, footprint: 1, peer: "rds-rtt"},
		testCase{name: "rdma-read-64", doc: "RDMA read of 64 B to settlement", topo: twoDaemons, metric: latency, server: "rdma-target", client: "rdma-read-trip", size: 64, footprint: 1, peer: "rds-rtt"},
		trip("rds", 64).with("op-rtt", "64 B round trip, beside them", func(*testCase) {}))
	in("rpc", rpcCases()...)
	in("local", localCases()...)
	in("fan", fanCases()...)
	in("fair", fairCases()...)
	in("engines", engineCases()...)
	in("idle", idleCases()...)
	in("busy", busyCases()...)
	in("gc", gcCases()...)
	in("tls", tlsCases()...)
	in("verbs", verbsCases()...)
	return plotCases(cs)
}

// singleCalls are a call for each datagram, of the model and of rdsd.
func singleCalls() (model, rds testCase) {
	model = flow("model", 64).with("model-rate-1", "64 B one way, model, each datagram published and released alone", func(c *testCase) {
		c.args = []string{"single=on"}
	})
	rds = flow("rds", 64).with("rds-rate-1", "64 B one way, a SendTo and a RecvFrom each", func(c *testCase) {
		c.server, c.client, c.peer = "rds-sink-1", "rds-source-1", model.name
	})
	return model, rds
}

// callCases count system calls. They are cases of their own because counting costs time in
// each call.
func callCases() (cs []testCase) {
	_, single := singleCalls()
	for _, c := range []testCase{flow("model", 64), flow("rds", 64), single, flow("model-local", 64), flow("local", 64)} {
		cs = append(cs, c.with("calls-"+strings.Replace(c.name, "-rate", "", 1), c.doc+", system calls counted", func(c *testCase) {
			c.calls, c.peer = true, ""
		}))
	}
	return cs
}

// rpcCases are calls by package rds/rpc, by gRPC, and by NATS's requests: one after the
// other, and from 64 goroutines.
func rpcCases() (cs []testCase) {
	bare := trip("rds", 64).with("rpc-bare", "64 B round trip of datagrams, beside them", func(*testCase) {})
	cs = append(cs, bare)
	for _, s := range []system{
		{name: "rpc", doc: "rds/rpc", topo: twoDaemons, echo: "rpc-echo", ping: "rpc-ping", sink: "rpc-sink", source: "rpc-many"},
		{name: "grpc", doc: "gRPC over TCP", topo: peerProgram, echo: "grpc-echo", ping: "grpc-ping", sink: "grpc-sink", source: "grpc-many"},
		{name: "natsreq", doc: "NATS requests", topo: peerProgram, hub: "nats-hub", echo: "nats-reply", ping: "nats-request", sink: "nats-reply-sink", source: "nats-many"},
	} {
		one, many := s.trip(64), s.flow(64)
		one.doc, many.doc = "64 B call and answer, "+s.doc, "64 B calls answered a second, 64 at a time, "+s.doc
		many.clientArg = []string{"callers=64"}
		if s.name == "rpc" {
			one.peer, many.peer = "grpc-rtt", "grpc-rate"
		}
		cs = append(cs, one, many)
	}
	return cs
}

func bulkCases() (cs []testCase) {
	for _, mib := range []int{1, 64} {
		at := fmt.Sprintf("-%dm", mib)
		doc := func(what string) string { return fmt.Sprintf("%s, walking %d MiB", what, mib) }
		tcp := testCase{name: "tcp-bulk" + at, doc: doc("TCP, 256 KiB a write"), metric: throughput, server: "net-bulk-sink", client: "net-bulk", serverMeasures: true, size: bulkWrite, footprint: mib}
		cs = append(cs,
			testCase{name: "model-bulk" + at, doc: doc("model, 1 MiB"), topo: twoRelays, metric: throughput, server: "model-sink", client: "model-bulk", serverMeasures: true, size: rdmaSize, footprint: mib, peer: tcp.name},
			testCase{name: "rdma-write" + at, doc: doc("RDMA write of 1 MiB, 8 in flight"), topo: twoDaemons, metric: throughput, server: "rdma-target", client: "rdma-write", size: rdmaSize, footprint: mib, peer: tcp.name},
			testCase{name: "rdma-read" + at, doc: doc("RDMA read of 1 MiB, 8 in flight"), topo: twoDaemons, metric: throughput, server: "rdma-target", client: "rdma-read", size: rdmaSize, footprint: mib, peer: tcp.name},
			tcp)
	}
	return cs
}

// heapArg makes a process fill its heap as the gc cases do.
const heapArg = "heap=1024"

// gcCases are round trips of clients whose large heap is collected ten times a second. With the
// same heap in another process, they show what the collector takes of the CPUs. TCP and the
// model show what it does to any client.
func gcCases() []testCase {
	rtt := func(of, name, doc string, change func(*testCase)) testCase {
		c := trip(of, 64)
		return c.with(name, c.doc+", "+doc, func(c *testCase) { c.minTime = time.Second; change(c) })
	}
	var cs []testCase
	for _, v := range []struct{ of, quiet, heap string }{{"rds", "gc-quiet", "gc-rtt"}, {"model", "gc-model-quiet", "gc-model"}, {"tcp", "gc-tcp-quiet", "gc-tcp"}} {
		cs = append(cs,
			rtt(v.of, v.quiet, "beside it", func(*testCase) {}),
			rtt(v.of, v.heap, "a heap of 1 GiB in the client, collected ten times a second", func(c *testCase) { c.clientArg, c.peer = []string{heapArg}, v.quiet }))
	}
	return append(cs, rtt("rds", "gc-beside", "the same heap in another process", func(c *testCase) { c.busy, c.peer = collecting, "gc-quiet" }))
}

func localCases() []testCase {
	cs := []testCase{
		trip("model-local", 64), trip("local", 64).against("seq-rtt"),
		flow("model-local", 64), flow("local", 64).against("model-local-rate"),
	}
	cs = append(cs, directCases()...)
	for _, mib := range []int{1, 64} {
		at := fmt.Sprintf("-%dm", mib)
		mem := testCase{name: "memcpy" + at, doc: fmt.Sprintf("memcpy of 1 MiB in one process, walking %d MiB", mib), metric: throughput, server: "memcpy", client: "nobody", serverMeasures: true, size: rdmaSize, footprint: mib}
		cs = append(cs, testCase{name: "local-write" + at, doc: fmt.Sprintf("RDMA write of 1 MiB, one daemon, walking %d MiB", mib), topo: oneDaemon, metric: throughput,
			server: "rdma-target", client: "rdma-write", size: rdmaSize, footprint: mib, peer: mem.name}, mem)
	}
	return cs
}

// fan is the rate from n sockets of one process to one, from one to n of one process, or from n to n.
func fan(of, way string, n int) testCase {
	c := flow(of, 64)
	c.name, c.peer = way, "fan-one"
	if of == "local" {
		c.name, c.peer = "local-"+way, "local-fan-one"
	}
	if n != 64 {
		c.name += fmt.Sprintf("-%d", n)
	}
	c.client = "rds-fan-source"
	from, to := 1, 1
	if way != "fan-out" {
		from = n
		c.clientArg = append(c.clientArg, fmt.Sprintf("sockets=%d", n))
	}
	if way != "fan-in" {
		to = n
		c.clientArg = append(c.clientArg, fmt.Sprintf("to=%d", n))
		c.server, c.serverArg = "rds-fan-sink", []string{fmt.Sprintf("sockets=%d", n)}
	}
	c.doc = fmt.Sprintf("64 B one way, %d sockets to %d, %s", from, to, systems[of].doc)
	return c
}

// fanCases are those with a rate from one socket to one beside them.
func fanCases() []testCase {
	one := func(of, name string) testCase {
		return flow(of, 64).with(name, "64 B one way, beside them", func(*testCase) {})
	}
	return []testCase{fan("rds", "fan-in", 64), one("rds", "fan-one"), fan("rds", "fan-out", 64), fan("rds", "fan-out", 16), fan("rds", "fan-all", 64),
		one("local", "local-fan-one"), fan("local", "fan-out", 64), fan("local", "fan-out", 16), fan("local", "fan-all", 64)}
}

const (
	manyPeers   = 1000
	manySockets = 10000
)

// beside returns c with n idle sockets of the client, or n idle peers.
func beside(c testCase, what string, n int) testCase {
	if what == "peers" {
		c.idlePeers = n
	}
	c.clientArg = []string{fmt.Sprintf("idle%s=%d", what, n)}
	c.doc += fmt.Sprintf(", beside %d idle %s", n, what)
	return c
}

func idleCases() []testCase {
	rtt, rate := trip("rds", 64), flow("rds", 64)
	none := func(c *testCase) {}
	vs := func(peer string) func(*testCase) { return func(c *testCase) { c.peer = peer } }
	return []testCase{
		rtt.with("idle-none-rtt", rtt.doc+", nothing beside it", none),
		beside(rtt.with("idle-peers-rtt", rtt.doc, vs("idle-none-rtt")), "peers", manyPeers),
		beside(rtt.with("idle-sockets-rtt", rtt.doc, vs("idle-none-rtt")), "sockets", manySockets),
		rate.with("idle-none-rate", rate.doc+", nothing beside it", none),
		beside(rate.with("idle-peers-rate", rate.doc, vs("idle-none-rate")), "peers", manyPeers),
		beside(rate.with("idle-sockets-rate", rate.doc, vs("idle-none-rate")), "sockets", manySockets),
		{name: "idle-daemon", doc: "a daemon with a client and a peer, nothing to do", topo: twoDaemons, metric: wakeups, server: "rds-echo", client: "idle-daemon",
			size: 64, minTime: 2 * stats.SleepMost, maxRuns: 2},
	}
}

func busyCases() []testCase {
	var cs []testCase
	for _, b := range []struct {
		name, doc string
		busy      busy
	}{
		{"quiet", "nothing beside it", quiet},
		{"hogs", "a CPU hog on each CPU", hogs},
		{"session", "a CPU hog on each CPU, all in one session", sameSession},
		{"quota", "all in a cgroup with half of the CPUs", quota},
	} {
		for _, of := range []string{"rds", "model", "tcp"} {
			c := trip(of, 64)
			c = c.with("busy-"+b.name+"-"+of, c.doc+", "+b.doc, func(c *testCase) { c.busy = b.busy })
			if b.busy != quiet {
				c.peer = "busy-quiet-" + of
			}
			cs = append(cs, c)
		}
	}
	c := trip("rds", 64)
	return append(cs, c.with("busy-clients-rds", c.doc+", beside three pairs that do the same: 8 clients", func(c *testCase) {
		c.beside, c.peer = &besides{"rds-echo", "rds-ping-on", 64, nil, false, 3}, "busy-quiet-rds"
	}))
}

func verbsCases() []testCase {
	bulk := func(name, doc, client string, crc bool) testCase {
		return testCase{name: name, doc: doc, metric: throughput, server: "verbs-target", client: client, size: rdmaSize, footprint: 64, crc: crc, peer: "tcp-bulk-64m"}
	}
	send := func(name, doc string, crc bool) testCase {
		return testCase{name: name, doc: doc, metric: rate, server: "verbs-sink", client: "verbs-source", serverMeasures: true, size: 64, crc: crc, peer: "tcp-rate"}
	}
	return []testCase{
		bulk("verbs-write", "two QPs, RDMA WRITE of 1 MiB, 8 in flight", "verbs-write", false),
		bulk("verbs-read", "two QPs, RDMA READ of 1 MiB, 8 in flight", "verbs-read", false),
		bulk("verbs-write-crc", "two QPs, RDMA WRITE of 1 MiB, CRC", "verbs-write", true),
		bulk("verbs-read-crc", "two QPs, RDMA READ of 1 MiB, CRC", "verbs-read", true),
		send("verbs-send", "two QPs, 64 B SEND, 64 a PostSend", false),
		send("verbs-send-crc", "two QPs, 64 B SEND, 64 a PostSend, CRC", true),
	}
}

// plotCases adds the cases that only plots need. Cases of cs that are in plots get their points.
func plotCases(cs []testCase) []testCase {
	add := func(c testCase, p point) {
		i := slices.IndexFunc(cs, func(o testCase) bool { return o.name == c.name })
		if i < 0 {
			c.group, c.maxRuns = "plot", 3
			i = len(cs)
			cs = append(cs, c)
		}
		cs[i].points = append(cs[i].points, p)
	}
	for _, size := range []int{64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10} {
		for _, of := range []string{"model", "rds", "tcp", "zmq"} {
			add(flow(of, size), point{"rate-size", of, float64(size)})
		}
	}
	for _, size := range []int{64, 1 << 10, 8 << 10, 64 << 10} {
		for _, of := range []string{"model", "rds", "tcp", "zmq"} {
			add(trip(of, size), point{"rtt-size", of, float64(size)})
		}
	}
	for _, n := range []int{1, 4, 16, 64, 256} {
		add(fan("rds", "fan-in", n), point{"rate-sockets", "n to 1", float64(n)})
		add(fan("rds", "fan-out", n), point{"rate-sockets", "1 to n", float64(n)})
	}
	for _, what := range []struct {
		name string
		n    []int
	}{{"sockets", []int{10, 100, 1000, manySockets}}, {"peers", []int{10, 100, manyPeers}}} {
		for _, n := range what.n {
			name := fmt.Sprintf("idle-%s-%%s-%d", what.name, n)
			if n == manySockets || n == manyPeers && what.name == "peers" {
				name = "idle-" + what.name + "-%s"
			}
			rtt, rate := trip("rds", 64), flow("rds", 64)
			rtt.name, rate.name = fmt.Sprintf(name, "rtt"), fmt.Sprintf(name, "rate")
			add(beside(rtt, what.name, n), point{"rtt-idle", "idle " + what.name, float64(n)})
			add(beside(rate, what.name, n), point{"rate-idle", "idle " + what.name, float64(n)})
		}
	}
	return cs
}
