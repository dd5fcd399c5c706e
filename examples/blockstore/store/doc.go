// Package store has what blockstore's server and its clients share: the messages, and
// the client's side of the protocol.
//
// # Messages
//
// A message has a header of 48 bytes, little-endian, and a tail:
//
//	off size
//	 0   2  magic "BS"
//	 2   1  version 1
//	 3   1  type
//	 4   2  status (answers)
//	 6   2  flags: 1 = write access (OPEN), tell me FETCHED (WRITE),
//	        2 = the block number is an offset in bytes, the block size 0,
//	        4 = answer WRITTEN without an fsync, 8 = may be a hole,
//	        16 = only if fast, 32 = the content does not matter (ZERO)
//	 8   8  request number, chosen by the client, echoed in the answer
//	16   8  session: random, chosen by the writing client; 0 for readers
//	24   8  block number; OPENED, COMMIT, COMMITTED: size of the file in bytes
//	32   4  block size in bytes
//	36   4  length of this block in bytes (the last one may be short)
//	40   4  CRC-32C of the block (WRITE, DONE)
//	44   4  OPENED: how many requests the server takes at a time; else 0
//	48      FAILED: text; DURABLE: more request numbers, 8 bytes each
//
//	OPEN    -> OPENED             file size, block size that both can handle, window
//	READ    -> DONE               the block is in the memory of the cookie
//	WRITE   -> FETCHED            flag 1: the client's buffer is free; another answer follows
//	        -> DURABLE            the block is on stable storage
//	        or WRITTEN            flag 4: in the file, on stable storage after a FLUSH
//	ZERO    -> DURABLE or WRITTEN length bytes of zeros at an offset in bytes
//	FLUSH   -> DURABLE            everything that was WRITTEN is on stable storage
//	COMMIT  -> COMMITTED          the size is set, everything is on stable storage
//	any     -> FAILED             status and text
//
// One session writes at a time. An OPEN for writing with another session number ends the
// session before it. Later requests of the ended session fail with "stale" and do not
// change the file. So a client that was cut off cannot overwrite its successor's data.
//
// A server that was started again knows no session. So a FLUSH that succeeds covers
// everything that was WRITTEN in its session.
package store
