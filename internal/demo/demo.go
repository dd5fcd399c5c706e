package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/rdsd/rdsd/internal/demo/verdict"
)

// demo is one run.
type demo struct {
	options
	dir   string
	procs *processes
	hosts []*host
}

// host is one daemon.
type host struct {
	addr   string
	socket string
	daemon *process
}

func (d *demo) program(name string) string { return filepath.Join(d.bin, name) }

// run returns the last line, or what went wrong.
func (d *demo) run(ctx context.Context) (string, error) {
	source, err := d.source(ctx)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(source)
	if err != nil {
		return "", err
	}
	limit := patience(info.Size())
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %v", limit))
	defer cancel()
	if err := d.startDaemons(ctx); err != nil {
		return "", err
	}
	out, back := filepath.Join(d.dir, "out"), filepath.Join(d.dir, "back")
	block := "-block=" + strconv.Itoa(blockFor(info.Size()))
	read, err := d.copy(ctx, "copy-out", 4000, []string{"-read-only", source}, block, "127.0.0.1:4000", out)
	if err != nil {
		return "", err
	}
	write, err := d.copy(ctx, "copy-in", 4001, []string{"-create", back}, block, out, "127.0.0.1:4001")
	if err != nil {
		return "", err
	}
	for i := len(d.hosts) - 1; i >= 0; i-- {
		if err := d.hosts[i].daemon.stop(); err != nil {
			return "", err
		}
	}
	verdict.Print(os.Stdout, []verdict.Direction{read, write})
	sum, err := compare(ctx, []string{"source", "copied out", "copied back in"}, []string{source, out, back})
	if err != nil {
		return "", err
	}
	if err := verdict.Check([]verdict.Direction{read, write}, d.resets); err != nil {
		return "", err
	}
	return fmt.Sprintf("demo: verified %d bytes out and back in, sha256 %s, %d resets", read.Copy.Bytes, sum, read.Resets+write.Resets), nil
}

// source returns the file to copy.
func (d *demo) source(ctx context.Context) (string, error) {
	if d.file != "" {
		return d.file, nil
	}
	path := filepath.Join(d.dir, "source")
	fmt.Printf("source: %d MiB of a tar of the Go source tree\n", d.mib)
	return path, d.writeGoTar(ctx, path, int64(d.mib)<<20)
}

// startDaemons starts one daemon per host, all on one free TCP port.
func (d *demo) startDaemons(ctx context.Context) error {
	addrs := []string{"127.0.0.1", "127.0.0.2"}
	port, err := freePort(addrs)
	if err != nil {
		return err
	}
	for i, addr := range addrs {
		h := &host{addr: addr, socket: filepath.Join(d.dir, strconv.Itoa(i)+".sock")}
		h.daemon, err = d.procs.start(command{name: "rdsd-" + addr, program: d.program("rdsd"),
			args: []string{"--listen", addr, "--port", strconv.Itoa(port), "--socket", h.socket}})
		if err != nil {
			return err
		}
		d.hosts = append(d.hosts, h)
		if err := h.daemon.waitFor(ctx, "msg=serving"); err != nil {
			return err
		}
	}
	fmt.Printf("daemons: %s, TCP port %d\n", strings.Join(addrs, " and "), port)
	return nil
}

// freePort finds a TCP port that is free on all addresses.
func freePort(addrs []string) (int, error) {
	for range 100 {
		first, err := net.Listen("tcp", net.JoinHostPort(addrs[0], "0"))
		if err != nil {
			return 0, err
		}
		port := first.Addr().(*net.TCPAddr).Port
		free := true
		for _, a := range addrs[1:] {
			l, err := net.Listen("tcp", net.JoinHostPort(a, strconv.Itoa(port)))
			if free = free && err == nil; err == nil {
				l.Close()
			}
		}
		first.Close()
		if free {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no TCP port is free on all of %v", addrs)
}

// copy runs a server on the first host and a client on the second, with resets
// in between.
func (d *demo) copy(ctx context.Context, name string, port int, serve []string, args ...string) (verdict.Direction, error) {
	r := verdict.Direction{Name: name}
	server, client := d.hosts[0], d.hosts[1]
	before, err := d.peerCounts(ctx)
	if err != nil {
		return r, err
	}
	s, err := d.procs.start(command{name: "blockstore-" + strconv.Itoa(port), program: d.program("blockstore"),
		args: append([]string{"serve", "-json", "-socket", server.socket, "-bind", server.addr + ":" + strconv.Itoa(port)}, serve...)})
	if err != nil {
		return r, err
	}
	if err := s.waitFor(ctx, "serving "); err != nil {
		return r, err
	}
	defer d.procs.forget(s)

	lines, status, err := linePipe()
	if err != nil {
		return r, err
	}
	resets := &resetter{d: d, want: d.resets}
	var following sync.WaitGroup
	following.Go(func() { resets.follow(ctx, lines) })
	out, err := d.procs.run(ctx, command{name: name, program: d.program("blockstore"), terminal: os.Stderr, status: status,
		args: append([]string{name, "-json", "-status-fd", "3", "-socket", client.socket, "-bind", client.addr}, args...)})
	status.Close()
	following.Wait()
	lines.Close()
	if e := s.stop(); err == nil {
		err = e
	}
	if err == nil {
		err = resets.err
	}
	if err != nil {
		return r, err
	}
	r.Resets = resets.hit
	if err := json.Unmarshal(out, &r.Copy); err != nil {
		return r, fmt.Errorf("%s: statistics: %w", name, err)
	}
	if err := json.Unmarshal([]byte(s.Stdout.String()), &r.Serve); err != nil {
		return r, fmt.Errorf("%s: server's statistics: %w", name, err)
	}
	after, err := d.peerCounts(ctx)
	r.Peers = after.Minus(before)
	return r, err
}

// blockFor is the block size for a file. It is small enough that there are many blocks.
func blockFor(size int64) int {
	const smallest, largest, many = 4 << 10, 256 << 10, 256
	block := smallest
	for block < largest && size > int64(block)*many {
		block *= 2
	}
	return block
}
