package netns

import (
	"fmt"
	"os"
	"syscall"
	"testing"
)

func TestPath(t *testing.T) {
	st, err := os.Stat("/proc/thread-self/ns/net")
	if err != nil {
		t.Skip("no /proc/thread-self/ns/net: ", err)
	}
	inode := st.Sys().(*syscall.Stat_t).Ino
	for path, want := range map[string]string{
		"":                      "",
		"/run/rdsd/rdsd.sock":   "/run/rdsd/rdsd.sock",
		"/run/rdsd/%n.sock":     fmt.Sprintf("/run/rdsd/%d.sock", inode),
		"/run/rdsd/%n/%s-%n":    fmt.Sprintf("/run/rdsd/%d/%%s-%d", inode, inode),
		"/run/100%/rdsd.sock":   "/run/100%/rdsd.sock",
		"/run/rdsd/rdsd.sock%n": fmt.Sprintf("/run/rdsd/rdsd.sock%d", inode),
	} {
		if got := Path(path); got != want {
			t.Errorf("Path(%q) = %q, want %q", path, got, want)
		}
	}
}
