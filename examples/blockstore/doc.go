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
// The messages are package store's.
package main
