package e2e

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

// resources are the resources of a process, from /proc.
type resources struct {
	sockets  int      // descriptors
	files    int      // all other descriptors
	mappings int      // of shared memory
	list     []string // what the descriptors of files are
}

func resourcesOf(pid int) (r resources) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, _ := os.ReadDir(dir)
	for _, fd := range fds {
		switch to, err := os.Readlink(dir + "/" + fd.Name()); {
		case err != nil, strings.HasPrefix(to, dir): // the descriptor of this directory
		case strings.HasPrefix(to, "/sys/fs/cgroup/"): // opened once, by older daemons only where there is a limit
		case strings.HasPrefix(to, "socket:"):
			r.sockets++
		default:
			r.files++
			r.list = append(r.list, fd.Name()+":"+to)
		}
	}
	maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	r.mappings = strings.Count(string(maps), "memfd:")
	return r
}

// compare returns an error that says what now has more of than before. now may have more
// sockets, as many as sockets says.
func (before resources) compare(now resources, sockets int) error {
	if now.files > before.files || now.mappings > before.mappings || now.sockets > before.sockets+sockets {
		return fmt.Errorf("has %+v, at first %+v and %d connections", now, before, sockets)
	}
	return nil
}

// noLeaks checks at the end of the test that this process has no more descriptors, shared
// mappings and goroutines than now.
func noLeaks(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	before := resourcesOf(os.Getpid())
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		eventually(t, "this process", func() error {
			if n := runtime.NumGoroutine(); n > goroutines {
				buf := make([]byte, 1<<16)
				return fmt.Errorf("has %d goroutines, at first %d:\n%s", n, goroutines, buf[:runtime.Stack(buf, true)])
			}
			return before.compare(resourcesOf(os.Getpid()), 0)
		})
	})
}
