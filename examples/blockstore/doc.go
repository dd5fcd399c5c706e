// Command blockstore is a server of disk blocks over package rds, with its client. One
// process serves a file in blocks. Others copy the file out or in, with many blocks in
// flight. The data moves by RDMA between registered buffers.
//
//	blockstore serve [flags] FILE
//	blockstore copy-out [flags] REMOTE FILE
//	blockstore copy-in [flags] FILE REMOTE
//
// # Reading a block
//
// The client sends READ with the cookie of a buffer of its own. The server preads
// the block into one of its registered buffers and RDMA-writes it into the client's
// memory. The message of that operation is DONE. It arrives when the block is there.
//
// # Writing a block
//
// The client sends WRITE with the cookie of the buffer that holds the block. The
// server RDMA-reads the block. The message of that operation is FETCHED. It releases
// the client's buffer. The server pwrites the block. One fsync makes all blocks
// durable that were written since the last one. The server then sends DURABLE.
//
// # Who may touch which memory when
//
// A server buffer with an operation is free again when the high-water mark of the
// operation's destination has reached its id, whatever its status (lender.go). The one
// exception is a successful RDMA read: the buffer then has the block, and is free when the
// block is written to the file.
//
// A client buffer keeps its region from one block to the next as long as every request
// ends cleanly, because then no operation on the buffer is left. After anything else (an
// operation dropped, an unknown outcome, no answer in time) the client releases the
// region. When Release has returned, no late operation can touch the buffer. Only then the
// client requests the block again, with a new request number and a new cookie. A late
// answer has the old number, which no call waits for (store/slot.go).
//
// Package store has the messages.
package main
