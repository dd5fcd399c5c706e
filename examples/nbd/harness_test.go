package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/test/child"
	"github.com/rdsd/rdsd/rdstest"
)

// patienceForTests is far longer than anything here takes.
const patienceForTests = 60 * time.Second

var blockstore, nbd string // the programs

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "rdsd-nbd-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		blockstore, nbd = filepath.Join(dir, "blockstore"), filepath.Join(dir, "nbd")
		if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", dir+"/", "../blockstore", ".").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%s%v\n", out, err)
			return 1
		}
		return m.Run()
	}())
}

// world is two hosts: a blockstore on one, nbd on the other.
type world struct {
	t    *testing.T
	d    []*rdstest.Daemon
	file string        // the blockstore's
	at   string        // nbd's unix socket
	said *child.Output // nbd's standard error
	end  func() int
	kill func() // kills the blockstore

	storeSaid *child.Output // the standard error of the blockstore that was started last
}

func newWorld(t *testing.T, size int64, storeFlags ...string) *world {
	t.Helper()
	w := &world{t: t, d: rdstest.StartDaemons(t, 2), file: filepath.Join(t.TempDir(), "disk")}
	sized(t, w.file, size)
	w.kill = w.store(storeFlags...)
	w.serve("-patience", "5s", "disk="+w.d[0].Addr().String())
	return w
}

// sized makes a file of size bytes.
func sized(t *testing.T, path string, size int64) {
	t.Helper()
	f, err := os.Create(path)
	if err == nil {
		err = errors.Join(f.Truncate(size), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// serve runs nbd until w.end is called or the test ends.
func (w *world) serve(args ...string) {
	t, d := w.t, w.d[1]
	t.Helper()
	dir, err := os.MkdirTemp("", "nbd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w.at = filepath.Join(dir, "s")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	said := &child.Output{}
	w.said = said
	go func() {
		ended <- run(ctx, append([]string{"-listen", "unix:" + w.at, "-socket", d.Socket(), "-bind", d.Addr().String()}, args...), said)
	}()
	end := sync.OnceValue(func() int {
		cancel()
		select {
		case code := <-ended:
			return code
		case <-time.After(patienceForTests):
			t.Error("nbd does not end")
			return -1
		}
	})
	w.end = end
	t.Cleanup(func() {
		if code := end(); code != exitOK {
			t.Errorf("nbd ended with status %d", code)
		}
		if t.Failed() {
			t.Logf("nbd said:\n%s", said)
		}
	})
	w.hears("serving ")
}

// hears waits until nbd has said text.
func (w *world) hears(text string) {
	w.t.Helper()
	w.hearsOften(w.said, text, 1)
}

// hearsOften waits until a program has said text n times.
func (w *world) hearsOften(said *child.Output, text string, n int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patienceForTests)
	defer cancel()
	if !child.Until(ctx, nil, func() bool { return strings.Count(said.String(), text) >= n }, said, said) {
		w.t.Fatalf("the program did not say %q %d times: %s", text, n, said)
	}
}

// store starts the blockstore and returns a function that kills it.
func (w *world) store(flags ...string) (kill func()) {
	w.t.Helper()
	return w.storeAt(w.d[0], w.file, flags...)
}

// storeAt starts a blockstore of file beside the daemon d.
func (w *world) storeAt(d *rdstest.Daemon, file string, flags ...string) (kill func()) {
	w.t.Helper()
	c, err := child.Start(exec.Command(blockstore, append(append([]string{"serve", "-socket", d.Socket(), "-bind", d.Addr().String()}, flags...), file)...))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Kill)
	w.storeSaid = &c.Stderr
	if !c.Until(patienceForTests, func() bool { return c.Stderr.Has("serving ") }) {
		w.t.Fatalf("blockstore does not serve: %s", &c.Stderr)
	}
	return c.Kill
}

// reset breaks the connection between the hosts. It returns false if there was none.
func (w *world) reset() bool {
	ctx, cancel := context.WithTimeout(context.Background(), patienceForTests)
	defer cancel()
	i := rand.IntN(2)
	n, err := w.d[i].Reset(ctx, w.d[1-i].Addr())
	if err != nil {
		w.t.Error(err)
	}
	return n > 0
}

// client is an NBD client that sends the bytes a test gives it. It fails the test if nbd
// does not answer in time.
type client struct {
	net.Conn
	t    *testing.T
	next uint64
}

func (w *world) dial() *client {
	w.t.Helper()
	c, err := net.Dial("unix", w.at)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patienceForTests))
	return &client{Conn: c, t: w.t}
}

// open returns a client that has taken the disk.
func (w *world) open() *client {
	w.t.Helper()
	c := w.dial()
	c.send([]byte{0, 0, 0, 3}, optionBytes(optExportName, nil))
	c.hear(18 + 10)
	return c
}

func (c *client) send(bs ...[]byte) {
	c.t.Helper()
	if _, err := c.Write(bytes.Join(bs, nil)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) hear(n int) []byte {
	c.t.Helper()
	b := make([]byte, n)
	if err := c.tryHear(b); err != nil {
		c.t.Fatal(err)
	}
	return b
}

func (c *client) tryHear(b []byte) error {
	_, err := io.ReadFull(c, b)
	return err
}

// do sends a request and returns the error number of its reply.
func (c *client) do(r request, data []byte) errno {
	c.t.Helper()
	c.next++
	r.cookie = c.next
	c.send(requestBytes(r), data)
	return c.reply(r.cookie)
}

func (c *client) reply(cookie uint64) errno {
	c.t.Helper()
	b := c.hear(16)
	if binary.BigEndian.Uint32(b) != magicAnswer || binary.BigEndian.Uint64(b[8:]) != cookie {
		c.t.Fatalf("reply %x, want one to %d", b, cookie)
	}
	return errno(binary.BigEndian.Uint32(b[4:]))
}

func (c *client) write(off int, data []byte) {
	c.t.Helper()
	if e := c.do(request{command: cmdWrite, offset: uint64(off), length: uint32(len(data))}, data); e != eOK {
		c.t.Fatalf("write: error %d", e)
	}
}

func (c *client) read(off, n int) []byte {
	c.t.Helper()
	if e := c.do(request{command: cmdRead, offset: uint64(off), length: uint32(n)}, nil); e != eOK {
		c.t.Fatalf("read: error %d", e)
	}
	return c.hear(n)
}

// closed fails the test unless the server closes the connection without another byte.
func (c *client) closed() {
	c.t.Helper()
	if n, err := io.Copy(io.Discard, c); n > 0 || err != nil && !errors.Is(err, unix.ECONNRESET) {
		c.t.Errorf("%d bytes and %v, want the end", n, err)
	}
}

func noise(n int) []byte {
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(rand.Uint32())
	}
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(seed).Read(b) // never fails
	return b
}
