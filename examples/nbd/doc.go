// Command nbd makes the export of a blockstore server on another host a network block
// device. nbd-client, qemu, nbdcopy and fio can use it as a disk. The data moves by RDMA
// between the hosts.
//
//	nbd [flags] REMOTE
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
// nbd speaks the fixed newstyle handshake (EXPORT_NAME, LIST, INFO, GO, ABORT) and the
// transmission phase with simple replies. The commands are READ, WRITE, FLUSH, TRIM,
// WRITE_ZEROES and DISC, with FUA, NO_HOLE and FAST_ZERO, on any byte boundary. READ and
// WRITE take up to 32 MiB. Several connections can have many requests in flight.
//
// There are no structured replies. They would cost another header, and say where the
// holes are, which a blockstore does not know.
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
// All connections share one session at the blockstore. The session ends when the
// blockstore or a daemon restarts, or when another writer comes. Writes that were not
// flushed may then be lost, and the user must learn of that. So requests fail with EIO,
// and all connections are closed. The next connection begins a new session.
//
// A reset of the connection between the daemons does not end the session. Operations that
// it dropped are repeated.
//
// # Who may touch which memory when
//
// Each piece of a request has a registered buffer. Payload goes from the NBD socket into
// that buffer, or from it to the socket, without another copy. A connection can use buffers
// for one request of the largest size at a time. So a connection that does not read its
// replies does not delay the others.
//
// # How fast
//
// measure.sh beside this file compares nbd with nbdkit. The figures are in
// docs/performance.md, section "A block device".
package main
