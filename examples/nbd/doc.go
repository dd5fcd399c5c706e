// Command nbd makes the export of a blockstore server on another host a network block
// device. nbd-client, qemu, nbdcopy and fio can use it as a disk. The data moves by RDMA
// between the hosts.
//
//	nbd [flags] [NAME=]REMOTE...
//
// For example:
//
//	there$ truncate -s 10G disk && blockstore serve --bind 10.0.0.1:4000 disk
//	here$  nbd -listen unix:/run/disk.sock 10.0.0.1:4000
//	here$  nbd-client -unix /run/disk.sock /dev/nbd0          # a disk of this host
//	here$  nbdcopy file 'nbd+unix:///?socket=/run/disk.sock'  # a copy into it
//
// # What it speaks
//
// nbd speaks the fixed newstyle handshake (EXPORT_NAME, LIST, INFO, GO, ABORT,
// STRUCTURED_REPLY, LIST_META_CONTEXT, SET_META_CONTEXT) and the
// transmission phase. The commands are READ, WRITE, FLUSH, TRIM, WRITE_ZEROES and DISC, with
// FUA, NO_HOLE and FAST_ZERO, on any byte boundary. READ and WRITE take up to 32 MiB.
// Several connections can have many requests in flight.
//
// A client that asks for structured replies gets them, each of one chunk. It may then ask
// for BLOCK_STATUS in the context base:allocation, which has the holes of the blockstore's
// file.
//
// There is no TLS and no authentication. Anyone who can connect can use the disk, so by
// default nbd listens on loopback. A unix socket has file permissions.
//
// # What is durable
//
// A write is answered when the blockstore has written it to its file. It is on stable
// storage when a later FLUSH on any connection is answered. A write with FUA is on stable
// storage when the write itself is answered.
//
// A reset of the connection between the daemons ends no session: messages go on
// with the next connection, and operations that the reset dropped are asked for again.
//
// # Who does what
//
// A connection's reader takes requests from its client, many at a time, and sends
// them to the blockstore. Requests in flight are not ordered by one another. The
// goroutine that receives the blockstore's answers replies to the client itself. The
// replies of one batch of answers go in one system call, which does not wait. A
// client that does not take its replies gets a goroutine of its own that waits for it.
//
// # Who may touch which memory when
//
// Small pieces (-small) travel in messages, which copy them. Each larger piece of a request has a
// registered buffer. NBD payload is read from the
// socket into it and written from it to the socket: no copy between. A
// connection has buffers for one request of the greatest size at any time, so
// that one which does not read its replies delays no other.
//
// # How fast
//
// measure.sh beside this file compares nbd with nbdkit. The figures are in
// docs/performance/2026-11-23-block-device.md.
package main
