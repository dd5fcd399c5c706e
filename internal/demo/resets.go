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

// resetter breaks the connection at random points of a copy's progress. Points in time
// would not do: however fast the copy is, the resets have to be spread over it.
type resetter struct {
	d    *demo
	want int
	hit  int   // resets that broke a connection
	err  error // of rdsctl
}

// linePipe is a pipe that holds 16 unread writes (the kernel's default) and no more. So a
// copy is at most 16 blocks ahead of the reader of its progress. That is enough to have
// operations in flight while the reader looks, and few compared to all blocks, so that a
// reader that gets the CPU late misses no reset.
func linePipe() (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_DIRECT); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	return os.NewFile(uintptr(fds[0]), "lines"), os.NewFile(uintptr(fds[1]), "lines"), nil
}

// follow reads the lines "DONE BLOCKS" of a copy to their end, and resets the connection at
// each point.
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

// point draws where the next reset is, if left resets remain. It divides the remaining
// blocks, without the last ones, into left equal parts and draws from the first part. It
// never draws the current block, so that the connection has worked since the last reset.
func point(done, blocks, left int) int {
	end := blocks - blocks/5
	return done + 1 + rand.IntN(max(1, (end-done)/max(1, left)))
}

// reset has one daemon break the connection while the other daemon is paused. The copy
// cannot go on until the connection is broken, so the reset always meets operations in
// flight.
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
	args := append([]string{"--socket", h.socket, "-o", "json-v2"}, words...)
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
