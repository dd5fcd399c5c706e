package vmlab

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	guestPort  = 7175 // where the guest program listens
	secondPort = 7176 // and a second one
	rpingPort  = 7174
	perfPort   = 18515
	toHost     = "10.0.2.2" // the host's 127.0.0.1, as the machine sees it
	toGuest    = "10.0.2.15"
	bootLimit  = 90 * time.Second
)

// machine is the virtual machine, with its control connection.
type machine struct {
	conn    net.Conn
	in      *bufio.Reader
	port    int         // where the guest program listens
	forward map[int]int // guest's port: the port of 127.0.0.1 that leads there
	wire    string      // what its network card has seen
}

// boot starts the machine made by setup.sh in dir and waits for its guest
// program. It ends with the test.
func boot(t *testing.T, dir string) *machine {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	m := &machine{port: guestPort, forward: map[int]int{}, wire: filepath.Join(dir, "wire.pcap")}
	netdev := "user,id=n0"
	for _, port := range []int{guestPort, secondPort, rpingPort, perfPort} {
		m.forward[port] = freePort(t)
		netdev += fmt.Sprintf(",hostfwd=tcp:127.0.0.1:%d-%s:%d", m.forward[port], toGuest, port)
	}
	console := filepath.Join(dir, "console")
	// timeout ends it even if this process is killed.
	qemu := exec.Command("timeout", "150", "qemu-system-x86_64", "-machine", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "512",
		"-nographic", "-no-reboot", "-nodefaults", "-monitor", "none", "-serial", "file:"+console,
		"-kernel", filepath.Join(dir, "vmlinuz"), "-initrd", filepath.Join(dir, "initrd.gz"),
		"-append", fmt.Sprintf("console=ttyS0 quiet panic=-1 mitigations=off control=%d", l.Addr().(*net.TCPAddr).Port),
		"-netdev", netdev, "-device", "virtio-net-pci,netdev=n0,romfile=",
		"-object", "filter-dump,id=dump,netdev=n0,file="+m.wire)
	qemu.Stderr = os.Stderr
	if err := qemu.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- qemu.Wait() }()
	t.Cleanup(func() {
		if m.conn != nil {
			fmt.Fprintln(m.conn, "quit")
			m.conn.Close()
		}
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			qemu.Process.Kill()
			<-ended
		}
		if !t.Failed() {
			os.Remove(m.wire)
		} else {
			log, _ := os.ReadFile(console)
			t.Logf("console:\n%s", log[max(0, len(log)-4000):])
		}
	})
	m.answer(t, l, bootLimit)
	return m
}

// answer waits for the guest program to call.
func (m *machine) answer(t *testing.T, l net.Listener, limit time.Duration) {
	t.Helper()
	l.(*net.TCPListener).SetDeadline(time.Now().Add(limit))
	var err error
	if m.conn, err = l.Accept(); err != nil {
		t.Fatalf("the machine did not call back: %v", err)
	}
	m.in = bufio.NewReader(m.conn)
	if line, err := m.in.ReadString('\n'); line != "ok ready\n" {
		t.Fatalf("guest said %q: %v", line, err)
	}
}

// second starts the guest program once more, as a child of the first.
func (m *machine) second(t *testing.T) *machine {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	say(t, m, "spawn guest %s %d", toHost, l.Addr().(*net.TCPAddr).Port)
	n := &machine{port: secondPort, forward: m.forward, wire: m.wire}
	n.answer(t, l, limit)
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

// start has the guest begin a command. The channel yields the words of its
// answer without "ok", or its error.
func (m *machine) start(format string, args ...any) <-chan answer {
	c := make(chan answer, 1)
	line := fmt.Sprintf(format, args...)
	go func() {
		m.conn.SetDeadline(time.Now().Add(limit))
		if _, err := fmt.Fprintln(m.conn, line); err != nil {
			c <- answer{err: err}
			return
		}
		reply, err := m.in.ReadString('\n')
		if err != nil {
			c <- answer{err: fmt.Errorf("guest, %q: %w", line, err)}
			return
		}
		reply = strings.TrimSuffix(reply, "\n")
		rest, ok := strings.CutPrefix(reply, "ok")
		if !ok {
			c <- answer{err: fmt.Errorf("guest, %q: %s", line, reply)}
			return
		}
		c <- answer{text: strings.TrimSpace(rest), words: strings.Fields(rest)}
	}()
	return c
}

// answer of the guest.
type answer struct {
	text  string
	words []string
	err   error
}
