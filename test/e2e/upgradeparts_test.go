package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/rds"
	"golang.org/x/sys/unix"
)

// startUpgradeWorker starts a client process with traffic that is to be killed.
func startUpgradeWorker(t *testing.T, h *host, sink addrPort) *process {
	t.Helper()
	return startWorker(t, h, h.at(0), sink)
}

// startWorker is startUpgradeWorker with the address of its socket.
func startWorker(t *testing.T, h *host, at, sink addrPort) *process {
	t.Helper()
	role, err := json.Marshal(worker{Socket: h.sock, At: at, Size: 4096, Sinks: []addrPort{sink}, Hub: sink, Cookie: 1})
	if err != nil {
		t.Fatal(err)
	}
	w := startProcess(t, []string{envRole + "=" + string(role)}, os.Args[0])
	eventually(t, "the worker", func() error {
		r, err := h.ask(ctl.Request{Kind: ctl.KindProcesses})
		if err == nil && !slices.ContainsFunc(r.Processes, func(p ctl.ProcessInfo) bool { return p.Owner.PID == w.Pid() }) {
			err = errors.New("has not attached")
		}
		return err
	})
	return w
}

// epoll is an epoll instance with the descriptor of one socket.
type epoll struct{ fd int }

func newEpoll(t *testing.T, s *rds.Socket) epoll {
	t.Helper()
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	p, err := s.PollFD(rds.WaitSet{Message: true})
	if err == nil {
		err = unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, p, &unix.EpollEvent{Events: unix.EPOLLIN})
	}
	if err != nil {
		t.Fatal(err)
	}
	return epoll{fd}
}

// wait waits until the descriptor is readable.
func (e epoll) wait() error {
	for {
		var ev [1]unix.EpollEvent
		n, err := unix.EpollWait(e.fd, ev[:], -1)
		if n == 1 || err != nil && err != unix.EINTR {
			return err
		}
	}
}

func mustAlloc(t *testing.T, c *rds.Client, size int) *rds.Buffer {
	t.Helper()
	b, err := c.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
