// Package fabric has the provider of libfabric. Its tests build it with the C compiler and run programs that know of libfabric alone.
package fabric

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/rdstest"
)

// builds has the folder of what was built with each sanitizer.
var builds struct {
	sync.Mutex
	dirs map[string]string
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, dir := range builds.dirs {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// build makes the provider and the programs of tests/ in a directory, or skips the test.
func build(t *testing.T, sanitize string) string {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler")
	}
	if _, err := os.Stat("/usr/include/rdma/providers/fi_prov.h"); err != nil {
		t.Skip("no headers of libfabric (apt-get install libfabric-dev)")
	}
	builds.Lock()
	defer builds.Unlock()
	if dir, ok := builds.dirs[sanitize]; ok {
		return dir
	}
	dir, err := os.MkdirTemp("", "fabric")
	if err != nil {
		t.Fatal(err)
	}
	if builds.dirs == nil {
		builds.dirs = map[string]string{}
	}
	makeIn(t, dir, sanitize)
	builds.dirs[sanitize] = dir
	return dir
}

// makeIn builds in dir.
func makeIn(t *testing.T, dir, sanitize string) {
	t.Helper()
	for _, pattern := range []string{"Makefile", "src/*", "tests/*", "../librds/Makefile", "../librds/src/*", "../librds/include/rds/*"} {
		names, _ := filepath.Glob(pattern)
		for _, name := range names {
			if _, err := os.ReadFile(name); err != nil { // so that go test knows of what it depends
				t.Fatal(err)
			}
		}
	}
	out, err := exec.Command("make", "-s", "OUT="+dir, "SANITIZE="+sanitize, "CFLAGS=-O1 -g1", "all", "check").CombinedOutput()
	if err != nil { // a compiler may take its time
		os.RemoveAll(dir)
		t.Fatalf("make: %v\n%s", err, out)
	}
}

// patience returns how long something may take: nearly as long as the tests may.
func patience(t *testing.T) time.Duration {
	t.Helper()
	end, ok := t.Deadline()
	if !ok {
		return 24 * time.Hour
	}
	return max(time.Until(end)-20*time.Second, time.Second) // so that what was printed is seen
}

// finish runs cmd and fails the test if cmd fails or does not end in time.
func finish(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(patience(t), func() { cmd.Process.Kill() })
	defer kill.Stop()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out.String())
	}
	return out.String()
}

func command(dir string, d *rdstest.Daemon, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "RDSD_SOCKET="+d.Socket(), "FI_PROVIDER_PATH="+dir, "FI_LOG_LEVEL=warn",
		"ASAN_OPTIONS=detect_leaks=1:allow_user_segv_handler=1", "UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1",
		"TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1")
	return cmd
}

// sanitized does something with what was built plain, and with each of the sanitizers; short tests do without them.
func sanitized(t *testing.T, do func(t *testing.T, dir string), sanitizers ...string) {
	t.Helper()
	for _, s := range append([]string{""}, sanitizers...) {
		if s != "" && testing.Short() {
			continue
		}
		t.Run("sanitize="+s, func(t *testing.T) { do(t, build(t, s)) })
	}
}

// alone runs a program of tests/ that needs one daemon and no other program.
func alone(program string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		d := rdstest.StartDaemons(t, 1)[0]
		finish(t, command(dir, d, filepath.Join(dir, program), d.Addr().String()))
	}
}

// TestCheck: messages, long messages, remote memory, atomics, and the errors of what cannot succeed.
func TestCheck(t *testing.T) { sanitized(t, alone("check"), "address,undefined") }

// TestThreads: threads share a domain, its endpoints, queues and memory.
func TestThreads(t *testing.T) { sanitized(t, alone("threads"), "address,undefined", "thread") }

// TestDaemonEnds: operations end with an error when the daemon ends, and a program that opens its domain again goes on.
func TestDaemonEnds(t *testing.T) {
	dir := build(t, "")
	d := rdstest.StartDaemons(t, 1)[0]
	p := talk(t, command(dir, d, filepath.Join(dir, "check"), d.Addr().String(), "end"))
	p.want("ready")
	d.Stop()
	p.want("ended")
	d.Start(t)
	p.say("")
	p.finish()
}

// pingPong lets fi_pingpong exchange messages of all sizes between two hosts, and check them.
func pingPong(t *testing.T, dir string, ds []*rdstest.Daemon, rounds int) {
	t.Helper()
	args := []string{"-p", "rdsd", "-e", "rdm", "-c", "-I", strconv.Itoa(rounds), "-S", "all"}
	port := strconv.Itoa(hold(t))
	server := command(dir, ds[0], "fi_pingpong", append(args, "-B", port)...)
	var out bytes.Buffer
	server.Stdout, server.Stderr = &out, &out
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		server.Process.Kill()
		server.Wait()
	}()
	if !listening(t, port, server.Process.Pid) {
		server.Process.Kill()
		t.Fatalf("fi_pingpong does not listen: %v\n%s", server.Wait(), out.String())
	}
	got := finish(t, command(dir, ds[1], "fi_pingpong", append(args, "-P", port, "127.0.0.1")...))
	if !strings.Contains(got, "1m") {
		t.Errorf("no line for 1 MiB:\n%s", got)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("server: %v\n%s", err, out.String())
	}
}

// programs skips the test if libfabric's programs are not there.
func programs(t *testing.T) {
	t.Helper()
	for _, name := range []string{"fi_info", "fi_pingpong"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("no " + name + " (apt-get install libfabric-bin)")
		}
	}
}

// TestPingPong: libfabric's own programs find the provider and exchange messages of two hosts.
func TestPingPong(t *testing.T) {
	programs(t)
	dir := build(t, "")
	ds := rdstest.StartDaemons(t, 2)
	if out := finish(t, command(dir, ds[0], "fi_info", "-p", "rdsd")); !strings.Contains(out, "domain: "+ds[0].Addr().String()) {
		t.Errorf("fi_info does not name the daemon's address:\n%s", out)
	}
	pingPong(t, dir, ds, 20)
}

// resets breaks the connections between two hosts while work runs. They are broken at most so often that a slow machine is not
// busy with it alone.
func resets(t *testing.T, ds []*rdstest.Daemon, work func()) {
	t.Helper()
	const most, least = 100, 5
	ctx, cancel := context.WithCancel(t.Context())
	broken := make(chan int)
	go func() {
		n := 0
		for ctx.Err() == nil && n < most {
			if b, err := ds[0].Reset(ctx, ds[1].Addr()); err == nil {
				n += b
			}
			time.Sleep(20 * time.Millisecond) // between two resets
		}
		broken <- n
	}()
	work()
	cancel()
	if n := <-broken; n < least {
		t.Errorf("%d connections were broken, want %d at least", n, least)
	}
}

// TestResets: connections break again and again, and the programs see nothing of it.
func TestResets(t *testing.T) {
	programs(t)
	dir := build(t, "")
	ds := rdstest.StartDaemons(t, 2)
	resets(t, ds, func() { pingPong(t, dir, ds, 20) })
}

// TestThreadsResets: threads at two hosts send, write and read while connections break. What a reset drops is asked for again.
func TestThreadsResets(t *testing.T) {
	dir := build(t, "")
	ds := rdstest.StartDaemons(t, 2)
	args := []string{ds[0].Addr().String(), ds[1].Addr().String(), ds[1].Socket()}
	resets(t, ds, func() { finish(t, command(dir, ds[0], filepath.Join(dir, "threads"), args...)) })
}

// listening waits until the process, which runs, listens at the port, and returns false if it ends before. A connection of its own would take the server's only accept.
func listening(t *testing.T, port string, pid int) bool {
	t.Helper()
	n, _ := strconv.Atoi(port)
	want := fmt.Sprintf(":%04X 00000000:0000 0A", n)
	for end := time.Now().Add(patience(t)); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		b4, _ := os.ReadFile("/proc/net/tcp")
		b6, _ := os.ReadFile("/proc/net/tcp6")
		if strings.Contains(string(b4), want) || strings.Contains(string(b6), fmt.Sprintf(":%04X %s:0000 0A", n, strings.Repeat("0", 32))) {
			return true
		}
		if stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); bytes.Contains(stat, []byte(") Z ")) {
			break
		}
	}
	return false
}

// hold returns a TCP port, for the programs' own connection, that nobody gets by chance until the test ends: a bound socket that does
// not listen keeps it, and lets a program that names it have it (both have SO_REUSEADDR; tcp(7)).
func hold(t *testing.T) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return at.(*unix.SockaddrInet4).Port
}
