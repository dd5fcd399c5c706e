// Package loadgen measures round trips, message rates, and RDMA reads and writes of package
// rds between a client and a server of its own. It is rdsctl bench.
//
// server.go and session.go are the server. client.go is the course of a measurement,
// messages.go and rdma.go are its goroutines, recorder.go keeps the results. In open loop
// (Params.Rate) the latency of an operation counts from when it was due, so that a stall
// counts for all operations that waited for it.
package loadgen
