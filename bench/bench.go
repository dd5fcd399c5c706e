package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdsd/rdsd/bench/worker"
	"github.com/rdsd/rdsd/internal/config"
)

// bench runs the cases.
type bench struct {
	*options
	dir    string // short, for control sockets
	stderr io.Writer
	count  int             // pairs started
	peers  map[string]bool // roles of the peers' program
}

// startup is what processes may take to start and to end.
const startup = 20 * time.Second

// all runs every case once, then again, so that what the machine does besides
// meets all of them. A case that fails is left out from then on and noted; the
// error says so again.
func (b *bench) all(ctx context.Context, cs []testCase) (*report, error) {
	rep := newReport(b.options, cs)
	out := make([]bool, len(cs))
	var failed []error
	for i := range b.runs {
		for j, c := range cs {
			if out[j] || c.maxRuns > 0 && i >= c.maxRuns {
				continue
			}
			b.progress("run %d of %d: %s", i+1, b.runs, c.name)
			r, err := b.once(ctx, c)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil {
				out[j] = true
				rep.Notes = append(rep.Notes, fmt.Sprintf("%s: %v", c.name, err))
				if !errors.Is(err, errUnavailable) {
					failed = append(failed, fmt.Errorf("%s: %w", c.name, err))
				}
				continue
			}
			rep.Cases[j].add(r)
		}
	}
	b.progress("")
	rep.summarize(goals())
	return rep, errors.Join(failed...)
}

// progress shows where the bench is, on a terminal.
func (b *bench) progress(format string, args ...any) {
	f, ok := b.stderr.(*os.File)
	if !ok {
		return
	}
	if st, err := f.Stat(); err == nil && st.Mode()&os.ModeCharDevice != 0 {
		fmt.Fprintf(f, "\r%-50s\r", fmt.Sprintf(format, args...))
	}
}

// run is the outcome of one measurement: the figures, and the allocations per
// message of both applications.
type run struct {
	worker.Result
	allocs float64
}

// setup is the processes of one measurement.
type setup struct {
	*bench
	testCase
	procs  []*process // that count: daemons or relays, then hub, server and client
	hogs   []*process // and others that do not count
	shared []*floorShared
	hosts  []host
	group  *cgroup
	hubAt  string

	secured []string // configuration of the daemons, if with TLS
}

// host is a daemon and the address of its sockets.
type host struct {
	addr, socket string
	pid          int
}

func (s *setup) close() {
	for _, p := range slices.Backward(slices.Concat(s.procs, s.hogs)) {
		p.stop()
	}
	for _, f := range s.shared {
		f.close()
	}
	if s.group != nil {
		s.group.close()
	}
}

// once measures one case with fresh processes.
func (b *bench) once(ctx context.Context, c testCase) (r run, err error) {
	b.count++
	s := &setup{bench: b, testCase: c}
	ctx, cancel := context.WithTimeout(ctx, startup+2*s.duration())
	defer cancel()
	defer s.close()
	if err := s.begin(ctx); err != nil {
		return r, err
	}
	server, err := s.worker(c.server, 0, "")
	if err != nil {
		return r, err
	}
	line, err := server.expect(ctx, "ready ")
	if err != nil {
		return r, err
	}
	client, err := s.worker(c.client, 1, strings.TrimPrefix(line, "ready "))
	if err != nil {
		return r, err
	}
	if _, err := client.expect(ctx, "ready "); err != nil {
		return r, err
	}
	if s.beside != nil {
		if err := s.startBeside(ctx); err != nil {
			return r, err
		}
	}
	if err := s.start(ctx); err != nil {
		return r, err
	}
	measuring, other := client, server
	if c.serverMeasures {
		measuring, other = server, client
	}
	// If another one fails, the one that measures may wait forever.
	watch, unwatch := context.WithCancelCause(ctx)
	defer unwatch(nil)
	for _, p := range s.procs {
		if p == measuring {
			continue
		}
		go func() {
			select {
			case <-p.Ended():
				unwatch(p.failure("ended"))
			case <-watch.Done():
			}
		}()
	}
	if r.Result, err = measuring.result(watch); err != nil {
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
	r.allocs = perMessage(r.Result) + perMessage(rest)
	if r.Extra == nil && len(rest.Extra) > 0 {
		r.Extra = map[string]float64{}
	}
	maps.Copy(r.Extra, rest.Extra)
	return r, nil
}

func perMessage(r worker.Result) float64 { return float64(r.Mallocs) / float64(max(r.All, 1)) }

func (s *setup) duration() time.Duration { return max(s.d, min(s.minTime, s.longest)) }

// begin starts what is there before the applications.
func (s *setup) begin(ctx context.Context) (err error) {
	if s.topo == peerProgram {
		for _, role := range []string{s.hub, s.server, s.client} {
			if role != "" && !s.peers[role] {
				return fmt.Errorf("%s: %w: `make bench-peers` builds %s with what is installed", role, errUnavailable, s.options.peers)
			}
		}
	}
	if s.busy == quota {
		if s.group, err = newCgroup(); err != nil {
			return err
		}
	}
	switch {
	case s.topo.daemons():
		err = s.daemons(ctx)
	case s.topo.relays():
		err = s.relays(ctx)
	}
	if err == nil && s.hub != "" {
		s.hubAt, err = s.helper(ctx, s.hub, nil)
	}
	return err
}

// keepBusy starts a process that only takes CPU time.
func (s *setup) keepBusy(ctx context.Context, role string, as how, args ...string) error {
	p, err := s.self(role, as, args...)
	if err != nil {
		return err
	}
	s.hogs = append(s.hogs, p)
	if _, err := p.expect(ctx, "ready "); err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.stdin)
	return err
}

// start lets the applications go, once the machine is as busy as it is to be.
func (s *setup) start(ctx context.Context) error {
	var pids []string
	for _, p := range s.procs {
		pid := p.Pid()
		pids = append(pids, strconv.Itoa(pid))
		if s.group != nil {
			if err := s.group.add(pid); err != nil {
				return fmt.Errorf("CPU quota: %w: %w", errUnavailable, err)
			}
		}
	}
	for _, p := range s.hogs {
		if _, err := fmt.Fprintln(p.stdin); err != nil {
			return p.failure("go")
		}
	}
	switch s.busy {
	case hogs, sameSession:
		for range runtime.NumCPU() {
			if err := s.keepBusy(ctx, "hog", how{session: true}); err != nil {
				return err
			}
		}
	case collecting:
		if err := s.keepBusy(ctx, "collector", how{}, heapArg); err != nil {
			return err
		}
	}
	for _, p := range s.procs {
		if p.stdin != nil {
			if _, err := fmt.Fprintln(p.stdin, strings.Join(pids, " ")); err != nil {
				return p.failure("go")
			}
		}
	}
	return nil
}

// daemons starts those of the case, for the server and for the client.
func (s *setup) daemons(ctx context.Context) error {
	tcpPort, err := freePort()
	if err != nil {
		return err
	}
	s.hosts = []host{{addr: "127.0.0.1", socket: s.socket("a")}, {addr: "127.0.0.2", socket: s.socket("b")}}
	if s.topo == oneDaemon {
		s.hosts = s.hosts[:1]
	}
	if s.beside != nil && s.beside.apart {
		s.hosts = append(s.hosts, host{addr: "127.0.0.3", socket: s.socket("c")}, host{addr: "127.0.0.4", socket: s.socket("d")})
	}
	if s.tls {
		if s.secured, err = tlsFiles(s.dir, []string{s.hosts[0].addr, s.hosts[1].addr}); err != nil {
			return err
		}
	}
	for i := range s.hosts {
		h := &s.hosts[i]
		p, err := s.daemon(*h, i == 0, tcpPort)
		if err != nil {
			return err
		}
		s.procs = append(s.procs, p)
		h.pid = p.Pid()
		if _, err := p.expect(ctx, "msg=serving"); err != nil {
			return err
		}
	}
	if s.topo == oneDaemon {
		s.hosts = append(s.hosts, s.hosts[0])
	}
	return nil
}

func (s *setup) socket(name string) string {
	return filepath.Join(s.dir, name+strconv.Itoa(s.count))
}

func (s *setup) daemon(h host, server bool, tcpPort int) (*process, error) {
	listen := []string{h.addr}
	if server {
		for i := range s.idlePeers {
			listen = append(listen, idlePeer(i).String())
		}
	}
	set := []string{"socket", h.socket, "listen", strings.Join(listen, ","), "port", strconv.Itoa(tcpPort), "crc", s.options.crc, "spin", s.spin.String()}
	set = append(set, s.secured...)
	var args []string
	as := how{daemon: true, inOrder: s.profile != "", session: s.busy == sameSession}
	if s.profile == "" {
		for i := 0; i < len(set); i += 2 {
			args = append(args, "-"+config.FlagName(set[i]), set[i+1])
		}
		return startProcess("rdsd", as, s.rdsd, args...)
	}
	for i := 0; i < len(set); i += 2 {
		args = append(args, set[i]+"="+set[i+1])
	}
	return s.self("daemon", as, append(args, s.profileArgs("host="+h.addr[len(h.addr)-1:])...)...)
}

func (s *setup) profileArgs(more ...string) []string {
	if s.profile == "" {
		return nil
	}
	return append(more, "profile="+s.profile, "case="+s.name)
}

// self starts this program in a role.
func (s *setup) self(role string, as how, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return startProcess(role, as, self, append([]string{worker.Arg, role}, args...)...)
}

// helper starts a process that is neither application nor daemon, and returns
// its address.
func (s *setup) helper(ctx context.Context, role string, files []*os.File, args ...string) (addr string, err error) {
	as := how{session: s.busy == sameSession, files: files}
	var p *process
	if s.topo == peerProgram {
		p, err = startProcess(role, as, s.options.peers, append([]string{worker.Arg, role}, args...)...)
	} else {
		p, err = s.self(role, as, append(args, s.profileArgs("host="+strconv.Itoa(len(s.procs)))...)...)
	}
	if err != nil {
		return "", err
	}
	s.procs = append(s.procs, p)
	line, err := p.expect(ctx, "ready ")
	return strings.TrimPrefix(line, "ready "), err
}

// region is the memory for bulk transfers on the bare path, bytes.
func (s *setup) region() int { return max(s.footprint, 1) << 20 }

// relays starts those of the bare path.
func (s *setup) relays(ctx context.Context) error {
	args := []string{"spin=" + s.spin.String(), "region=" + strconv.Itoa(s.region())}
	hosts := 2
	if s.topo == noRelay {
		hosts = 1 // of which the applications are the two ends
	}
	for range hosts {
		f, err := newFloorShared(s.region())
		if err != nil {
			return err
		}
		s.shared = append(s.shared, f)
	}
	if s.topo == noRelay {
		return nil
	}
	if s.topo == oneRelay {
		_, err := s.helper(ctx, "floor-local-relay", slices.Concat(s.shared[0].files, s.shared[1].files), args...)
		return err
	}
	addr, err := s.helper(ctx, "floor-relay", s.shared[0].files, args...)
	if err == nil {
		_, err = s.helper(ctx, "floor-relay", s.shared[1].files, append(args, "addr="+addr)...)
	}
	return err
}

// worker starts an application: i is 0 for the server, 1 for the client.
func (s *setup) worker(role string, i int, addr string) (*process, error) {
	args := []string{"d=" + s.duration().String(), "size=" + strconv.Itoa(s.size), "footprint=" + strconv.Itoa(s.footprint), "addr=" + addr,
		"hub=" + s.hubAt, "dir=" + s.dir, "appspin=" + s.appSpin.String()}
	args = append(args, s.testCase.args...)
	args = append(args, [2][]string{s.serverArg, s.clientArg}[i]...)
	as := how{session: s.busy == sameSession}
	if s.topo.daemons() {
		h := s.hosts[i]
		args = append(args, "socket="+h.socket, "bind="+net.JoinHostPort(h.addr, strconv.Itoa([2]int{port, clientPort}[i])), "daemon="+strconv.Itoa(h.pid))
	}
	if s.topo.relays() {
		as.files = s.shared[min(i, len(s.shared)-1)].files
		args = append(args, "spin="+s.spin.String(), "region="+strconv.Itoa(s.region()))
	}
	if s.testCase.crc {
		args = append(args, "crc=on")
	}
	args = append(args, s.profileArgs()...)
	var p *process
	var err error
	if s.topo == peerProgram {
		p, err = startProcess(role, as, s.options.peers, append([]string{worker.Arg, role}, args...)...)
	} else {
		p, err = s.self(role, as, args...)
	}
	if err == nil {
		s.procs = append(s.procs, p)
	}
	return p, err
}

// peerRoles asks the peers' program what it can do. None if it is not there.
func peerRoles(program string) map[string]bool {
	known := map[string]bool{}
	out, err := exec.Command(program, "roles").Output()
	if err != nil {
		return known
	}
	for r := range strings.FieldsSeq(string(out)) {
		known[r] = true
	}
	return known
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
