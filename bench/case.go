package main

import (
	"time"

	"github.com/rdsd/rdsd/bench/worker"
)

// testCase is one thing to measure.
type testCase struct {
	name, group, doc string

	topo   topology
	metric metric
	// server starts first and tells its address; client connects to it. hub,
	// if there is one, starts before both, which connect to it.
	hub, server, client string
	serverMeasures      bool

	size      int      // bytes of one message or operation
	footprint int      // MiB that bulk transfers walk through at each end; 0 is the option's
	crc       bool     // of queue pairs: with checksums
	tls       bool     // between the daemons
	args      []string // of server and client
	serverArg []string // of the server only
	clientArg []string
	idlePeers int // addresses of the server's daemon that the client makes peers of
	busy      busy
	beside    *besides // other applications at the same daemons, meanwhile
	calls     bool     // count system calls

	minTime time.Duration // of a measurement
	maxRuns int           // 0: as many as asked for

	peer   string  // the case whose medians this one's are divided by
	points []point // where its figure goes in plots
}

// topology is which processes there are between the two applications.
type topology int

const (
	direct         topology = iota // none
	twoDaemons                     // one for each
	oneDaemon                      // one for both
	twoRelays                      // of the floor
	oneRelay                       // of the floor
	noRelay                        // of the floor: the applications have the ends of the same rings
	twoModelRelays                 // of the model
	oneModelRelay                  // of the model
	peerProgram                    // none; the applications are the peers' program's
)

func (t topology) daemons() bool { return t == twoDaemons || t == oneDaemon }
func (t topology) model() bool   { return t == twoModelRelays || t == oneModelRelay }
func (t topology) relays() bool {
	return t == twoRelays || t == oneRelay || t == noRelay || t.model()
}

// metric is what a case's main figure is.
type metric string

const (
	latency    metric = "round trip"
	rate       metric = "rate"
	throughput metric = "throughput"
	wakeups    metric = "wake-ups"
)

func (m metric) unit() string {
	return map[metric]string{latency: "us", rate: "M/s", throughput: "GB/s", wakeups: "/s"}[m]
}

// busy is what else the machine does meanwhile.
type busy int

const (
	quiet       busy = iota
	hogs             // a CPU hog on each CPU, in a session of the bench's
	sameSession      // the same, with all processes in that session
	quota            // all processes in a cgroup with half of the CPUs' time
	collecting       // a process that collects the garbage of a heap like a client of the gc cases
)

const (
	smallMessage = 64
	bulkWrite    = 256 << 10
	rdmaSize     = 1 << 20
)

// roles are what processes of this program do, by name.
var roles = map[string]func(*worker.Worker) error{
	"net-echo": netEcho, "net-ping": netPing,
	"net-sink": netSink, "net-source": netSource, "net-batch": netBatch,
	"net-bulk-sink": netBulkSink, "net-bulk": netBulk,
	"udp-echo": udpEcho, "udp-sink": udpSink,
	"memcpy": memcpy, "nobody": nobody, "hog": hog, "collector": collector,
	"floor-relay": floorRelay, "floor-local-relay": floorLocalRelay,
	"floor-direct-echo": floorDirectEcho, "floor-direct-sink": floorDirectSink,
	"floor-echo": floorEcho, "floor-ping": floorPing,
	"floor-sink": floorSink, "floor-source": floorSource, "floor-bulk": floorBulk,
	"model-relay": modelRelay, "model-local-relay": modelLocalRelay,
	"model-echo": modelEcho, "model-ping": modelPing, "model-sink": modelSink, "model-source": modelSource,
	"rds-echo": rdsEcho, "rds-ping": rdsPing,
	"rds-sink": rdsSink, "rds-sink-on": rdsSinkOn, "rds-source": rdsSource,
	"rds-sink-1": rdsSinkOne, "rds-source-1": rdsSourceOne,
	"rds-fan-source": rdsFanSource, "rds-scatter": rdsScatter, "rds-fan-sink": rdsFanSink,
	"rdma-target": rdmaTarget, "rdma-write": rdmaWrite, "rdma-read": rdmaRead, "rdma-read-on": rdmaReadOn,
	"rdma-write-trip": rdmaWriteTrip, "rdma-read-trip": rdmaReadTrip,
	"idle-daemon":  idleDaemon,
	"verbs-target": verbsTarget, "verbs-write": verbsWrite, "verbs-read": verbsRead,
	"verbs-sink": verbsSink, "verbs-source": verbsSource,
	"daemon": embeddedDaemon,
}
