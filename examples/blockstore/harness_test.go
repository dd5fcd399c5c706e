package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/examples/blockstore/store"
	"github.com/rdsd/rdsd/internal/test/child"
	"github.com/rdsd/rdsd/rdstest"
)

// patienceForTests is far longer than anything here takes.
const patienceForTests = 60 * time.Second

// asBlockstore is an environment variable that makes the test binary run as blockstore.
const asBlockstore = "RDSD_TEST_AS_BLOCKSTORE"

func TestMain(m *testing.M) {
	if os.Getenv(asBlockstore) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// world is two hosts with a daemon each, and a directory.
type world struct {
	t   *testing.T
	d   []*rdstest.Daemon
	dir string
}

var warmUp sync.Once

// newWorld starts two daemons. At the end of the test it checks that no descriptor, mapping
// or goroutine is left.
func newWorld(t *testing.T) *world {
	t.Helper()
	warmUp.Do(func() { // opens what the runtime opens once and keeps
		t.Run("warm up", func(t *testing.T) { rdstest.StartDaemons(t, 1)[0].Open(t) })
	})
	before := resources()
	t.Cleanup(func() {
		after := resources()
		for deadline := time.Now().Add(patienceForTests); after.more(before) && time.Now().Before(deadline); after = resources() {
			time.Sleep(5 * time.Millisecond)
		}
		if after.more(before) && !t.Failed() {
			stacks := make([]byte, 64<<10)
			t.Errorf("left behind: %+v, before the test %+v\n%s", after, before, stacks[:runtime.Stack(stacks, true)])
		}
	})
	return &world{t: t, d: rdstest.StartDaemons(t, 2), dir: t.TempDir()}
}

// usageCounts are the resources that this process has.
type usageCounts struct{ fds, memfds, goroutines int }

func resources() usageCounts {
	fds, _ := os.ReadDir("/proc/self/fd")
	maps, _ := os.ReadFile("/proc/self/maps")
	return usageCounts{len(fds), bytes.Count(maps, []byte("/memfd:")), runtime.NumGoroutine()}
}

func (u usageCounts) more(than usageCounts) bool {
	return u.fds > than.fds || u.memfds > than.memfds || u.goroutines > than.goroutines
}

// file makes a file of random content.
func (w *world) file(name string, size int) (path string, content []byte) {
	w.t.Helper()
	content = make([]byte, size)
	for i := range content {
		content[i] = byte(rand.Uint32())
	}
	path = filepath.Join(w.dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path, content
}

// holds fails the test unless the file has this content.
func (w *world) holds(path string, content []byte) {
	w.t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	if !bytes.Equal(got, content) {
		w.t.Fatalf("%s: %d bytes that differ from the %d of the source", path, len(got), len(content))
	}
}

// absent fails the test if the file, or a part of it under another name, exists.
func (w *world) absent(path string) {
	w.t.Helper()
	parts, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".*"))
	if _, err := os.Lstat(path); err == nil {
		parts = append(parts, path)
	}
	if parts != nil {
		w.t.Errorf("left behind: %q", parts)
	}
}

func (w *world) serverAt() string {
	return netip.AddrPortFrom(w.d[0].Addr(), store.DefaultPort).String()
}

// program is a blockstore that runs in this process or in one of its own.
type program struct {
	t      *testing.T
	errs   *child.Output
	stdout *child.Output
	end    context.CancelFunc // ends it as SIGTERM does
	kill   func()             // sends SIGKILL; only for a process of its own
	done   <-chan struct{}
	code   func() int // the exit status, once done is closed
}

func (w *world) serveArgs(args ...string) []string {
	return append([]string{"serve", "-json", "-socket", w.d[0].Socket(), "-bind", w.serverAt()}, args...)
}

func (w *world) copyArgs(args ...string) []string {
	return append([]string{args[0], "-json", "-socket", w.d[1].Socket(), "-bind", w.d[1].Addr().String()}, args[1:]...)
}

// start runs blockstore in this process.
func (w *world) start(args ...string) *program {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done, code := make(chan struct{}), 0
	p := &program{t: w.t, errs: &child.Output{}, stdout: &child.Output{}, end: cancel, done: done, code: func() int { return code }}
	w.t.Cleanup(func() { cancel(); <-done })
	go func() {
		code = run(ctx, args, p.stdout, p.errs)
		close(done)
	}()
	return p
}

// spawn runs blockstore in a process of its own; status becomes descriptor 3.
func (w *world) spawn(status *os.File, args ...string) *program {
	w.t.Helper()
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), asBlockstore+"=1")
	if status != nil {
		cmd.ExtraFiles = []*os.File{status}
	}
	c, err := child.Start(cmd)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Kill)
	return &program{t: w.t, errs: &c.Stderr, stdout: &c.Stdout, end: func() { c.Signal(unix.SIGTERM) }, kill: c.Kill, done: c.Ended(), code: c.Code}
}

// wait returns the exit status.
func (p *program) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patienceForTests):
		p.t.Fatalf("does not end; said:\n%s", p.errs)
	}
	return p.code()
}

// serving waits until a server is bound.
func (p *program) serving() *program {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patienceForTests)
	defer cancel()
	if !child.Until(ctx, p.done, func() bool { return p.errs.Has("serving ") }, p.errs, p.errs) {
		p.t.Fatalf("does not serve: %s", p.errs)
	}
	return p
}

// stop ends a server, checks its counts and returns them.
func (p *program) stop() (s serveStats) {
	p.t.Helper()
	p.end()
	if code := p.wait(); code != exitOK {
		p.t.Fatalf("server: status %d: %s", code, p.errs)
	}
	if err := json.Unmarshal([]byte(p.stdout.String()), &s); err != nil {
		p.t.Fatal(err)
	}
	for _, d := range s.Destinations {
		if d.HWM != d.Issued {
			p.t.Errorf("high-water mark of %s is %d, %d operations issued", d.Addr, d.HWM, d.Issued)
		}
	}
	if n := s.Success + s.Dropped + s.Unknown + s.OtherStatus; n != s.Operations {
		p.t.Errorf("%d operations, %d with a status", s.Operations, n)
	}
	return s
}

// copied fails the test unless the copy succeeds. It returns the copy's counts.
func (p *program) copied() (s copyStats) {
	p.t.Helper()
	if code := p.wait(); code != exitOK {
		p.t.Fatalf("copy: status %d: %s", code, p.errs)
	}
	if err := json.Unmarshal([]byte(p.stdout.String()), &s); err != nil {
		p.t.Fatal(err)
	}
	return s
}

// fails fails the test unless the program ends with an error that has one of the texts.
func (p *program) fails(texts ...string) {
	p.t.Helper()
	if code := p.wait(); code != exitFailed {
		p.t.Fatalf("status %d, want %d: %s", code, exitFailed, p.errs)
	}
	for _, text := range texts {
		if strings.Contains(p.errs.String(), text) {
			return
		}
	}
	p.t.Errorf("said %q, want one of %q", p.errs, texts)
}

// progressed returns a descriptor for -status-fd. When the copy has reached a percentage in
// at, progressed calls the function there, once and in order. The copy waits for the function:
// a copy that went on could end first, and then nothing would bring a reset connection back.
func (w *world) progressed(at map[int]func()) (status *os.File, done func()) {
	w.t.Helper()
	r, status := linePipe(w.t)
	var reading sync.WaitGroup
	reading.Go(func() {
		for sc := bufio.NewScanner(r); sc.Scan(); {
			var done, blocks int
			if _, err := fmt.Sscan(sc.Text(), &done, &blocks); err != nil || blocks == 0 {
				continue
			}
			for percent := range 100 {
				if f := at[percent]; f != nil && done*100 >= percent*blocks {
					f()
					at[percent] = nil
				}
			}
		}
	})
	return status, func() { status.Close(); reading.Wait(); r.Close() }
}

// linePipe returns a pipe that holds one line. A writer is at most two lines ahead of
// the reader.
func linePipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	var fds [2]int
	err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_DIRECT) // O_DIRECT: each write takes a page of its own
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, os.Getpagesize())
	}
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fds[0]), "status"), os.NewFile(uintptr(fds[1]), "status")
}

// reset breaks the connection between the hosts, as rdsctl peer reset does. If the connection
// is not back yet from the last reset, reset tries again until it is.
func (w *world) reset() (broken int) {
	ctx, cancel := context.WithTimeout(context.Background(), patienceForTests)
	defer cancel()
	for i := rand.IntN(2); broken == 0 && ctx.Err() == nil && !w.t.Failed(); {
		var err error
		if broken, err = w.d[i].Reset(ctx, w.d[1-i].Addr()); err != nil {
			w.t.Error(err)
		}
	}
	return broken
}
