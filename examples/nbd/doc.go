// Command nbd makes the export of a blockstore server on another host a network block
// device. nbd-client, qemu, nbdcopy and fio can use it as a disk. The data moves by RDMA
// between the hosts.
//
//	nbd [flags] [NAME=]DISK...
//
// A DISK is a REMOTE (a blockstore), a mirror of several (REMOTE,REMOTE) or stripes over
// several (PART+PART), where each PART is a REMOTE or a mirror.
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
// # Mirrors
//
// Several REMOTEs with commas between them are the legs of a mirror: each has the whole
// content. -anew makes the mirror, from the content of the first leg, and keeps the last
// 64 KiB of each leg for a superblock and a map of regions.
//
// A write is answered when all legs have it that are in sync, and a FLUSH when it is on
// their stable storage. Reads go to the legs in sync by turns. A leg whose session ends
// has failed: requests go on with the others. Before any write is answered that a failed
// leg has missed, the superblocks of the others say that it is not in sync any more. nbd
// tries to reach a failed leg again, and gives it the regions (of 1 MiB, or more where a
// map of those has no room) that it may have missed, which include all that was written to
// it since the last FLUSH. Then it is in sync. A leg that comes back with another
// superblock than it had, or an earlier one, is given everything.
//
// The map of each leg says in which regions the legs may differ. A group of 16 regions
// comes into the map, on stable storage, before the first of them is written. It leaves the
// map some seconds after its last write if all legs are in sync and a FLUSH has covered
// the write. So when nbd is started again, in an orderly way or after it was killed, it
// copies only what is in the map to legs that may have missed something or have changes
// that nobody acknowledged. A new leg is given everything.
//
// When nbd starts, the legs have to be there that the newest superblock calls in sync, so
// that no leg is used alone that does not have everything.
//
// TRIM writes zeros to a mirror, or makes holes, because all legs must read the same
// afterwards.
//
// # Stripes
//
// Several PARTs with plus signs between them share the bytes by turns: the first -stripe
// bytes are in the first PART, the next ones in the next PART, and so on. -anew makes the
// stripes. It keeps the last 64 KiB of each REMOTE for a superblock, and the content of the
// new disk is what the PARTs had. Later starts read the size of the stripes from the
// superblocks. All PARTs must be there, and in the same order.
//
// A request goes to all PARTs that it concerns at the same time. A FLUSH is answered when
// all PARTs have answered it. If a PART that is no mirror fails, so do the requests, and the
// clients are disconnected: writes that were not flushed may be lost.
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
