// Package store has what blockstore's server and its clients share: the messages, and
// the client's side of the protocol.
//
// # Messages
//
// A message has a header of 48 bytes, little-endian, and a tail:
//
//	off size
//	 0   2  magic "BS"
//	 2   1  version 2
//	 3   1  type
//	 4   2  status (answers)
//	 6   2  flags: 1 = write access (OPEN), the bytes were pushed (WRITE),
//	        2 = the block number is an offset in bytes, the block size 0,
//	        4 = answer WRITTEN without an fsync, 8 = may be a hole,
//	        16 = only if fast, 32 = the content does not matter (ZERO)
//	 8   8  request number, chosen by the client, echoed in the answer
//	16   8  session: random, chosen by the writing client; 0 for readers
//	24   8  block number; OPENED, COMMIT: size of the file in bytes;
//	        GRANTED: number of the grant
//	32   4  block size in bytes; GRANTED: bytes of a buffer
//	36   4  length of this block in bytes (the last one may be short);
//	        OPENED: bytes of the largest small block
//	40   4  CRC-32C of the block (WRITE, DONE)
//	44   4  OPENED: how many requests the server takes at a time;
//	        GRANTED: how many buffers; pushed WRITE: number of the grant << 16 |
//	        number of the buffer; else 0
//	48      small WRITE, DONE of a small READ: the bytes; FAILED: text;
//	        DURABLE: more request numbers, 8 bytes each; MAPPED: extents, 8 bytes each,
//	        its length << 1, | 1 for a hole
//
//	OPEN    -> OPENED             file size, block size that both can handle, window
//	READ    -> DONE               the bytes are in DONE, or in the memory of the cookie
//	GRANT   -> GRANTED            the message's cookie names buffers to push into
//	WRITE   -> DURABLE            on stable storage
//	        or WRITTEN            flag 4: in the file, on stable storage after a FLUSH
//	ZERO    -> DURABLE or WRITTEN length bytes of zeros at an offset in bytes
//	FLUSH   -> DURABLE            everything that was WRITTEN is on stable storage
//	MAP     -> MAPPED             where the file has holes in length bytes at an offset, or in the first of these
//	COMMIT  -> COMMITTED          the size is set, everything is on stable storage
//	any     -> FAILED             status and text
//
// # How the bytes travel
//
// A block is small if it has at most as many bytes as OPENED says. Its bytes are in
// the WRITE, or in the DONE that answers a READ without a cookie.
//
// A larger READ carries the cookie of a buffer of the client. The server writes the
// block there by RDMA, and DONE is the immediate data: it arrives when the block is
// there.
//
// For larger WRITEs the server grants the writer some buffers ahead. The client
// writes the block into one of them by RDMA, with the WRITE as the immediate data. A
// buffer is the client's again with the answer. A grant ends when the writer has not
// pushed for a while, or when another session gets one: a WRITE that names it fails
// with "grant over", and the client asks for the next grant. A grant is given only
// after nobody can write under the earlier one.
//
// # Sessions
//
// One session writes at a time. An OPEN for writing with another session number ends the
// session before it. Later requests of the ended session fail with "stale" and do not
// change the file. So a client that was cut off cannot overwrite its successor's data.
//
// A server that was started again knows no session, and an fsync that fails ends the
// session. So a FLUSH that succeeds covers everything that was WRITTEN in its session, and
// the READs of a session, which name it, never show content that has lost a part of that.
package store
