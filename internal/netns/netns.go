// Package netns names what belongs to one network namespace.
package netns

import (
	"strconv"
	"strings"
	"syscall"
)

// mark stands for the network namespace in a path.
const mark = "%n"

// Path returns path with the inode number of the calling thread's network namespace in the place of
// each "%n": the number that ls -i /run/netns and lsns -t net show. So one value names the control
// socket of each namespace's daemon. It returns path as it is if the number cannot be had (no /proc).
func Path(path string) string {
	if !strings.Contains(path, mark) {
		return path
	}
	n := Number()
	if n == 0 {
		return path
	}
	return strings.ReplaceAll(path, mark, strconv.FormatUint(n, 10))
}

// Number returns the inode number of the calling thread's network namespace. It is 0 if the number cannot be
// had (no /proc).
func Number() uint64 {
	var st syscall.Stat_t
	if err := syscall.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return 0
	}
	return st.Ino
}
