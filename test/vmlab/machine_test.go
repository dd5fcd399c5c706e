package vmlab

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	guestPort  = 7175 // where the guest program listens
	secondPort = 7176 // where a second guest program listens
	rpingPort  = 7174
	perfPort   = 18515
	toHost     = "10.0.2.2" // the host's 127.0.0.1, as the machine sees it
	toGuest    = "10.0.2.15"
	// The machine is slow, and slower beside other work. Each limit is much longer than anything
	// takes.
	limit        = 60 * time.Second // for anything; longer than the guest program's own limits
	guestMs      = 30000            // for the guest to notice something
	bootLimit    = 3 * time.Minute
	machineLimit = 15 * time.Minute // for all cases
	maxBoots     = 4
)

// machine is the virtual machine, with its control connection. After a case that failed, it is
// booted again for the next one.
type machine struct {
	*control
	t       *testing.T // of all cases
	dir     string
	port    int         // where the guest program listens
	forward map[int]int // guest's port: the port of 127.0.0.1 that leads there
	wire    string      // capture of its network card
	qemu    *exec.Cmd
	ended   chan error
	suspect bool // a case failed with this machine
	boots   int
}

// boot starts the machine that setup.sh made in dir, and waits for its guest program. The
// machine ends with the test.
func boot(t *testing.T, dir string) *machine {
	t.Helper()
	m := &machine{t: t, dir: dir, port: guestPort, forward: map[int]int{}}
	t.Cleanup(func() {
		m.off()
		if !t.Failed() {
			os.Remove(m.wire)
		}
	})
	m.on(t)
	return m
}

// on boots the machine.
func (m *machine) on(t *testing.T) {
	t.Helper()
	begun := time.Now()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	m.wire = filepath.Join(m.dir, fmt.Sprintf("wire-%d.pcap", m.boots))
	m.boots++
	netdev := "user,id=n0"
	for _, port := range []int{guestPort, secondPort, rpingPort, perfPort} {
		m.forward[port] = freePort(t)
		netdev += fmt.Sprintf(",hostfwd=tcp:127.0.0.1:%d-%s:%d", m.forward[port], toGuest, port)
	}
	// timeout ends qemu even if this process is killed.
	m.qemu = exec.Command("timeout", fmt.Sprint(machineLimit.Seconds()), "qemu-system-x86_64",
		"-machine", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "512",
		"-nographic", "-no-reboot", "-nodefaults", "-monitor", "none", "-serial", "file:"+m.console(),
		"-kernel", filepath.Join(m.dir, "vmlinuz"), "-initrd", filepath.Join(m.dir, "initrd.gz"),
		"-append", fmt.Sprintf("console=ttyS0 quiet panic=-1 mitigations=off control=%d", l.Addr().(*net.TCPAddr).Port),
		"-netdev", netdev, "-device", "virtio-net-pci,netdev=n0,romfile=",
		"-object", "filter-dump,id=dump,netdev=n0,file="+m.wire)
	m.qemu.Stderr = os.Stderr
	if err := m.qemu.Start(); err != nil {
		t.Fatal(err)
	}
	m.ended = make(chan error, 1)
	go func(qemu *exec.Cmd, ended chan error) { ended <- qemu.Wait() }(m.qemu, m.ended)
	m.control = newControl(t, l, bootLimit)
	m.suspect = false
	t.Logf("booted in %v", time.Since(begun).Round(time.Second/10))
}

// off ends the machine. If a case has failed, it logs the end of the machine's console.
func (m *machine) off() {
	if m.qemu == nil || m.qemu.Process == nil {
		return
	}
	if m.control != nil {
		m.start("quit")
	}
	select {
	case <-m.ended:
	case <-time.After(5 * time.Second):
		m.qemu.Process.Signal(syscall.SIGTERM) // to timeout, which passes it on
		<-m.ended
	}
	if m.control != nil {
		m.conn.Close()
	}
	m.qemu, m.control = nil, nil
	if m.t.Failed() || m.suspect {
		log, _ := os.ReadFile(m.console())
		m.t.Logf("console:\n%s", log[max(0, len(log)-4000):])
	}
}

func (m *machine) console() string { return filepath.Join(m.dir, "console") }

// fresh boots the machine again if a case has failed with it. It keeps the capture of the
// network card. If too many cases have failed, it ends the test.
func (m *machine) fresh(t *testing.T) {
	t.Helper()
	if !m.suspect && (m.control == nil || m.well()) {
		return
	}
	if m.boots > maxBoots {
		t.Fatalf("booted %d times, a case failed each time", m.boots)
	}
	m.suspect = true
	m.off()
	m.on(t)
}

// after is called when a case has ended.
func (m *machine) after(t *testing.T) { m.suspect = m.suspect || t.Failed() || !m.well() }

// begin is called by a case that makes no lab.
func (m *machine) begin(t *testing.T) {
	t.Helper()
	m.fresh(t)
	t.Cleanup(func() {
		if t.Failed() {
			m.kernelLog(t)
		}
		m.after(t)
	})
}

// kernelLog logs the last messages of siw and its kernel.
func (m *machine) kernelLog(t *testing.T) {
	if !m.well() { // otherwise each question would take its whole limit
		t.Log("guest: does not answer")
		return
	}
	if a := m.ask("spawn dmesg | grep -v speed | tail -n 30"); a.err == nil {
		t.Logf("guest: kernel:\n%s", strings.ReplaceAll(m.ask("wait").text, "|", "\n"))
	}
}

// second starts the guest program again, as a child of the first one.
func (m *machine) second(t *testing.T) *machine {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	say(t, m, "spawn guest %s %d", toHost, l.Addr().(*net.TCPAddr).Port)
	n := &machine{t: t, port: secondPort, forward: m.forward, wire: m.wire, control: newControl(t, l, limit)}
	t.Cleanup(func() { n.conn.Close() })
	return n
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
