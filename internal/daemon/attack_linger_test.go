package daemon

import (
	"net"
	"testing"

	"github.com/rdsd/rdsd/internal/ipc"
	"golang.org/x/sys/unix"
)

// letDescriptorsIn makes the control socket one of a kernel before 6.16, which
// delivers the descriptors that a process sends.
func letDescriptorsIn(t *testing.T, d *Daemon) {
	t.Helper()
	raw, err := d.listeners.control.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 1) })
}

// lingering is a TCP connection whose last close takes a minute, for what it has
// to send is never read. far collects its other end.
func lingering(t *testing.T, l *net.TCPListener, far *[]net.Conn) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	to := l.Addr().(*net.TCPAddr)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())}); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	*far = append(*far, c)
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 60}); err != nil {
		t.Fatal(err)
	}
	unix.SetNonblock(fd, true)
	for b := make([]byte, 1<<16); err == nil; {
		_, err = unix.Write(fd, b)
	}
	return fd
}

// TestLingeringDescriptors: more connections than may be silent, each with a
// descriptor whose close takes a minute. Other processes attach and are served,
// the daemon says that it is well, and it ends when it is told to (which
// startDaemon checks).
func TestLingeringDescriptors(t *testing.T) {
	var far []net.Conn
	t.Cleanup(func() { // after the daemon has ended
		for _, c := range far {
			c.Close()
		}
	})
	d := startDaemon(t, nil)
	letDescriptorsIn(t, d)
	victim := attached(t, d)
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 3 {
		d.admission.mu.Lock() // they are all there, and their descriptors the last, before one is served
		for i := range maxSilent / 2 {
			p := dialRaw(t, d)
			fd := lingering(t, l, &far)
			if i%2 == 0 { // it says something first, which has the daemon read on
				p.write(ipc.AppendFrame(nil, 1, &ipc.Hello{Role: ipc.RoleCtl}))
			}
			p.write(ipc.AppendFrame(nil, 9, &ipc.Ctl{JSON: []byte("{}")}), fd)
			unix.Close(fd)
			if i%3 == 0 {
				p.close()
			}
		}
		d.admission.mu.Unlock()
		attached(t, d).close()
	}
	if err := victim.ping(); err != nil {
		t.Error(err)
	}
	if err := d.admission.stuck(); err != nil {
		t.Error(err)
	}
	if err := attached(t, d).ping(); err != nil {
		t.Error(err)
	}
}
