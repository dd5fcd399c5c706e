// Package loadgen is the load generator of rdsctl: the loop of a socket under load and the
// course of a run, which rds-stress's test (internal/stress) uses, and the measurements of
// rdsctl bench: round trips, message rates, and RDMA reads and writes of package rds between a
// client and a server of its own.
//
// loop.go is the loop, course.go the course, pace.go the timetable of an open loop. messages.go
// and rdma.go are what a client's sockets do, session.go what the server's do. measure.go is a
// measurement, client.go and server.go are its two ends, which call each other by rds/rpc;
// proto.go is what they say. recorder.go keeps the results. In open loop (Params.Rate) the
// latency of an operation counts from when it was due, so that a stall counts for all operations
// that waited for it.
package loadgen
