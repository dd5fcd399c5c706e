// Package loadgen measures what rds gives an application: round trips, message
// rates, RDMA reads and writes, against a server of its own.
//
// server.go and session.go are the server, client.go a measurement's course,
// messages.go and rdma.go what its goroutines do, recorder.go what they
// measured. In open loop (Params.Rate) latency counts from when an operation
// was meant to start, so that a stall is charged to all that waited for it.
package loadgen
