package shm

// A handle names a socket in descriptors and control frames. Its low sockIndexBits bits are
// the socket's index. Above them is how often the index was used before, modulo 2^12. Free
// indices are used again oldest first. So a late frame or descriptor of a closed socket
// names no socket.
const sockIndexBits = 20

// MaxSocks is how many sockets a client can have at a time.
const MaxSocks = 1 << sockIndexBits

// SockHandle returns the handle of index i, below MaxSocks, in its use number gen.
func SockHandle(i, gen uint32) uint32 { return gen<<sockIndexBits | i }

// SockIndex returns the index that a handle names.
func SockIndex(handle uint32) uint32 { return handle & (MaxSocks - 1) }
