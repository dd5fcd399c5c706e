package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// bench runs the cases.
type bench struct {
	*options
	dir    string // short, for control sockets
	stderr io.Writer
	count  int // pairs started
}

// startup is what processes may take to start and to end.
const startup = 20 * time.Second

// all runs every case once, then again, so that what the machine does besides
// meets all of them.
func (b *bench) all(ctx context.Context, cs []testCase) (*report, error) {
	rep := newReport(b.options, cs)
	for i := range b.runs {
		for j, c := range cs {
			fmt.Fprintf(b.stderr, "\rrun %d of %d: %-15s", i+1, b.runs, c.name)
			r, err := b.once(ctx, c)
			if err != nil {
				fmt.Fprintln(b.stderr)
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			rep.Cases[j].add(c, r)
		}
	}
	fmt.Fprintf(b.stderr, "\r%40s\r", "")
	rep.summarize()
	return rep, nil
}

// run is the outcome of one measurement: the figures, and the allocations per
// message of both applications.
type run struct {
	result
	allocs float64
}

// once measures one case with fresh processes.
func (b *bench) once(ctx context.Context, c testCase) (r run, err error) {
	ctx, cancel := context.WithTimeout(ctx, startup+2*b.d)
	defer cancel()
	var procs []*process
	defer func() {
		for _, p := range slices.Backward(procs) {
			p.stop()
		}
	}()
	var hosts []host
	if c.rds {
		if hosts, err = b.hosts(ctx, c, &procs); err != nil {
			return r, err
		}
	}
	server, err := b.worker(ctx, c, c.server, 0, hosts, "", &procs)
	if err != nil {
		return r, err
	}
	line, err := server.expect(ctx, "ready ")
	if err != nil {
		return r, err
	}
	client, err := b.worker(ctx, c, c.client, 1, hosts, strings.TrimPrefix(line, "ready "), &procs)
	if err != nil {
		return r, err
	}
	if _, err := client.expect(ctx, "ready "); err != nil {
		return r, err
	}
	var pids []string
	for _, p := range procs {
		pids = append(pids, strconv.Itoa(p.cmd.Process.Pid))
	}
	measuring, other := client, server
	if c.serverMeasures {
		measuring, other = server, client
	}
	for _, p := range []*process{server, client} {
		if _, err := fmt.Fprintln(p.stdin, strings.Join(pids, " ")); err != nil {
			return r, p.failure("go")
		}
	}
	// If the other one fails, the one that measures may wait forever.
	watch, unwatch := context.WithCancelCause(ctx)
	defer unwatch(nil)
	go func() {
		select {
		case <-other.exited:
			unwatch(other.failure("ended"))
		case <-watch.Done():
		}
	}()
	if r.result, err = measuring.result(watch); err != nil {
		return r, errors.Join(err, context.Cause(watch))
	}
	if r.Messages == 0 {
		return r, errors.New("nothing went through")
	}
	unwatch(nil)
	other.stdin.Close()
	rest, err := other.result(ctx)
	if err != nil {
		return r, err
	}
	if rest.All == 0 { // nothing to count there: the target of one-sided operations
		rest.All = r.All
	}
	r.allocs = perMessage(r.result) + perMessage(rest)
	return r, nil
}

func perMessage(r result) float64 { return float64(r.Mallocs) / float64(max(r.All, 1)) }

// host is a daemon and the address of its sockets.
type host struct{ addr, socket string }

// hosts starts the daemons of a case, for the server and for the client.
func (b *bench) hosts(ctx context.Context, c testCase, procs *[]*process) ([]host, error) {
	b.count++
	tcpPort, err := freePort()
	if err != nil {
		return nil, err
	}
	hs := []host{{"127.0.0.1", b.socket("a")}, {"127.0.0.2", b.socket("b")}}
	if c.local {
		hs[1] = hs[0]
	}
	for i, h := range hs {
		if i == 1 && c.local {
			break
		}
		p, err := b.daemon(c, h, tcpPort)
		if err != nil {
			return nil, err
		}
		*procs = append(*procs, p)
		if _, err := p.expect(ctx, "msg=serving"); err != nil {
			return nil, err
		}
	}
	return hs, nil
}

func (b *bench) socket(name string) string {
	return filepath.Join(b.dir, name+strconv.Itoa(b.count))
}

func (b *bench) daemon(c testCase, h host, tcpPort int) (*process, error) {
	set := []string{"socket", h.socket, "listen", h.addr, "port", strconv.Itoa(tcpPort), "crc", b.crc, "spin", b.spin.String()}
	var args []string
	if b.profile == "" {
		for i := 0; i < len(set); i += 2 {
			args = append(args, "-"+set[i], set[i+1])
		}
		return startProcess("rdsd", true, b.rdsd, args...)
	}
	args = []string{workerArg, "daemon", "profile=" + b.profile, "case=" + c.name, "host=" + h.addr[len(h.addr)-1:]}
	for i := 0; i < len(set); i += 2 {
		args = append(args, set[i]+"="+set[i+1])
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return startProcess("daemon", true, self, args...)
}

// worker starts an application: i is 0 for the server, 1 for the client.
func (b *bench) worker(_ context.Context, c testCase, role string, i int, hosts []host, addr string, procs *[]*process) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{workerArg, role, "d=" + b.d.String(), "size=" + strconv.Itoa(c.size), "footprint=" + strconv.Itoa(b.footprint), "addr=" + addr}
	if c.rds {
		args = append(args, "socket="+hosts[i].socket, "bind="+net.JoinHostPort(hosts[i].addr, strconv.Itoa(port+i)), "appspin="+b.appSpin.String())
	}
	if c.crc {
		args = append(args, "crc=on")
	}
	if b.profile != "" {
		args = append(args, "profile="+b.profile, "case="+c.name)
	}
	p, err := startProcess(role, false, self, args...)
	if err == nil {
		*procs = append(*procs, p)
	}
	return p, err
}

// freePort is a TCP port nobody listens on just now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
