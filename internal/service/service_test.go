package service

import (
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const child = "SERVICE_TEST_CHILD"

// TestMain: as a child the binary takes the sockets it was passed and prints which it got.
func TestMain(m *testing.M) {
	if os.Getenv(child) == "" {
		os.Exit(m.Run())
	}
	os.Setenv("LISTEN_PID", itoa(os.Getpid())) // systemd's fork sets its own pid
	s, err := TakeSockets()
	if err != nil {
		os.Stdout.WriteString("error: " + strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(0)
	}
	out := ""
	if s.Control != nil {
		out += "control " + filepath.Base(s.Control.Addr().String()) + " "
	}
	for _, l := range s.Peers {
		out += "peer " + l.Addr().(*net.TCPAddr).IP.String() + " "
	}
	s.Close()
	if s.Control != nil || s.Peers != nil {
		out += "not closed"
	}
	os.Stdout.WriteString(out)
	os.Exit(0)
}

func itoa(n int) string { return strings.TrimSpace(slog.IntValue(n).String()) }

// passed runs a child with sockets as systemd passes them.
func passed(t *testing.T, names string, files ...*os.File) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.ExtraFiles = files
	cmd.Env = append(os.Environ(), child+"=1", "LISTEN_FDS="+itoa(len(files)), "LISTEN_FDNAMES="+names)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestSockets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rdsd.sock")
	packet, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	packet.SetUnlinkOnClose(false)
	stream, err := net.ListenUnix("unix", &net.UnixAddr{Name: path + "2", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	tcp := func(addr string) *os.File {
		l, err := net.Listen("tcp", addr+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		f, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	pf, err := packet.File()
	if err != nil {
		t.Fatal(err)
	}
	sf, err := stream.File()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		names string
		files []*os.File
		want  string
	}{
		{"", nil, ""},
		{"control:rds:rds", []*os.File{pf, tcp("127.0.0.1"), tcp("127.0.0.2")}, "control rdsd.sock peer 127.0.0.1 peer 127.0.0.2 "},
		{"control", []*os.File{sf}, "error: sockets of systemd: control unix "},
		{"control:control", []*os.File{pf, pf}, "error: sockets of systemd: control unixpacket "},
		{"rds", []*os.File{pf}, "error: sockets of systemd: rds unixpacket "},
		{"web", []*os.File{tcp("127.0.0.1")}, "error: sockets of systemd: web tcp "},
	} {
		if got := passed(t, tc.names, tc.files...); !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", tc.names, got, tc.want)
		}
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the file of a passed socket is gone: %v", err)
	}
}

func TestNotifier(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "10000000")
	t.Setenv("WATCHDOG_PID", itoa(os.Getpid()))
	n := NewNotifier(slog.New(slog.DiscardHandler))
	if n.Watchdog.Seconds() != 10 {
		t.Errorf("watchdog %v", n.Watchdog)
	}
	n.Ready("serving")
	n.Reloading()
	n.Alive()
	n.Status("x")
	n.MainPID(4711)
	n.Stopping()
	for _, want := range []string{"READY=1\nSTATUS=serving", "RELOADING=1\nMONOTONIC_USEC=", "WATCHDOG=1", "STATUS=x", "MAINPID=4711", "STOPPING=1"} {
		b := make([]byte, 200)
		k, err := l.Read(b)
		if err != nil || !strings.HasPrefix(string(b[:k]), want) {
			t.Errorf("got %q, %v, want %q", b[:k], err, want)
		}
	}
	t.Setenv("NOTIFY_SOCKET", path+"x")
	n.Ready("to nobody")
	(*Notifier)(nil).Alive()
	(&Notifier{}).Alive()
}

// TestWatchdogOfSuccessor: a daemon that took over has WATCHDOG_USEC in its environment, and
// no WATCHDOG_PID, which names its predecessor. A process that is not the service's is not
// watched.
func TestWatchdogOfSuccessor(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/nowhere")
	t.Setenv("WATCHDOG_USEC", "10000000")
	for pid, want := range map[string]time.Duration{"": 10 * time.Second, itoa(os.Getpid() + 1): 0} {
		t.Setenv("WATCHDOG_PID", pid)
		if pid == "" {
			os.Unsetenv("WATCHDOG_PID")
		}
		if n := NewNotifier(slog.New(slog.DiscardHandler)); n.Watchdog != want {
			t.Errorf("WATCHDOG_PID=%s: %v, want %v", pid, n.Watchdog, want)
		}
	}
}
