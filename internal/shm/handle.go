package shm

// A socket's handle is what descriptors and control frames name it by: its index
// in the low sockIndexBits bits, and above them how often the index had been used
// before, modulo 2^12. Indices that came free are used again oldest first. So
// whatever is late of a former socket names one that is not there.
const sockIndexBits = 20

// MaxSocks is how many sockets a client can have at a time.
const MaxSocks = 1 << sockIndexBits

// SockHandle returns the handle of index i, below MaxSocks, in its use number gen.
func SockHandle(i, gen uint32) uint32 { return gen<<sockIndexBits | i }

// SockIndex returns the index that a handle names.
func SockIndex(handle uint32) uint32 { return handle & (MaxSocks - 1) }
