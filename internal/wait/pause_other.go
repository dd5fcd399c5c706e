//go:build !amd64 && !arm64

package wait

// Pause does nothing here.
func Pause() {}
