package succession

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/sandbox"
	"golang.org/x/sys/unix"
)

const roleEnv = "SUCCESSION_TEST" // what this binary is in a test

// TestMain: as a child the binary is a daemon, its starter, or its successor.
func TestMain(m *testing.M) {
	role := os.Getenv(roleEnv)
	switch {
	case len(os.Args) == 2 && os.Args[1] == "-version":
		fmt.Println("rdsd test")
	case role == "":
		os.Exit(m.Run())
	case IsStarter():
		os.Exit(RunStarter(os.Stderr))
	case os.Getenv(successorEnv) != "":
		beSuccessor(role)
	default:
		beDaemon(role)
	}
	os.Exit(0)
}

// beDaemon serves in a sandbox until a line on its standard input names the program of the
// successor, and prints what happens. It goes on while that fails.
func beDaemon(role string) {
	folder := os.Getenv("SUCCESSION_DIR")
	st, err := NewStarter([]string{folder})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("starter", st.pid)
	r := sandbox.Apply(sandbox.Rules{Write: []string{folder}})
	if err := exec.Command("/bin/true").Run(); !errors.Is(err, fs.ErrPermission) && !strings.Contains(r.Files, "no Landlock") {
		fmt.Println("the daemon may execute programs:", err)
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		l, theirs, err := NewPair()
		if err != nil {
			fmt.Println(err)
			return
		}
		pid, err := st.Start(in.Text(), theirs)
		theirs.Close()
		if err == nil {
			fmt.Println("started", pid)
			d := &daemons{state: Parcel{State: []byte("the state")}}
			if role == "hangs" {
				l.part = 100 * time.Millisecond
			}
			if role == "killed" {
				l.limit(l.part)
				_, _ = l.welcome()
				_ = l.sendParcel(Parcel{})
				_, _ = l.recv(kindReady, 0)
				_ = l.pass(d.state) // the successor kills this process
			}
			err = HandOver(l, d)
			if err == nil {
				var signals []syscall.Signal
				if role == "ends" {
					signals = append(signals, unix.SIGTERM)
				}
				fmt.Println("handed over, the starter:", st.Leave(signals...))
				return
			}
			how, e := st.Kill(errors.Is(err, os.ErrDeadlineExceeded))
			if e != nil {
				how = e.Error()
			}
			err = fmt.Errorf("%w (%s)", err, how)
		}
		l.Close()
		fmt.Println("serves on:", strings.ReplaceAll(err.Error(), "\n", " "))
	}
}

// beSuccessor takes over and prints what it has.
func beSuccessor(role string) {
	l, err := Succeeds()
	if err != nil {
		fmt.Println(err)
		return
	}
	gone, forget, err := l.PeerGone()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer forget()
	switch role {
	case "dies":
		os.Exit(3)
	case "hangs":
		_, _ = l.greet("v2")
		for {
			_ = unix.Pause()
		}
	}
	d := &daemons{}
	asked := make(chan os.Signal, 1)
	if role == "ends" {
		signal.Notify(asked, unix.SIGTERM)
	}
	if role == "killed" {
		d.onAdopt = func() {
			cred, _ := predecessor(l)
			_ = unix.Kill(cred, unix.SIGKILL)
		}
	}
	err = TakeOver(l, heir{d}, "v2", gone)
	// A sandbox of the predecessor's would forbid this, and so would an ignored signal.
	fmt.Printf("successor: %v, state %q, executes: %v, ignores signals: %v\n", err, d.gotState.State, exec.Command("/bin/true").Run(),
		signal.Ignored(unix.SIGTERM))
	if role == "ends" {
		fmt.Println("asked to end:", <-asked)
	}
}

func predecessor(l *Link) (pid int, err error) {
	raw, err := l.c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			if c, e := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); e == nil {
				pid = int(c.Pid)
			}
		})
	}
	return pid, err
}

// logName is the file for what a daemon and what it starts write to standard error.
const logName = "log"

// program is a daemon under test.
type program struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func start(t *testing.T, role, folder string) *program {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+role, "SUCCESSION_DIR="+folder)
	log, err := os.Create(filepath.Join(folder, logName))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	p := &program{t: t, cmd: cmd}
	if p.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	_ = out.SetReadDeadline(time.Now().Add(2 * time.Minute))
	p.out = bufio.NewScanner(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() { p.in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait(); out.Close() })
	return p
}

// line returns the next line, which has to have the given words.
func (p *program) line(words ...string) string {
	p.t.Helper()
	if !p.out.Scan() {
		p.t.Fatalf("no line with %q: %v", words, p.out.Err())
	}
	for _, w := range words {
		if !strings.Contains(p.out.Text(), w) {
			p.t.Fatalf("%q has no %q", p.out.Text(), w)
		}
	}
	return p.out.Text()
}

func (p *program) upgrade(path string) { fmt.Fprintln(p.in, path) }

// TestStarter: a daemon in its sandbox, which may execute nothing, is succeeded by a
// process that is not in that sandbox. All processes but the successor have ended then.
func TestStarter(t *testing.T) {
	p := start(t, "daemon", t.TempDir())
	p.line("starter")
	p.upgrade("")
	p.line("started")
	for range 2 { // in any order
		if l := p.line(); strings.HasPrefix(l, "handed over") {
			if l != "handed over, the starter: <nil>" {
				t.Error(l)
			}
		} else if want := `successor: <nil>, state "the state", executes: <nil>, ignores signals: false`; l != want {
			t.Errorf("%s, want %s", l, want)
		}
	}
	if p.out.Scan() {
		t.Errorf("and more: %s", p.out.Text())
	}
}

// TestStarterEndsSuccessor: a daemon that was asked to end while it handed over has its successor
// end, which it may not signal itself.
func TestStarterEndsSuccessor(t *testing.T) {
	p := start(t, "ends", t.TempDir())
	p.line("starter")
	p.upgrade("")
	p.line("started")
	last := ""
	for range 3 { // two processes
		if l := p.line(); !strings.HasPrefix(l, "handed over") {
			last = l
		}
	}
	if last != "asked to end: terminated" {
		t.Error(last)
	}
}

// TestStarterAgain: after a successor that failed the daemon serves, and the next one works. One
// that hangs says where before it is killed.
func TestStarterAgain(t *testing.T) {
	for role, says := range map[string]string{"dies": "the process ended (exit status 3)", "hangs": "i/o timeout (exit status 2)"} {
		folder := t.TempDir()
		p := start(t, role, folder)
		p.line("starter")
		for range 2 {
			p.upgrade("")
			p.line("started")
			p.line("serves on:", says)
		}
		if b, err := os.ReadFile(filepath.Join(folder, logName)); err != nil || strings.Contains(string(b), "beSuccessor") != (role == "hangs") {
			t.Errorf("%s: its log, %v:\n%s", role, err, b)
		}
	}
}

// TestPredecessorKilled: a daemon that is killed when the successor has its state loses
// nothing.
func TestPredecessorKilled(t *testing.T) {
	p := start(t, "killed", t.TempDir())
	p.line("starter")
	p.upgrade("")
	p.line("started")
	p.line(`successor: <nil>, state "the state"`)
}

// TestStarterEnds: a starter ends with its daemon, and with nothing else.
func TestStarterEnds(t *testing.T) {
	p := start(t, "daemon", t.TempDir())
	var pid int
	if _, err := fmt.Sscanf(p.line("starter"), "starter %d", &pid); err != nil {
		t.Fatal(err)
	}
	refused := func() {
		p.upgrade("/bin/true/not")
		p.line("serves on:", "not a directory")
	}
	refused() // so it runs
	for _, s := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGUSR2, unix.SIGPIPE} {
		if err := unix.Kill(pid, s); err != nil {
			t.Fatal(err)
		}
	}
	refused()
	_ = p.cmd.Process.Kill()
	if p.out.Scan() { // the end comes when the starter has closed its standard output
		t.Errorf("more: %s", p.out.Text())
	}
}

// TestStarterKilled: a daemon whose starter was killed says so, each time, and serves on. A
// successor that runs by then takes over.
func TestStarterKilled(t *testing.T) {
	p := start(t, "daemon", t.TempDir())
	var pid int
	if _, err := fmt.Sscanf(p.line("starter"), "starter %d", &pid); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p.upgrade("")
		p.line("serves on: starter:", ErrNoStarter.Error())
	}
}

// TestPrograms: what is refused as a successor.
func TestPrograms(t *testing.T) {
	dir, writable := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(writable, 0o755)); err != nil { // whatever the umask is
		t.Fatal(err)
	}
	script := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	rdsd := "echo rdsd v2 go linux\n"
	good := script("good", rdsd, 0o755)
	foreign := script("foreign", rdsd, 0o755)
	inside := filepath.Join(writable, "rdsd")
	if err := os.WriteFile(inside, []byte("#!/bin/sh\n"+rdsd), 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(inside, link); err != nil {
		t.Fatal(err)
	}
	foreignIs := os.Lchown(foreign, 12345, 12345) == nil
	shared := filepath.Join(dir, "shared")
	if err := errors.Join(os.Mkdir(shared, 0o755), os.Chmod(shared, 0o777)); err != nil {
		t.Fatal(err)
	}
	moved := script("shared/rdsd", rdsd, 0o755)
	toGood := filepath.Join(dir, "to-good")
	if err := os.Symlink(good, toGood); err != nil {
		t.Fatal(err)
	}
	if got, err := checkProgram(toGood, false, nil); err != nil || got != good {
		t.Errorf("a link to %s: %s, %v", good, got, err)
	}
	for _, c := range []struct {
		path string
		own  bool
		says string
	}{
		{good, false, ""}, {good, true, ""},
		{"rdsd", false, "not an absolute path"},
		{dir + "/missing", false, "no such file"},
		{dir, false, "not an executable file"},
		{script("data", rdsd, 0o644), false, "not an executable file"},
		{script("open", rdsd, 0o777), false, "others may write it"},
		{script("setuid", rdsd, 0o755|os.ModeSetuid), false, "rights of its owner or group"},
		{script("setgid", rdsd, 0o755|os.ModeSetgid), false, "rights of its owner or group"},
		{inside, false, "which the daemon may write"},
		{inside, true, "which the daemon may write"},
		{link, false, "which the daemon may write"},
		{script("other", "echo nginx\n", 0o755), false, "does not say that it is rdsd"},
		{script("fails", "exit 7\n", 0o755), false, "exit status 7"},
		{foreign, false, "it belongs to uid 12345"},
		{foreign, true, ""},
		{moved, false, "others may write the folder " + shared},
		{moved, true, ""},
	} {
		if c.path == foreign && !foreignIs {
			continue
		}
		_, err := checkProgram(c.path, c.own, []string{"/nowhere", writable})
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.path, err, c.says)
		}
	}
}
