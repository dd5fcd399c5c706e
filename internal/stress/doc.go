// Package stress runs rds-stress's test. Tasks at two hosts keep requests outstanding to
// all tasks of the other host, answer each request with an ack, check what they receive,
// and move data by RDMA along with the acks. The package speaks the protocol of rds-tools
// 2.0.7 (package proto), so either side may be an rds-stress on a host with kernel RDS.
//
// control.go is the TCP connection between the two sides. run.go is the course of a test.
// worker.go is one task, whose loop is that of internal/loadgen, flow.go is its exchange with one
// task of the peer, rdma.go is the memory and the operations of that exchange.
package stress
