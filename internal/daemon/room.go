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
)

// room is what the memory cgroups that the daemon is in leave it. Their files
// stay open: behind the sandbox they cannot be opened. One goroutine at a time
// may use it.
type room struct {
	groups []group
}

// group is a cgroup with a limit.
type group struct {
	max     uint64
	current *os.File // bytes in use
	stat    *os.File // by kind
}

// spareMost is what is left for the daemon itself: an eighth of the limit, at
// most spareMost.
const spareMost = 256 << 20

func (*room) spare(limit uint64) uint64 { return min(limit/8, spareMost) }

// openRoom finds the groups in the root file system at root ("/" but in tests),
// version 2 and 1; nil: there is none with a limit.
func openRoom(root string) *room {
	self, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil
	}
	r := &room{}
	for line := range strings.Lines(string(self)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(f) != 3:
		case f[0] == "0" && f[1] == "":
			r.open(filepath.Join(root, "sys/fs/cgroup"), f[2], "memory.max", "memory.current")
		case f[1] == "memory":
			r.open(filepath.Join(root, "sys/fs/cgroup/memory"), f[2], "memory.limit_in_bytes", "memory.usage_in_bytes")
		}
	}
	if len(r.groups) == 0 {
		return nil
	}
	return r
}

// open adds the group at path below mount and those above it that have a limit.
func (r *room) open(mount, path, limit, current string) {
	for dir := filepath.Join("/", path); ; dir = filepath.Dir(dir) {
		at := filepath.Join(mount, dir)
		b, err := os.ReadFile(filepath.Join(at, limit))
		if n, bad := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64); err == nil && bad == nil && n < math.MaxInt64/2 {
			if f, err := os.Open(filepath.Join(at, current)); err == nil {
				stat, _ := os.Open(filepath.Join(at, "memory.stat"))
				r.groups = append(r.groups, group{n, f, stat})
			}
		}
		if dir == "/" {
			return
		}
	}
}

// left is how many bytes the group with the least has left, and its limit. What
// the kernel can drop, files it has read, is no use.
func (r *room) left() (left, limit uint64) {
	left, limit = math.MaxUint64, math.MaxUint64
	for i := range r.groups {
		g := &r.groups[i]
		used, _ := strconv.ParseUint(string(bytes.TrimSpace(read(g.current))), 10, 64)
		used -= min(used, r.files(g))
		if n := g.max - min(g.max, used); n < left {
			left, limit = n, g.max
		}
	}
	return left, limit
}

// files is the bytes of files in memory, shared memory not among them.
func (r *room) files(g *group) (n uint64) {
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

func (r *room) close() {
	if r == nil {
		return
	}
	for _, g := range r.groups {
		g.current.Close()
		if g.stat != nil {
			g.stat.Close()
		}
	}
}

// warnRoom warns of a cgroup that has less than the daemon's own buffers and one
// client may take: the kernel would end the daemon, and with it everybody's
// sockets.
func (d *Daemon) warnRoom() {
	r := d.populating.room
	if r == nil {
		return
	}
	own := d.e.OwnMemory()
	if left, limit := r.left(); left < own+quota.SharedEach {
		d.warnings = append(d.warnings, fmt.Sprintf("the daemon's memory cgroup has %d MiB left of %d: its own buffers may come to %d MiB; raise the limit (MemoryMax=, or the container's)",
			left>>20, limit>>20, own>>20))
	}
}
