package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/ctl"
)

// resetter breaks the connection at random points of a copy's progress, not of
// time: however fast the copy is, the resets are spread over it.
type resetter struct {
	d    *demo
	want int
	hit  int   // resets that broke a connection
	err  error // of rdsctl
}

// linePipe is a pipe that holds 16 writes (the kernel's default), and no more,
// until they are read. So a copy is never further ahead of the reader of its
// progress: enough that operations are in flight while it looks, and few
// against all blocks, so that a reader that gets the CPU late misses nothing.
func linePipe() (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_DIRECT); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	return os.NewFile(uintptr(fds[0]), "lines"), os.NewFile(uintptr(fds[1]), "lines"), nil
}

// follow reads the lines "DONE BLOCKS" of a copy to their end and resets when
// a point is reached.
func (r *resetter) follow(ctx context.Context, lines io.Reader) {
	at := -1 // the next point, in blocks done
	for sc := bufio.NewScanner(lines); sc.Scan(); {
		var done, blocks int
		if _, err := fmt.Sscan(sc.Text(), &done, &blocks); err != nil || r.err != nil || ctx.Err() != nil {
			continue
		}
		if at < 0 {
			at = point(done, blocks, r.want-r.hit)
		}
		if done < at || done >= blocks || r.hit >= r.want {
			continue
		}
		r.err = r.reset(ctx)
		at = -1
	}
}

// point draws where the next of left resets is: in the first of left equal
// parts of what remains, the last blocks excepted, and never where the copy is,
// so that the connection has worked since the last reset.
func point(done, blocks, left int) int {
	end := blocks - blocks/5
	return done + 1 + rand.IntN(max(1, (end-done)/max(1, left)))
}

// reset has one daemon break off the connection while the other is held: the
// copy cannot run on until the reset is there, so that it always meets what is
// in flight.
func (r *resetter) reset(ctx context.Context) error {
	i := rand.IntN(2)
	by, held := r.d.hosts[i], r.d.hosts[1-i]
	held.daemon.signal(unix.SIGSTOP)
	defer held.daemon.signal(unix.SIGCONT)
	answer, err := r.d.ctl(ctx, by, "peer", "reset", held.addr)
	if ctx.Err() == nil && err != nil {
		return err
	}
	if err == nil && answer.PeerReset != nil && answer.PeerReset.Reset > 0 {
		r.hit++
	}
	return nil
}

// ctl asks a daemon through rdsctl.
func (d *demo) ctl(ctx context.Context, h *host, words ...string) (*ctl.Response, error) {
	args := append([]string{"--socket", h.socket, "-o", "json"}, words...)
	out, err := d.procs.run(ctx, command{name: "rdsctl", program: d.program("rdsctl"), args: args})
	if err != nil {
		return nil, err
	}
	var answer ctl.Response
	if err := json.Unmarshal(out, &answer); err != nil {
		return nil, fmt.Errorf("rdsctl %v: %w", words, err)
	}
	if answer.Schema != ctl.Schema {
		return nil, fmt.Errorf("rdsctl %v: schema %q, this demo knows %q", words, answer.Schema, ctl.Schema)
	}
	return &answer, nil
}
