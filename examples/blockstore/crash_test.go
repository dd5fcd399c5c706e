package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// smallBlocks makes a copy have thousands of blocks, so that a fault at some percentage of
// its progress comes in the middle of the copy.
const smallBlocks = "-block=4096"

// noneSmall has all blocks go by RDMA, as large ones do.
const noneSmall = "-small=0"

// TestServerKilled: if the server is killed in the middle of a copy, the client fails and
// leaves no file. A server that is started at the same address serves again.
func TestServerKilled(t *testing.T) {
	for _, small := range []string{"-small=16384", noneSmall} {
		t.Run(small, func(t *testing.T) { serverKilled(t, small) })
	}
}

func serverKilled(t *testing.T, small string) {
	w := newWorld(t)
	source, content := w.file("source", 16<<20)
	out, back := filepath.Join(w.dir, "out"), filepath.Join(w.dir, "back")
	gone := []string{"no blockstore server is bound there", "no answer", "refused"}

	s := w.spawn(nil, w.serveArgs("-read-only", source)...).serving()
	status, done := w.progressed(map[int]func(){30: s.kill})
	w.spawn(status, w.copyArgs("copy-out", "-status-fd", "3", "-give-up", "5s", small, smallBlocks, w.serverAt(), out)...).fails(gone...)
	done()
	w.absent(out)

	s = w.spawn(nil, w.serveArgs("-create", back)...).serving()
	status, done = w.progressed(map[int]func(){30: s.kill})
	w.spawn(status, w.copyArgs("copy-in", "-status-fd", "3", "-give-up", "5s", small, smallBlocks, source, w.serverAt())...).fails(gone...)
	done()

	s = w.spawn(nil, w.serveArgs(back)...).serving()
	w.start(w.copyArgs("copy-in", source, w.serverAt())...).copied()
	w.start(w.copyArgs("copy-out", w.serverAt(), out)...).copied()
	s.stop()
	w.holds(back, content)
	w.holds(out, content)
}

// TestClientKilled: clients are killed with operations in flight. The server gets all its
// buffers back and serves the next client.
func TestClientKilled(t *testing.T) {
	w := newWorld(t)
	source, content := w.file("source", 4<<20)
	out, export := filepath.Join(w.dir, "out"), filepath.Join(w.dir, "export")
	// There are so few buffers that the test would fail if one did not come back.
	s := w.start(w.serveArgs("-buffers", "4", "-create", export)...).serving()
	w.start(w.copyArgs("copy-in", source, w.serverAt())...).copied()
	for i := range 8 {
		small := "-small=16384"
		if i >= 4 {
			small = noneSmall
		}
		args := w.copyArgs("copy-out", "-status-fd", "3", small, smallBlocks, w.serverAt(), out)
		if i%2 == 1 {
			args = w.copyArgs("copy-in", "-status-fd", "3", small, smallBlocks, source, w.serverAt())
		}
		var victim *program
		ready := make(chan struct{})
		status, done := w.progressed(map[int]func(){10 + 8*i: func() { <-ready; victim.kill() }})
		victim = w.spawn(status, args...)
		close(ready)
		if code := victim.wait(); code != -1 {
			t.Fatalf("client %d: status %d, not killed: %s", i, code, victim.errs)
		}
		done()
	}
	w.start(w.copyArgs("copy-in", source, w.serverAt())...).copied()
	w.start(w.copyArgs("copy-out", w.serverAt(), out)...).copied()
	s.stop()
	w.holds(export, content)
	w.holds(out, content)
}

// daemon is an rdsd in a process of its own, so that it can be killed. It takes the address
// and control socket of one of the world's daemons.
type daemon struct {
	bin          string
	addr, socket string
	cmd          *exec.Cmd
}

// start returns when the daemon listens.
func (d *daemon) start() error {
	d.cmd = exec.Command(d.bin, "--listen", d.addr, "--socket", d.socket)
	if err := d.cmd.Start(); err != nil {
		return err
	}
	for deadline := time.Now().Add(patienceForTests); ; time.Sleep(2 * time.Millisecond) {
		c, err := dialUnix(d.socket)
		if err == nil {
			return unix.Close(c)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("rdsd does not answer: %w", err)
		}
	}
}

func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
}

// dialUnix connects to a daemon's control socket.
func dialUnix(path string) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// TestDaemonKilled: the daemon of the server, or of the client, is killed in the middle of
// a copy and started again. The program at that daemon ends with an error that says so. The
// program at the other daemon ends with an error or goes on. The file is never wrong.
func TestDaemonKilled(t *testing.T) {
	w := newWorld(t)
	bin := filepath.Join(w.dir, "rdsd")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", bin, "../../cmd/rdsd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	source, content := w.file("source", 16<<20)
	for victim, whose := range []string{"server", "client"} {
		if err := w.d[victim].Stop(); err != nil {
			t.Fatal(err)
		}
		killed := &daemon{bin: bin, addr: w.d[victim].Addr().String(), socket: w.d[victim].Socket()}
		if err := killed.start(); err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			verb, small := []string{"copy-out", "copy-in"}[i%2], []string{"-small=16384", noneSmall}[i/2]
			t.Run(fmt.Sprintf("%s's daemon, %s, %s", whose, verb, small), func(t *testing.T) {
				w := &world{t: t, d: w.d, dir: w.dir}
				out, export := filepath.Join(w.dir, "out"), filepath.Join(w.dir, "export")
				result, args := out, []string{verb, "-status-fd", "3", "-patience", "500ms", "-give-up", "5s", small, smallBlocks, w.serverAt(), out}
				serve := []string{"-read-only", source}
				if verb == "copy-in" {
					result, args = export, append(args[:len(args)-2], source, w.serverAt())
					serve = []string{"-create", export}
				}
				s := w.start(w.serveArgs(serve...)...).serving()
				status, done := w.progressed(map[int]func(){30: func() {
					killed.kill()
					if err := killed.start(); err != nil {
						t.Error(err)
					}
				}})
				p := w.spawn(status, w.copyArgs(args...)...)
				p.wait()
				done()
				if victim == 0 {
					s.fails("daemon")
				} else {
					p.fails("daemon")
					s.stop()
				}
				switch {
				case p.code() == exitOK:
					w.holds(result, content)
				case p.code() != exitFailed:
					t.Errorf("status %d: %s", p.code(), p.errs)
				default:
					t.Logf("the copy said: %s", p.errs)
					w.absent(out)
				}
				// Both programs are started again and finish the copy.
				s = w.start(w.serveArgs(serve...)...).serving()
				w.start(w.copyArgs(append([]string{verb}, args[len(args)-2:]...)...)...).copied()
				s.stop()
				w.holds(result, content)
				if err := os.Remove(result); err != nil {
					t.Error(err)
				}
			})
		}
		killed.kill()
		w.d[victim].Start(t)
	}
}
