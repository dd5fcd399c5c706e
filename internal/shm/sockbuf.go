package shm

// DefaultBuf is the size of a new socket's send buffer and of its receive buffer, in
// payload bytes. The kernel's 106496 would hold one message of 64 KiB at a time, or 26 of 4
// KiB, and both ends would sleep more than they work.
const DefaultBuf = 512 << 10

// A buffer holds at most one message with payload for each countedAs of its bytes, and at
// least leastMsgs whatever its size. More small messages would need more memory than the
// processors' caches hold, for no gain. Empty messages do not count, as in the kernel.
const (
	countedAs = 64
	leastMsgs = 2048
)

// MaxMsgs is how many messages with payload a buffer of buf bytes holds.
func MaxMsgs(buf int) int { return max(buf/countedAs, leastMsgs) }
