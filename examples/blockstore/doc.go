// Command blockstore is the disk block server of RDS lore over package rds:
// one process serves a file in blocks, others copy it out or in, many blocks
// in flight, and the data moves by RDMA between registered buffers.
//
//	blockstore serve [flags] FILE
//	blockstore copy-out [flags] REMOTE FILE
//	blockstore copy-in [flags] FILE REMOTE
//
// # Reading a block
//
// The client sends READ with the cookie of a buffer of its own. The server
// preads the block into one of its registered buffers and RDMA-writes it into
// the client's memory; the immediate data, the message DONE, arrives when the
// block is there.
//
// # Writing a block
//
// The client sends WRITE with the cookie of the buffer that holds the block.
// The server RDMA-reads it; the immediate data, FETCHED, releases the client's
// buffer. The server pwrites the block, and one fsync for all blocks written
// since the last confirms them: DURABLE, a message of its own.
//
// # Who may touch which memory when
//
// A server buffer is free again when the high-water mark of its destination
// has passed the operation's id, whatever became of the operation (lender.go).
// A client buffer keeps its region from one block to the next as long as every
// request ended cleanly, with DONE or FETCHED: then no operation on it can be
// left. After anything else (an operation dropped, of unknown outcome, a time
// out) the client releases the region before it asks again under a new request
// number and a new cookie: when Release returns, nothing late can land in the
// buffer, and a late answer names a request nobody waits for (slot.go).
//
// # Messages
//
// Little-endian, 48 bytes and a tail:
//
//	off size
//	 0   2  magic "BS"
//	 2   1  version 1
//	 3   1  type
//	 4   2  status (answers)
//	 6   2  flags: 1 = write access (OPEN), tell me FETCHED (WRITE)
//	 8   8  request number, chosen by the client, echoed in the answer
//	16   8  session: random, chosen by the writing client; 0 for readers
//	24   8  block number; OPENED, COMMIT: size of the file in bytes
//	32   4  block size in bytes
//	36   4  length of this block in bytes (the last one may be short)
//	40   4  CRC-32C of the block
//	44   4  OPENED: how many requests the server takes at a time; else 0
//	48      FAILED: text; DURABLE: more request numbers, 8 bytes each
//
//	OPEN    -> OPENED             size, block size both can, window
//	READ    -> DONE               the block is in the memory of the cookie
//	WRITE   -> FETCHED, DURABLE   buffer released; on stable storage
//	COMMIT  -> COMMITTED          size set, everything on stable storage
//	any     -> FAILED             status and text
//
// One session writes at a time. An OPEN for writing with another number ends
// the session before it: its blocks are answered with "stale" and never reach
// the file, so a client that was cut off cannot overwrite its successor's data.
package main
