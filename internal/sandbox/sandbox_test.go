package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

const child = "SANDBOX_TEST_DIR"

// TestMain: as a child the binary restricts itself and prints, from several threads, what
// it can still do.
func TestMain(m *testing.M) {
	dir := os.Getenv(child)
	if dir == "" {
		os.Exit(m.Run())
	}
	early, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	rep := Apply(Rules{Read: []string{dir + "/conf", dir + "/one", dir + "/missing"}, Write: []string{dir + "/run"}, Capabilities: []cap.Value{cap.NET_ADMIN}})
	fmt.Printf("report %q %q\n", rep.Files, rep.Capabilities)
	var mu sync.Mutex
	say := func(what string, err error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case errors.Is(err, fs.ErrPermission):
			fmt.Println(what, "denied")
		case err != nil:
			fmt.Println(what, err)
		default:
			fmt.Println(what, "allowed")
		}
	}
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			runtime.LockOSThread()
			name := fmt.Sprint(dir, "/run/f", i)
			_, err := os.ReadFile(dir + "/secret")
			say("secret", err)
			_, err = os.ReadFile(dir + "/conf/a.toml")
			say("conf", err)
			_, err = os.ReadFile(dir + "/one")
			say("one", err)
			say("write-conf", os.WriteFile(dir+"/conf/a.toml", nil, 0o600))
			say("make", os.WriteFile(name, []byte("x"), 0o600))
			say("remove", os.Remove(name))
			say("outside", os.WriteFile(fmt.Sprint(dir, "/f", i), nil, 0o600))
			_, err = os.ReadDir("/")
			say("root", err)
			say("exec", exec.Command("/bin/true").Run())
			c, err := net.Dial("tcp", early.Addr().String())
			say("connect", err)
			if err == nil {
				c.Close()
			}
			m, err := shm.CreateMemfdReadOnly("sandbox-test", 4096)
			say("memory", err)
			if err == nil {
				m.Close()
			}
			var lc net.ListenConfig
			lc.SetMultipathTCP(false) // Landlock does not know of it
			l, err := lc.Listen(context.Background(), "tcp", fmt.Sprint("127.0.0.1:", 20000+os.Getpid()%10000+i))
			say("listen", err)
			if err == nil {
				l.Close()
			}
			h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var d [2]unix.CapUserData
			if err := unix.Capget(&h, &d[0]); err == nil && d[0].Permitted&^(1<<unix.CAP_NET_ADMIN) == 0 && d[1].Permitted == 0 {
				say("capabilities", fs.ErrPermission)
			} else {
				say("capabilities", err)
			}
		})
	}
	wg.Wait()
	os.Exit(0)
}

// TestAllThreads: all threads are restricted, without cgo and, where there is a C compiler, with
// it.
func TestAllThreads(t *testing.T) {
	t.Run("go", func(t *testing.T) { apply(t, "CGO_ENABLED=0") })
	t.Run("cgo", func(t *testing.T) {
		if _, err := exec.LookPath("gcc"); err != nil {
			t.Skip("no C compiler: ", err)
		}
		apply(t, "CGO_ENABLED=1")
	})
}

func apply(t *testing.T, cgo string) {
	dir := t.TempDir()
	for _, d := range []string{"conf", "run"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"secret", "one", "conf/a.toml"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	prog := filepath.Join(dir, "child")
	build := exec.Command("go", "test", "-c", "-o", prog, ".")
	build.Env = append(os.Environ(), cgo)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(prog)
	cmd.Env = append(os.Environ(), child+"="+dir)
	b, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	var files, caps string
	if _, err := fmt.Sscanf(lines[0], "report %q %q", &files, &caps); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	if caps != "" {
		t.Errorf("capabilities: %s", caps)
	}
	want := map[string]string{"conf": "allowed", "one": "allowed", "make": "allowed", "remove": "allowed", "connect": "allowed", "memory": "allowed", "capabilities": "denied"}
	abi, _, _ := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if files == "" {
		for _, k := range []string{"secret", "write-conf", "outside", "root", "exec"} {
			want[k] = "denied"
		}
		if abi >= 4 {
			want["listen"] = "denied"
		}
	} else if !strings.Contains(files, "no Landlock") {
		t.Errorf("files: %s", files)
	}
	for _, l := range lines[1:] {
		what, got, _ := strings.Cut(l, " ")
		if w := want[what]; w != "" && w != got {
			t.Errorf("%s: %s, want %s (Landlock ABI %d)", what, got, w, abi)
		}
	}
	if n := len(lines) - 1; n != 3*13 {
		t.Errorf("%d lines: %s", n, b)
	}
}

func TestReport(t *testing.T) {
	if got := (Report{}).String(); got != "files restricted, capabilities dropped" {
		t.Error(got)
	}
	if got := (Report{"old kernel", "x"}).String(); got != "files not restricted (old kernel), capabilities not dropped (x)" {
		t.Error(got)
	}
}
