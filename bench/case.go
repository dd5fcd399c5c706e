package main

// testCase is one thing to measure: over TCP, over rdsd, or over queue pairs of
// verbs/soft without any daemon.
type testCase struct {
	name string
	doc  string
	// peer names the TCP case whose medians this one's are divided by; empty:
	// it is TCP itself.
	peer   string
	rds    bool
	local  bool // both applications under one daemon
	crc    bool // of queue pairs: with checksums
	metric metric
	// server starts first and tells its address; client connects to it.
	server, client string
	// measures says whether the server has the figures.
	serverMeasures bool
	size           int // bytes of one message or operation
}

// metric is what a case's main figure is.
type metric string

const (
	latency    metric = "round trip"
	rate       metric = "rate"
	throughput metric = "throughput"
)

const (
	smallMessage = 64
	bulkWrite    = 256 << 10
	rdmaSize     = 1 << 20
)

var cases = []testCase{
	{name: "tcp-rtt", doc: "64 B round trip, TCP", metric: latency, server: "tcp-echo", client: "tcp-ping", size: smallMessage},
	{name: "rds-rtt", doc: "64 B round trip, two daemons", peer: "tcp-rtt", rds: true, metric: latency, server: "rds-echo", client: "rds-ping", size: smallMessage},
	{name: "tcp-rate", doc: "64 B one way, TCP, a write each", metric: rate, server: "tcp-sink", client: "tcp-source", serverMeasures: true, size: smallMessage},
	{name: "rds-rate", doc: "64 B one way, SendMsgs and RecvMsgs of up to 64", peer: "tcp-rate", rds: true, metric: rate, server: "rds-sink", client: "rds-source", serverMeasures: true, size: smallMessage},
	{name: "rds-rate-1", doc: "64 B one way, a SendTo and a RecvFrom each", peer: "tcp-rate", rds: true, metric: rate, server: "rds-sink-1", client: "rds-source-1", serverMeasures: true, size: smallMessage},
	{name: "tcp-batch", doc: "64 B one way, TCP, 64 KiB a write", metric: rate, server: "tcp-sink", client: "tcp-batch", serverMeasures: true, size: smallMessage},
	{name: "tcp-bulk", doc: "TCP, 256 KiB a write", metric: throughput, server: "tcp-bulk-sink", client: "tcp-bulk", serverMeasures: true, size: bulkWrite},
	{name: "rdma-write", doc: "RDMA write of 1 MiB, 8 in flight", peer: "tcp-bulk", rds: true, metric: throughput, server: "rdma-target", client: "rdma-write", size: rdmaSize},
	{name: "rdma-read", doc: "RDMA read of 1 MiB, 8 in flight", peer: "tcp-bulk", rds: true, metric: throughput, server: "rdma-target", client: "rdma-read", size: rdmaSize},
	{name: "local-rtt", doc: "64 B round trip, one daemon", peer: "tcp-rtt", rds: true, local: true, metric: latency, server: "rds-echo", client: "rds-ping", size: smallMessage},
	{name: "local-rate", doc: "64 B one way, one daemon", peer: "tcp-rate", rds: true, local: true, metric: rate, server: "rds-sink", client: "rds-source", serverMeasures: true, size: smallMessage},
	{name: "local-write", doc: "RDMA write of 1 MiB, one daemon", peer: "tcp-bulk", rds: true, local: true, metric: throughput, server: "rdma-target", client: "rdma-write", size: rdmaSize},
	{name: "verbs-write", doc: "two QPs, RDMA WRITE of 1 MiB, 8 in flight", peer: "tcp-bulk", metric: throughput, server: "verbs-target", client: "verbs-write", size: rdmaSize},
	{name: "verbs-read", doc: "two QPs, RDMA READ of 1 MiB, 8 in flight", peer: "tcp-bulk", metric: throughput, server: "verbs-target", client: "verbs-read", size: rdmaSize},
	{name: "verbs-write-crc", doc: "two QPs, RDMA WRITE of 1 MiB, CRC", peer: "tcp-bulk", crc: true, metric: throughput, server: "verbs-target", client: "verbs-write", size: rdmaSize},
	{name: "verbs-read-crc", doc: "two QPs, RDMA READ of 1 MiB, CRC", peer: "tcp-bulk", crc: true, metric: throughput, server: "verbs-target", client: "verbs-read", size: rdmaSize},
	{name: "verbs-send", doc: "two QPs, 64 B SEND, 64 a PostSend", peer: "tcp-rate", metric: rate, server: "verbs-sink", client: "verbs-source", serverMeasures: true, size: smallMessage},
	{name: "verbs-send-crc", doc: "two QPs, 64 B SEND, 64 a PostSend, CRC", peer: "tcp-rate", crc: true, metric: rate, server: "verbs-sink", client: "verbs-source", serverMeasures: true, size: smallMessage},
}

// workers are what the processes do, by name.
var workers = map[string]func(*worker) error{
	"tcp-echo": tcpEcho, "tcp-ping": tcpPing,
	"tcp-sink": tcpSink, "tcp-source": tcpSource, "tcp-batch": tcpBatch,
	"tcp-bulk-sink": tcpBulkSink, "tcp-bulk": tcpBulk,
	"rds-echo": rdsEcho, "rds-ping": rdsPing,
	"rds-sink": rdsSink, "rds-source": rdsSource,
	"rds-sink-1": rdsSinkOne, "rds-source-1": rdsSourceOne,
	"rdma-target": rdmaTarget, "rdma-write": rdmaWrite, "rdma-read": rdmaRead,
	"verbs-target": verbsTarget, "verbs-write": verbsWrite, "verbs-read": verbsRead,
	"verbs-sink": verbsSink, "verbs-source": verbsSource,
	"daemon": embeddedDaemon,
}
