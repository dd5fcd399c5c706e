package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/rdstest"
)

// TestCopyOutAndIn: files of many sizes are copied between two hosts and on one host.
func TestCopyOutAndIn(t *testing.T) {
	w := newWorld(t)
	for _, place := range []string{"two hosts", "same host"} {
		client := w
		if place == "same host" {
			client = &world{t: t, d: []*rdstest.Daemon{w.d[0], w.d[0]}, dir: w.dir}
		}
		for _, size := range []int{0, 1, 4095, 4096, 4097, 1 << 20, 8<<20 + 5} {
			t.Run(fmt.Sprintf("%s, %d bytes", place, size), func(t *testing.T) {
				w, client := *w, *client
				w.t, client.t = t, t
				source, content := w.file("source", size)
				out, back := filepath.Join(w.dir, "out"), filepath.Join(w.dir, "back")
				s := w.start(w.serveArgs("-read-only", source)...).serving()
				st := client.start(client.copyArgs("copy-out", "-block", "65536", w.serverAt(), out)...).copied()
				w.holds(out, content)
				if served := s.stop(); served.Reads != st.Blocks || st.Bytes != int64(size) || st.Retried != 0 {
					t.Errorf("client %+v, server %+v", st, served)
				}
				s = w.start(w.serveArgs("-create", back)...).serving()
				st = client.start(client.copyArgs("copy-in", "-block", "65536", out, w.serverAt())...).copied()
				if served := s.stop(); served.Writes != st.Blocks || st.Retried != 0 || st.Blocks > 0 && served.Fsyncs == 0 {
					t.Errorf("client %+v, server %+v", st, served)
				}
				w.holds(back, content)
				if err := os.Remove(back); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestCopyInReplaces: after a copy-in an export that was longer has the size of the file.
func TestCopyInReplaces(t *testing.T) {
	w := newWorld(t)
	export, _ := w.file("export", 3<<20)
	source, content := w.file("source", 100_000)
	s := w.start(w.serveArgs(export)...).serving()
	w.start(w.copyArgs("copy-in", source, w.serverAt())...).copied()
	s.stop()
	w.holds(export, content)
}

// TestManyInFlight: several clients at the same time want more blocks in flight than the
// server has buffers.
func TestManyInFlight(t *testing.T) {
	w := newWorld(t)
	source, content := w.file("source", 6<<20)
	s := w.start(w.serveArgs("-buffers", "8", "-block", "16384", "-read-only", source)...).serving()
	var all []*program
	for i := range 4 {
		all = append(all, w.start(w.copyArgs("copy-out", "-window", "64", w.serverAt(), filepath.Join(w.dir, fmt.Sprint(i)))...))
	}
	for i, p := range all {
		if st := p.copied(); st.Window != 4 {
			t.Errorf("window %d, want the server's 4", st.Window)
		}
		w.holds(filepath.Join(w.dir, fmt.Sprint(i)), content)
	}
	s.stop()
}

// TestCopyUnderResets: the connection is reset again and again in both
// directions; content and counts are right. Blocks go in messages, or by RDMA.
func TestCopyUnderResets(t *testing.T) {
	for _, small := range []string{"-small=16384", noneSmall} {
		t.Run(small, func(t *testing.T) { copyUnderResets(t, small) })
	}
}

func copyUnderResets(t *testing.T, small string) {
	w := newWorld(t)
	source, content := w.file("source", 16<<20)
	out, back := filepath.Join(w.dir, "out"), filepath.Join(w.dir, "back")
	broken := 0
	resets := func() map[int]func() {
		broken = 0
		at := map[int]func(){}
		for percent := 5; percent < 95; percent += 10 {
			at[percent] = func() { broken += w.reset() }
		}
		return at
	}
	check := func(name string, st copyStats, s serveStats) {
		t.Helper()
		t.Logf("%s: %d resets, %d dropped, %d unknown, %d asked for again", name, broken, s.Dropped, s.Unknown, st.Retried)
		if broken < 9 {
			t.Errorf("%s: %d resets", name, broken)
		}
		if s.Unknown > 0 || s.OtherStatus > 0 {
			t.Errorf("%s: %+v: outcomes that no reset between the same instances explains", name, s)
		}
		if (s.Operations > 0) != (small == noneSmall && name == "copy-out") {
			t.Errorf("%s: %d operations", name, s.Operations)
		}
		if uint64(st.Retried) < s.Dropped {
			t.Errorf("%s: %d dropped, %d asked for again", name, s.Dropped, st.Retried)
		}
	}
	s := w.start(w.serveArgs("-read-only", source)...).serving()
	status, done := w.progressed(resets())
	st := w.spawn(status, w.copyArgs("copy-out", "-status-fd", "3", small, "-block", "16384", w.serverAt(), out)...).copied()
	done()
	check("copy-out", st, s.stop())
	w.holds(out, content)

	s = w.start(w.serveArgs("-create", back)...).serving()
	status, done = w.progressed(resets())
	st = w.spawn(status, w.copyArgs("copy-in", "-status-fd", "3", small, "-block", "16384", out, w.serverAt())...).copied()
	done()
	check("copy-in", st, s.stop())
	w.holds(back, content)
}

// TestCopyWaitsForFaults: while a function of progressed runs, the copy cannot go on.
func TestCopyWaitsForFaults(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	status, done := (&world{t: t}).progressed(map[int]func(){10: func() { close(begun); <-end }})
	fmt.Fprintln(status, 100, 1000)
	<-begun
	fd := int(status.Fd())
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	ahead := 0
	for line := []byte("101 1000\n"); ahead < 10; ahead++ {
		if _, err := unix.Write(fd, line); err != nil {
			break
		}
	}
	close(end)
	done()
	if ahead > 1 {
		t.Errorf("the copy wrote %d lines ahead", ahead)
	}
}

// TestOutputWithoutTerminal: a copy prints one line without control characters.
func TestOutputWithoutTerminal(t *testing.T) {
	w := newWorld(t)
	source, _ := w.file("source", 4<<20)
	w.start(w.serveArgs("-read-only", source)...).serving()
	args := w.copyArgs("copy-out", w.serverAt(), filepath.Join(w.dir, "out"))
	p := w.start(append(args[:1:1], args[2:]...)...) // without -json
	if code := p.wait(); code != exitOK {
		t.Fatal(code, p.errs)
	}
	said := p.errs.String()
	if len(p.stdout.String()) > 0 || strings.Count(said, "\n") != 1 || strings.ContainsAny(said, "\r\x1b\b") ||
		!strings.HasPrefix(said, "copy-out: 16 blocks, 4.2 MB in ") {
		t.Errorf("standard output %q, error %q", p.stdout, said)
	}
}

// TestProgressOnTerminal: the progress bar is erased at the end.
func TestProgressOnTerminal(t *testing.T) {
	var b bytes.Buffer
	shown := make(chan struct{}, 1)
	stop := progress(&b, "copy-out", 1000, func() int64 {
		select {
		case shown <- struct{}{}:
		default:
		}
		return 500
	})
	<-shown
	stop()
	if s := b.String(); !strings.HasPrefix(s, "\rcopy-out  50% [") || !strings.HasSuffix(s, "\r\x1b[K") || strings.Contains(s, "\n") {
		t.Errorf("drew %q", s)
	}
}

// TestExportTruncatedWhileServed: the copy ends with the reason and leaves no
// file.
func TestExportTruncatedWhileServed(t *testing.T) {
	w := newWorld(t)
	source, _ := w.file("source", 32<<20)
	out := filepath.Join(w.dir, "out")
	s := w.start(w.serveArgs("-read-only", source)...).serving()
	status, done := w.progressed(map[int]func(){10: func() {
		if err := os.Truncate(source, 5000); err != nil {
			t.Error(err)
		}
	}})
	w.spawn(status, w.copyArgs("copy-out", "-status-fd", "3", "-window", "1", "-block", "4096", w.serverAt(), out)...).fails("truncated while served")
	done()
	w.absent(out)
	if st := s.stop(); st.Failed == 0 {
		t.Errorf("the server counted no failure: %+v", st)
	}
}

// TestDiskFull: a full device at either end ends the copy with an error that says so.
func TestDiskFull(t *testing.T) {
	w := newWorld(t)
	source, _ := w.file("source", 1<<20)
	s := w.start(w.serveArgs("-read-only", source)...).serving()
	w.start(w.copyArgs("copy-out", w.serverAt(), "/dev/full")...).fails("no space left on device")
	s.stop()
	s = w.start(w.serveArgs("/dev/full")...).serving()
	w.start(w.copyArgs("copy-in", source, w.serverAt())...).fails("no space left on device")
	if st := s.stop(); st.Failed == 0 {
		t.Errorf("the server counted no failure: %+v", st)
	}
}

// TestRefusals: a copy that is not possible ends with an error and leaves no file.
func TestRefusals(t *testing.T) {
	w := newWorld(t)
	source, content := w.file("source", 100_000)
	out := filepath.Join(w.dir, "out")
	w.start(w.copyArgs("copy-out", w.serverAt(), out)...).fails("no blockstore server is bound there")
	w.absent(out)
	s := w.start(w.serveArgs("-read-only", source)...).serving()
	w.start(w.serveArgs("-read-only", source)...).fails("address already in use")
	w.start(w.copyArgs("copy-in", source, w.serverAt())...).fails("served read-only")
	w.start(w.copyArgs("copy-in", filepath.Join(w.dir, "missing"), w.serverAt())...).fails("missing: no such file")
	w.start(w.copyArgs("copy-in", "/dev/null", w.serverAt())...).fails("not a regular file")
	w.start(w.copyArgs("copy-out", w.serverAt(), w.dir)...).fails("is a directory")
	w.start(w.copyArgs("copy-out", w.serverAt(), filepath.Join(w.dir, "no", "such"))...).fails("no such file or directory")
	s.stop()
	w.holds(source, content)
	w.start("serve", "-socket", w.d[0].Socket(), "-bind", "127.0.0.250:4000", source).fails("cannot assign requested address")
}

// TestExportUnreadable: an export that may not be read is an error. For root the thread
// gives up root's rights.
func TestExportUnreadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	code := make(chan int)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, so no other goroutine runs on it
		if os.Getuid() == 0 {
			_ = unix.Setfsuid(65534)
		}
		code <- run(t.Context(), []string{"serve", "-read-only", path}, &errs, &errs)
	}()
	if c := <-code; c != exitFailed || !strings.Contains(errs.String(), "permission denied") {
		t.Errorf("status %d, said %q", c, errs.String())
	}
}
