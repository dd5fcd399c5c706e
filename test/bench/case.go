package main

import (
	"time"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/test/bench/worker"
)

// testCase is one kind of measurement.
type testCase struct {
	name, group, doc string

	topo   topology
	metric metric
	// server starts first and prints its address, and client connects to that. hub, if the case
	// has one, starts before both, and both connect to it.
	hub, server, client string
	serverMeasures      bool

	size      int      // bytes of one message or operation
	footprint int      // MiB that bulk transfers walk through at each end; 0: that of the option
	crc       bool     // checksums on the case's own queue pairs
	tls       bool     // between the daemons
	args      []string // of server and client
	serverArg []string // of the server only
	clientArg []string
	paths     int // between the daemons; 0: one
	idlePeers int // addresses of the server's daemon with which the client makes connections
	busy      busy
	beside    *besides // other applications that run at the same time
	calls     bool     // count system calls

	minTime time.Duration // of one measurement
	maxRuns int           // 0: as many as the options say

	peer   string  // the case by whose medians this one's are divided
	points []point // where the case's figure goes in plots
}

// topology says which processes are between the two applications.
type topology int

const (
	direct          topology = iota // none
	twoDaemons                      // one for each
	oneDaemon                       // one for both
	embeddedDaemons                 // none; each application has a daemon within
	twoRelays                       // of the model
	oneRelay                        // of the model
	noRelay                         // of the model: the applications have the ends of the same rings
	peerProgram                     // none; the applications are the peers' program's
)

func (t topology) daemons() bool { return t == twoDaemons || t == oneDaemon }
func (t topology) model() bool   { return t == twoRelays || t == oneRelay || t == noRelay }

// metric says what a case's main figure measures.
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

// busy is the other load on the machine during a measurement.
type busy int

const (
	quiet       busy = iota
	hogs             // a process on each CPU that uses it, in a session of the bench's own
	sameSession      // the same, and all processes of the measurement are in that session
	quota            // all processes are in a cgroup with half of the CPUs' time
	collecting       // a process that collects the garbage of a heap as large as in the gc cases
)

const (
	smallMessage = 64
	bulkWrite    = 256 << 10
	rdmaSize     = 1 << 20
)

// roles maps each role of this program's workers to its function.
var roles = map[string]func(*worker.Worker) error{
	"net-echo": netEcho, "net-ping": netPing,
	"net-sink": netSink, "net-source": netSource, "net-batch": netBatch,
	"net-bulk-sink": netBulkSink, "net-bulk": netBulk,
	"udp-echo": udpEcho, "udp-sink": udpSink,
	"memcpy": memcpy, "nobody": nobody, "hog": hog, "collector": collector,
	"model-relay": modelRelay, "model-local-relay": modelLocalRelay,
	"model-echo": modelEcho, "model-ping": modelPing, "model-sink": modelSink, "model-source": modelSource, "model-bulk": modelBulk,
	"rds-echo": role(serves, rdsEcho), "rds-ping": role(tripsOf, rdsPing), "rds-ping-on": role(serves, rdsPing),
	"rpc-echo": rpcEcho((*worker.Worker).Serve), "rpc-sink": rpcEcho((*worker.Worker).Count),
	"rpc-ping": role(tripsOf, rpcCall), "rpc-many": role(together, rpcCall),
	"rds-sink": role(counts, rdsSink), "rds-sink-on": role(serves, rdsSink), "rds-source": role(serves, rdsSource),
	"rds-sink-1": role(counts, rdsSinkOne), "rds-source-1": role(serves, rdsSourceOne),
	"rds-fan-source": role(serves, rdsFanSource), "rds-fan-sink": role(counts, rdsFanSink),
	"rdma-target": role(serves, rdmaTarget), "rdma-write": role(counts, rdmaBulk(abi.OpWrite)), "rdma-read": role(counts, rdmaBulk(abi.OpRead)),
	"rdma-writes": role(counts, rdmaFlows(abi.OpWrite)), "rdma-reads": role(counts, rdmaFlows(abi.OpRead)),
	"rdma-read-on": role(serves, rdmaBulk(abi.OpRead)), "rdma-write-trip": role(timesOf, rdmaTrip(abi.OpWrite)), "rdma-read-trip": role(timesOf, rdmaTrip(abi.OpRead)),
	"idle-daemon":  role(idleDaemon, rdsPing),
	"verbs-target": verbsTarget, "verbs-write": verbsWrite, "verbs-read": verbsRead,
	"verbs-sink": verbsSink, "verbs-source": verbsSource,
	"daemon": profiledDaemon,
}
