package shm

// DefaultBuf is the send and the receive buffer of a new socket, payload bytes.
// The kernel's is 106496; that is one message of 64 KiB on its way at a time, and
// 26 of 4 KiB: both ends sleep more than they work.
const DefaultBuf = 512 << 10

// A buffer holds at most one message with payload for each countedAs of its
// bytes, and leastMsgs whatever its size: more small ones than that are more
// memory than the processors' caches hold, for no gain. Empty ones cost nothing,
// as the kernel's.
const (
	countedAs = 256
	leastMsgs = 2048
)

// MaxMsgs is how many messages with payload a buffer of so many bytes holds.
func MaxMsgs(buf int) int { return max(buf/countedAs, leastMsgs) }
