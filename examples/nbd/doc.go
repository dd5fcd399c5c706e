// Command nbd makes the export of a blockstore server on another host a network
// block device: nbd-client, qemu, nbdcopy and fio use it as a disk, and the data
// moves by RDMA between the hosts.
//
//	nbd [flags] REMOTE
//
// As in
//
//	there$ truncate -s 10G disk && blockstore serve --bind 10.0.0.1:4000 disk
//	here$  nbd -listen unix:/run/disk.sock 10.0.0.1:4000
//	here$  nbd-client -unix /run/disk.sock /dev/nbd0          # a disk of this host
//	here$  nbdcopy file 'nbd+unix:///?socket=/run/disk.sock'  # a copy into it
//
// # What it speaks
//
// The newstyle fixed handshake (EXPORT_NAME, LIST, INFO, GO, ABORT) and the
// transmission phase with simple replies (structured ones would tell holes from
// data, which a blockstore does not say, and cost a header more): READ, WRITE, FLUSH, TRIM,
// WRITE_ZEROES, DISC, with FUA, NO_HOLE and FAST_ZERO, on any byte boundary, up
// to 32 MiB a request, many requests in flight, several connections. No TLS and
// no authentication: it listens on loopback or a unix socket, and who can reach
// that has the disk.
//
// # What is durable
//
// A write is answered when the blockstore has written it, and is on stable
// storage when a later FLUSH, on any connection, is answered; a write with FUA at
// once. All connections share one session at the blockstore. When that ends
// (the blockstore or a daemon was started again, another writer came), what was
// written and not flushed may be lost, so nothing is asked for again behind the
// user's back: requests fail with EIO, all connections are closed, and the next
// one begins a session of its own.
//
// A reset of the connection between the daemons ends no session: operations it
// dropped are asked for again.
//
// # Who may touch which memory when
//
// Each piece of a request has a registered buffer. NBD payload is read from the
// socket into it and written from it to the socket: no copy between. A
// connection has buffers for one request of the greatest size at any time, so
// that one which does not read its replies delays no other.
//
// # How fast
//
// measure.sh beside this file compares it with nbdkit: docs/performance.md, A block
// device.
package main
