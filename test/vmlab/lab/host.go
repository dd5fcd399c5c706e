package lab

import (
	"bufio"
	_ "embed"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// Host is one emulated host of a lab. Several goroutines may call its methods.
type Host struct {
	name     string
	lab      *Lab
	qemu     *exec.Cmd
	listener net.Listener
	conn     net.Conn
	ended    chan struct{} // closed when qemu has ended
	heard    chan struct{} // closed when no line of the host comes any more

	mu   sync.Mutex
	jobs map[int]*Job
	last int
}

// Name returns A or B.
func (h *Host) Name() string { return h.name }

// IP returns the host's IPv4 address on the link. A host alone has it, too.
func (h *Host) IP() string { return fmt.Sprintf("10.9.0.%d", h.name[0]-'A'+1) }

// IP6 is the host's IPv6 address.
func (h *Host) IP6() string { return fmt.Sprintf("fd00:9::%d", h.name[0]-'A'+1) }

// ready waits for the first line of the host.
func (h *Host) ready() error {
	h.listener.(*net.UnixListener).SetDeadline(time.Now().Add(bootLimit))
	conn, err := h.listener.Accept()
	if err != nil {
		return err
	}
	conn.SetReadDeadline(time.Now().Add(bootLimit))
	in := bufio.NewReader(conn)
	if line, err := in.ReadString('\n'); err != nil || line != "ready\n" {
		conn.Close()
		return fmt.Errorf("it said %q: %w", line, err)
	}
	conn.SetReadDeadline(time.Time{})
	h.conn, h.heard = conn, make(chan struct{})
	go h.listen(in)
	return nil
}

// listen passes the ends of jobs to those that wait for them.
func (h *Host) listen(in *bufio.Reader) {
	defer close(h.heard)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			break
		}
		var id, status int
		if n, _ := fmt.Sscanf(line, "done "+h.name+"%d %d", &id, &status); n != 2 {
			continue
		}
		h.mu.Lock()
		j := h.jobs[id]
		delete(h.jobs, id)
		h.mu.Unlock()
		if j != nil {
			j.status = status
			close(j.done)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, j := range h.jobs {
		j.status = Gone
		close(j.done)
		delete(h.jobs, id)
	}
}

func (h *Host) say(format string, args ...any) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := fmt.Fprintf(h.conn, format, args...)
	return err
}

// Start starts a bash script in /tmp, as root. The script has the variables HOST (A or B), ME,
// PEER, ME6 and PEER6 (addresses), and the functions in README.md.
func (h *Host) Start(t *testing.T, script string) *Job {
	t.Helper()
	h.mu.Lock()
	h.last++
	j := &Job{h: h, id: h.last, done: make(chan struct{})}
	h.jobs[j.id] = j
	h.mu.Unlock()
	if err := os.WriteFile(h.lab.File(j.file()+".sh"), []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := h.say("run %s\n", j.file()); err != nil {
		t.Fatalf("host %s: %v", h.name, err)
	}
	return j
}

// Run runs a script and returns its output. It ends the test unless the script ends with status
// 0 within the limit.
func (h *Host) Run(t *testing.T, limit time.Duration, script string) string {
	t.Helper()
	r := h.Start(t, script).Wait(limit)
	if err := r.Err(); err != nil {
		t.Fatalf("host %s: %v", h.name, err)
	}
	return r.Out
}

// Load loads kernel modules.
func (h *Host) Load(t *testing.T, modules ...string) {
	t.Helper()
	h.Run(t, time.Minute, "lab_load "+strings.Join(modules, " "))
}

// halt ends the host, in an orderly way if it can.
func (h *Host) halt() {
	if h.conn != nil {
		h.say("halt\n")
		defer h.conn.Close()
	} else {
		h.qemu.Process.Signal(os.Interrupt) // to timeout, which passes it on
	}
	select {
	case <-h.ended:
	case <-time.After(haltLimit):
		h.qemu.Process.Signal(os.Interrupt)
		<-h.ended
	}
}
