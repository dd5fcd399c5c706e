package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/internal/stats"
)

// resources are the resources of a process, from /proc.
type resources struct {
	sockets, files, mappings int
	resident                 int // KiB
	list                     []string
}

func resourcesOf(pid int) (r resources) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, _ := os.ReadDir(dir)
	for _, fd := range fds {
		switch to, err := os.Readlink(dir + "/" + fd.Name()); {
		case err != nil:
		case strings.HasPrefix(to, "socket:"):
			r.sockets++
		default:
			r.files++
			r.list = append(r.list, fd.Name()+":"+to)
		}
	}
	maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	r.mappings = strings.Count(string(maps), "memfd:")
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if _, rest, ok := strings.Cut(string(status), "VmRSS:"); ok {
		r.resident, _ = strconv.Atoi(strings.Fields(rest)[0])
	}
	return r
}

// growth is how much a daemon's memory may have grown when all clients have closed. Pools stay
// for the next clients.
const growth = 96 << 10 // KiB

// leaks returns an error that says what the daemon still has when all its clients have gone. It
// waits for that to be nothing.
func (h *host) leaks() error {
	deadline := time.Now().Add(patience)
	for {
		err := h.holds()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond) // between two looks
	}
}

func (h *host) holds() error {
	m, err := stats.Open(h.sock + ".stats")
	if err != nil {
		return err
	}
	defer m.Close()
	for _, c := range []stats.Counter{stats.Clients, stats.Sockets, stats.Regions, stats.RegisteredBytes, stats.SharedBytes,
		stats.HeldBytes, stats.QueuedMessages, stats.QueuedBytes, stats.OpsOutstanding, stats.CongestedPorts} {
		if n := m.Load(int(c)); n != 0 {
			return fmt.Errorf("daemon %v holds %d %s with no client", h.addr, n, c)
		}
	}
	now, peers := resourcesOf(h.daemon.serving()), int(m.Load(int(stats.PeersUp)))
	switch {
	case now.files > h.base.files || now.mappings > h.base.mappings || now.sockets > h.base.sockets+peers:
		said, _ := h.ctl("peers")
		return fmt.Errorf("daemon %v has %+v, at first %+v and now %d connections:\n%s", h.addr, now, h.base, peers, said)
	case now.resident > h.base.resident+growth:
		return fmt.Errorf("daemon %v has %d KiB of memory, at first %d", h.addr, now.resident, h.base.resident)
	}
	return nil
}

// ends ends the daemon in an orderly way, and checks that it leaves no file.
func (h *host) ends() error {
	if err := h.stop(syscall.SIGTERM); err != nil {
		return err
	}
	left, err := filepath.Glob(h.sock + "*")
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("daemon %v left %v", h.addr, left)
	}
	return err
}
