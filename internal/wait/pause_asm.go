//go:build amd64 || arm64

package wait

// Pause tells the processor that the thread looks again and again, so that the other thread
// of a core gets more of it.
func Pause()
