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
// # Mirrors and stripes
//
// Linux's md makes a mirror (RAID 1) of several disks, each of which is a leg with all bytes, or
// stripes over them (RAID 0). A mirror of the blockstores of two hosts, with an nbd for each:
//
//	here$  nbd -patience 5s -give-up 5s -listen unix:/run/a.sock 10.0.0.1
//	here$  nbd -patience 5s -give-up 5s -listen unix:/run/b.sock 10.0.0.2
//	here$  nbd-client -unix /run/a.sock -timeout 20 -block-size 4096 /dev/nbd0
//	here$  nbd-client -unix /run/b.sock -timeout 20 -block-size 4096 /dev/nbd1
//	here$  mdadm --create /dev/md0 --level=1 --bitmap=internal --raid-devices=2 /dev/nbd0 /dev/nbd1
//
// When the second host is gone, reads and writes of /dev/md0 wait for at most some 25 seconds.
// Then md goes on with the first leg. When the host and its blockstore are back, md copies what
// the leg has missed:
//
//	here$  mdadm /dev/md0 --remove /dev/nbd1
//	here$  nbd-client -d /dev/nbd1
//	here$  nbd-client -unix /run/b.sock -timeout 20 -block-size 4096 /dev/nbd1
//	here$  mdadm /dev/md0 --re-add /dev/nbd1  # --add if the blockstore has another file
//
// When this host has failed, start both nbd, connect both devices and assemble the mirror:
//
//	here$  mdadm --assemble /dev/md0 /dev/nbd0 /dev/nbd1
//
// If one leg is away, mdadm --assemble --run starts the mirror with the other one. That leg must
// have been in sync when the host failed. Otherwise it has missed changes that the other one has.
//
// These options matter:
//
//   - nbd-client -timeout makes a dead leg fail. Without it, requests to a connection that has
//     ended wait for ever, and so does md. With -nonetlink they fail as soon as nbd disconnects,
//     so sooner than with -timeout alone.
//   - nbd -patience and -give-up have to end the session before -timeout ends. Twice -patience
//     and once -give-up must be less than -timeout. Then the device that is connected again has
//     another session, and the blockstore refuses what comes late of the session before.
//     Otherwise such a write could overwrite a newer one.
//   - nbd-client -persist must not be used. A leg whose session has ended has missed writes, and
//     may have lost others that were not flushed. Only --re-add repairs that.
//   - mdadm --bitmap=internal has md note on stable storage where the legs may differ. Without
//     it md copies all bytes to a leg that comes back.
//   - mdadm --write-mostly before a leg makes md read from the others, for example if one
//     blockstore is on this host.
//
// Stripes are made with --level=0, and without --bitmap. If one disk of the stripes fails, so do
// the requests.
//
// test/vmlab/nbd does all this with Linux 6.1, nbd-client 3.24 and mdadm 4.2: a host loses its
// power while ext4 is written, and its leg is rebuilt; then nbd is killed.
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
