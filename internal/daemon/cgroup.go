package daemon

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rdsd/rdsd/internal/quota"
	"golang.org/x/sys/unix"
)

// cgroups are the memory cgroups that the daemon is in. Their files stay open, because the
// sandbox forbids to open them. Limits are read each time, because an administrator may change
// them. One goroutine at a time may use it. nil: there is no such cgroup.
type cgroups struct {
	groups []cgroup
}

// cgroup is one memory cgroup.
type cgroup struct {
	limit   *os.File
	current *os.File // bytes in use
	stat    *os.File // by kind
}

// spareMost bounds what a cgroup keeps for the daemon itself, bytes.
const spareMost = 256 << 20

// noLimit is the limit of a cgroup that has none.
const noLimit = math.MaxUint64

// max is the limit of g in bytes.
func (g *cgroup) max() uint64 {
	n, err := strconv.ParseUint(string(bytes.TrimSpace(read(g.limit))), 10, 64)
	if err != nil || n >= math.MaxInt64/2 {
		return noLimit
	}
	return n
}

// pools is how many bytes the engine's pools may come to, 0 for no limit: a quarter of the limit, so
// that the rest of a small cgroup is for processes.
func (c *cgroups) pools() int {
	if c == nil {
		return 0
	}
	_, limit := c.left()
	if limit == noLimit {
		return 0
	}
	return int(limit / 4)
}

// spare is what a cgroup of this limit keeps for the daemon itself, bytes.
func spare(limit uint64) uint64 { return min(limit/8, spareMost) }

// openCgroups finds the daemon's cgroups, of version 2 and 1, in the file system at
// root, which is "/" but in tests. It returns nil if there are none.
func openCgroups(root string) *cgroups {
	self, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil
	}
	c := &cgroups{}
	for line := range strings.Lines(string(self)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(f) != 3:
		case f[0] == "0" && f[1] == "":
			c.open(filepath.Join(root, "sys/fs/cgroup"), f[2], "memory.max", "memory.current")
		case f[1] == "memory":
			c.open(filepath.Join(root, "sys/fs/cgroup/memory"), f[2], "memory.limit_in_bytes", "memory.usage_in_bytes")
		}
	}
	if len(c.groups) == 0 {
		return nil
	}
	return c
}

// open adds the group at path below mount and those above it.
func (c *cgroups) open(mount, path, limit, current string) {
	for dir := filepath.Join("/", path); ; dir = filepath.Dir(dir) {
		at := filepath.Join(mount, dir)
		if most, err := os.Open(filepath.Join(at, limit)); err == nil {
			if f, err := os.Open(filepath.Join(at, current)); err == nil {
				stat, _ := os.Open(filepath.Join(at, "memory.stat"))
				c.groups = append(c.groups, cgroup{most, f, stat})
			} else {
				most.Close()
			}
		}
		if dir == "/" {
			return
		}
	}
}

// left is how many bytes the cgroup with the least memory left has left, and its limit; noLimit
// if none has one. Files that the kernel can drop from memory count as left.
func (c *cgroups) left() (left, limit uint64) {
	left, limit = noLimit, noLimit
	for i := range c.groups {
		g := &c.groups[i]
		most := g.max()
		if most == noLimit {
			continue
		}
		used, _ := strconv.ParseUint(string(bytes.TrimSpace(read(g.current))), 10, 64)
		used -= min(used, g.files())
		if n := most - min(most, used); n < left {
			left, limit = n, most
		}
	}
	return left, limit
}

// files is the bytes of files in memory. Shared memory is not among them.
func (g *cgroup) files() (n uint64) {
	if g.stat == nil {
		return 0
	}
	for line := range bytes.Lines(read(g.stat)) {
		f := bytes.Fields(line)
		if len(f) == 2 && (string(f[0]) == "active_file" || string(f[0]) == "inactive_file") {
			v, _ := strconv.ParseUint(string(f[1]), 10, 64)
			n += v
		}
	}
	return n
}

// read returns what f, a file of a cgroup, says now.
func read(f *os.File) []byte {
	buf := make([]byte, 8192)
	n, _ := f.ReadAt(buf, 0)
	return buf[:n]
}

// need is what a session asks of the daemon's memory cgroups.
type need struct {
	size    uint64 // bytes
	own     uint64 // what its user would have, bytes
	users   int    // how many users have memory, this one included
	pending uint64 // bytes that are reserved and not populated yet
	mapped  uint64 // bytes that all processes have, beside size
	buffers uint64 // what the daemon's own buffers may come to, bytes
}

// fits returns nil if n for u leaves the cgroup what it keeps for the daemon itself. A process can
// punch holes into its memory, and the daemon's next access fills them, so what is mapped
// counts whether it is in memory or not. A user that is not trusted may have no more than is
// left, or, if that is more, an equal part of what is for processes, as if there were one more user.
// The error is ENOMEM.
func (c *cgroups) fits(u *quota.User, n need) error {
	if c == nil {
		return nil
	}
	left, most := c.left()
	left -= min(left, n.pending+spare(most))
	part := uint64(noLimit)
	for i := range c.groups {
		limit := c.groups[i].max()
		processes := limit - min(limit, n.buffers+spare(limit))
		part = min(part, processes/uint64(n.users+1))
		if rest := processes - min(processes, n.mapped); rest < left {
			left, most = rest, limit
		}
	}
	switch {
	case n.size > left:
		return fmt.Errorf("%w: %d bytes asked, the daemon's memory cgroup has %d left of %d beside what processes have: free some, or raise its limit (MemoryMax=, or the container's)",
			unix.ENOMEM, n.size, left, most)
	case !u.Trusted && n.own > max(left, part):
		return fmt.Errorf("%w: %v would have %d bytes, more than the %d that the daemon's memory cgroup of %d has left, and than its part of %d: free some, or raise the cgroup's limit (MemoryMax=, or the container's)",
			unix.ENOMEM, u, n.own, left, most, part)
	}
	return nil
}

// tooSmallFor returns a warning if the cgroup has less left than the daemon's own buffers,
// own bytes, and one client may take. The kernel would end the daemon, and with it
// everybody's sockets. It returns "" if there is enough.
func (c *cgroups) tooSmallFor(own uint64) string {
	if c == nil {
		return ""
	}
	left, limit := c.left()
	if left >= own+quota.SharedEach {
		return ""
	}
	return fmt.Sprintf("the daemon's memory cgroup has %d MiB left of %d: its own buffers may come to %d MiB; raise the limit (MemoryMax=, or the container's)",
		left>>20, limit>>20, own>>20)
}

func (c *cgroups) close() {
	if c == nil {
		return
	}
	for _, g := range c.groups {
		g.limit.Close()
		g.current.Close()
		if g.stat != nil {
			g.stat.Close()
		}
	}
}
