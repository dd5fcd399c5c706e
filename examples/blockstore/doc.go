// Command blockstore is the disk block server of RDS lore over package rds:
// one process serves a file in blocks, others copy it out or in, many blocks
// in flight. Small blocks travel in the messages, larger ones by RDMA between
// registered buffers.
//
//	blockstore serve [flags] FILE
//	blockstore copy-out [flags] REMOTE FILE
//	blockstore copy-in [flags] FILE REMOTE
//
// # One message each way
//
// A block of at most -small bytes is in the request to write it, or in the answer to
// the request to read it. No operation, grant or barrier is needed.
//
// The server RDMA-writes a larger block that is read into the client's memory; the
// immediate data is the answer. The client RDMA-writes a larger block that is
// written into memory that the server has granted ahead; the immediate data is the
// request. Package store has the messages.
//
// # Who answers
//
// The goroutine that receives requests answers those that need not wait for storage:
// reads of what is in the page cache (preadv2 with RWF_NOWAIT), and writes where the
// file system takes them without a wait. It takes requests, and sends answers, in
// batches. Workers do the rest. One fsync confirms all blocks written since the last.
//
// # Who may touch which memory when
//
// A server buffer with a block that was read is free again when the high-water mark
// of its destination has passed the operation's id, whatever became of the operation
// (lender.go).
//
// The buffers that a writer pushes into are one region, granted to one session
// (inbox.go). Another session gets them when no write from them is in hand and the
// region was released.
//
// A client buffer keeps its region from one block to the next as long as every
// request ended cleanly, with DONE: then no operation on it can be
// left. After anything else (an operation dropped, of unknown outcome, a time
// out) the client releases the region before it asks again under a new request
// number and a new cookie: when Release returns, nothing late can land in the
// buffer, and a late answer names a request nobody waits for (slot.go). A buffer
// that was pushed from is changed when the high-water mark has passed the push.
package main
