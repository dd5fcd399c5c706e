package main

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// tool returns the path of a foreign program that speaks NBD, or skips the test.
func tool(t *testing.T, name, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed: apt-get install -y --no-install-recommends %s", name, pkg)
	}
	return path
}

// breaker is a proxy between a tool and nbd. Each time that another b.every bytes have
// passed, it resets the daemons' connection, so always in the middle of a transfer.
type breaker struct {
	w      *world
	every  int64
	passed atomic.Int64
	resets atomic.Int64
	url    string
}

// between starts a breaker in front of nbd.
func (w *world) between(every int64) *breaker {
	w.t.Helper()
	b := &breaker{w: w, every: every}
	l, err := net.Listen("unix", w.at+".b")
	if err != nil {
		w.t.Fatal(err)
	}
	var all sync.WaitGroup
	w.t.Cleanup(func() { l.Close(); all.Wait() })
	b.url = "nbd+unix:///disk?socket=" + w.at + ".b"
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("unix", w.at)
			if err != nil {
				c.Close()
				continue
			}
			all.Go(func() { b.pass(to, c) })
			all.Go(func() { b.pass(c, to) })
		}
	})
	return b
}

func (b *breaker) pass(to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			passed := b.passed.Add(int64(n))
			if passed/b.every != (passed-int64(n))/b.every && b.w.reset() {
				b.resets.Add(1)
			}
			if _, err := to.Write(buf[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	to.Close()
	from.Close()
}

// did fails the test unless there were at least n resets since the last call.
func (b *breaker) did(n int64) {
	b.w.t.Helper()
	if got := b.resets.Swap(0); got < n {
		b.w.t.Errorf("%d resets, want at least %d", got, n)
	}
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return string(out)
}

func sum(t *testing.T, path string) (s [32]byte) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return [32]byte(h.Sum(nil))
}

func TestNbdinfo(t *testing.T) {
	nbdinfo := tool(t, "nbdinfo", "libnbd-bin")
	w := newWorld(t, 3<<20+511)
	out := output(t, nbdinfo, "nbd+unix:///disk?socket="+w.at)
	for _, want := range []string{
		"newstyle-fixed", "export-size: 3146239", "is_read_only: false", "can_fast_zero: true", "can_flush: true", "can_fua: true",
		"can_multi_conn: true", "can_trim: true", "can_zero: true", "block_size_minimum: 1", "block_size_maximum: 33554432",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("nbdinfo does not say %q:\n%s", want, out)
		}
	}
	if out := output(t, nbdinfo, "--list", "nbd+unix://?socket="+w.at); !strings.Contains(out, `export="disk"`) {
		t.Errorf("nbdinfo --list:\n%s", out)
	}
	if out, err := exec.Command(nbdinfo, "nbd+unix:///tape?socket="+w.at).CombinedOutput(); err == nil || !strings.Contains(string(out), "No such file") {
		t.Errorf("another name: %v\n%s", err, out)
	}
}

// TestNbdcopy: nbdcopy copies a file in and out, over several connections and with many
// requests in flight, while the daemons' connection is reset.
func TestNbdcopy(t *testing.T) {
	nbdcopy := tool(t, "nbdcopy", "libnbd-bin")
	const size = 48<<20 + 4097
	w := newWorld(t, size)
	source, out := filepath.Join(t.TempDir(), "source"), filepath.Join(t.TempDir(), "out")
	data := noise(size)
	clear(data[5<<20 : 9<<20]) // nbdcopy makes a hole of these zeros
	if err := os.WriteFile(source, data, 0o600); err != nil {
		t.Fatal(err)
	}
	b := w.between(4 << 20)
	output(t, nbdcopy, "--flush", source, b.url)
	b.did(5)
	if want := sum(t, source); sum(t, w.file) != want {
		t.Error("the blockstore has another file than was copied")
	}
	output(t, nbdcopy, b.url, out)
	b.did(5)
	if sum(t, out) != sum(t, source) {
		t.Error("another file came back than was copied")
	}
}

// TestFio: fio writes at random sizes and places, reads in between, flushes, and verifies
// what it reads back, while the daemons' connection is reset.
func TestFio(t *testing.T) {
	fio := tool(t, "fio", "fio")
	if out, err := exec.Command(fio, "--enghelp=nbd").CombinedOutput(); err != nil || bytes.Contains(out, []byte("not found")) {
		t.Skipf("fio has no engine nbd: %v", err)
	}
	w := newWorld(t, 24<<20)
	b := w.between(2 << 20)
	for _, job := range [][]string{
		{"--rw=randwrite", "--bsrange=512-128k", "--bs_unaligned=1", "--fsync=32"},
		{"--rw=randrw", "--bs=4k", "--io_size=8m"},
		{"--rw=write", "--bs=1m"},
	} {
		args := append([]string{
			"--name=job", "--ioengine=nbd", "--uri=" + b.url, "--size=24m", "--iodepth=16", "--randseed=7",
			"--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--verify_state_save=0", "--end_fsync=1",
		}, job...)
		if out := output(t, fio, args...); !strings.Contains(out, "err= 0") {
			t.Errorf("%v:\n%s", job, out)
		}
		b.did(3)
	}
}

// TestQemuImg: qemu-img copies an image in and out, and finds no difference, while the
// daemons' connection is reset.
func TestQemuImg(t *testing.T) {
	qemu := tool(t, "qemu-img", "qemu-utils")
	const size = 24 << 20
	w := newWorld(t, size)
	source, out := filepath.Join(t.TempDir(), "source"), filepath.Join(t.TempDir(), "out")
	data := noise(size)
	clear(data[3<<20 : 5<<20])
	if err := os.WriteFile(source, data, 0o600); err != nil {
		t.Fatal(err)
	}
	b := w.between(4 << 20)
	output(t, qemu, "convert", "-n", "-W", "-f", "raw", "-O", "raw", source, b.url)
	b.did(3)
	output(t, qemu, "compare", "-f", "raw", "-F", "raw", source, b.url)
	output(t, qemu, "convert", "-f", "raw", "-O", "raw", b.url, out)
	if sum(t, out) != sum(t, source) {
		t.Error("the image came back with other content")
	}
}
