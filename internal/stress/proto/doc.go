// Package proto is the protocol of two rds-stress processes: the options and the go-ahead
// on the TCP control connection, the header and payload of requests and acks, and the
// pattern of RDMA buffers.
//
// The formats are those of rds-tools 2.0.7. Everything is big-endian and packed, except the
// RDMA pattern, which is in the byte order of the host that fills it.
package proto
