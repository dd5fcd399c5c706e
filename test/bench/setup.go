package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/test/bench/model"
	"github.com/rdsd/rdsd/test/bench/worker"
)

// setup has the processes of one measurement.
type setup struct {
	*bench
	testCase
	procs   []*process // processes whose CPU time counts: daemons or relays, then hub, server and client
	hogs    []*process // processes whose CPU time does not count
	shared  []*model.Memory
	hosts   []host
	tcpPort int // at which the daemons listen
	group   *cgroup
	hubAt   string

	secured []string // lines for the daemons' configuration, with TLS
}

func (s *setup) close() {
	for _, p := range slices.Backward(slices.Concat(s.procs, s.hogs)) {
		p.stop()
	}
	for _, m := range s.shared {
		_ = m.Close()
	}
	if s.group != nil {
		s.group.close()
	}
}

func (s *setup) duration() time.Duration { return max(s.d, min(s.minTime, s.longest)) }

// begin starts all processes that are there before the applications.
func (s *setup) begin(ctx context.Context) (err error) {
	if s.topo == peerProgram {
		for _, role := range []string{s.hub, s.server, s.client} {
			if role != "" && !s.peers[role] {
				return fmt.Errorf("%s: %w: `make bench-peers` builds %s with what is installed", role, errUnavailable, s.options.peers)
			}
		}
	}
	if s.calls {
		if err := worker.MayCountCalls(); err != nil {
			return fmt.Errorf("count system calls: %w: %w", errUnavailable, err)
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
	case s.topo.model():
		err = s.relays(ctx)
	case s.topo == embeddedDaemons:
		s.hosts = s.twoHosts()
		s.tcpPort, err = freePort()
	}
	if err == nil && s.hub != "" {
		s.hubAt, err = s.helper(ctx, s.hub, nil)
	}
	return err
}

// keepBusy starts a process that only uses CPU time.
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

// start sends "go" to the applications, once the machine has its load.
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

// daemons starts the case's daemons, for the server and for the client.
func (s *setup) daemons(ctx context.Context) error {
	var err error
	if s.tcpPort, err = freePort(); err != nil {
		return err
	}
	s.hosts = s.twoHosts()
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
		p, err := s.daemon(*h, i == 0)
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

func (s *setup) twoHosts() []host {
	return []host{{addr: "127.0.0.1", socket: s.socket("a")}, {addr: "127.0.0.2", socket: s.socket("b")}}
}

func (s *setup) socket(name string) string {
	return filepath.Join(s.dir, name+strconv.Itoa(s.count))
}

func (s *setup) daemon(h host, server bool) (*process, error) {
	listen := []string{h.addr}
	if server {
		for i := range s.idlePeers {
			listen = append(listen, idlePeer(i).String())
		}
	}
	set := []string{"socket", h.socket, "listen", strings.Join(listen, ","), "port", strconv.Itoa(s.tcpPort), "crc", s.options.crc, "spin", s.spin.String()}
	set = append(set, s.secured...)
	if s.paths > 0 {
		set = append(set, "peers.paths", strconv.Itoa(s.paths))
	}
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

// helper starts a process that is neither application nor daemon, and returns the address that
// it prints.
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

// region returns the size of the model's regions, in bytes.
func (s *setup) region() int { return max(s.footprint, 1) << 20 }

// relays starts the model's.
func (s *setup) relays(ctx context.Context) error {
	args := []string{"spin=" + s.spin.String(), "region=" + strconv.Itoa(s.region())}
	hosts := 2
	if s.topo == noRelay {
		hosts = 1 // the applications are the two ends of one host
	}
	for range hosts {
		m, err := model.NewMemory(s.region())
		if err != nil {
			return err
		}
		s.shared = append(s.shared, m)
	}
	switch s.topo {
	case noRelay:
		return nil
	case oneRelay:
		_, err := s.helper(ctx, "model-local-relay", slices.Concat(s.shared[0].Files, s.shared[1].Files), args...)
		return err
	}
	addr, err := s.helper(ctx, "model-relay", s.shared[0].Files, args...)
	if err == nil {
		_, err = s.helper(ctx, "model-relay", s.shared[1].Files, append(args, "addr="+addr)...)
	}
	return err
}

// worker starts an application: the server if i is 0, the client if i is 1.
func (s *setup) worker(role string, i int, addr string) (*process, error) {
	args := []string{"d=" + s.duration().String(), "size=" + strconv.Itoa(s.size), "footprint=" + strconv.Itoa(s.footprint), "addr=" + addr,
		"hub=" + s.hubAt, "dir=" + s.dir, "appspin=" + s.appSpin.String()}
	args = append(args, s.testCase.args...)
	args = append(args, [2][]string{s.serverArg, s.clientArg}[i]...)
	as := how{session: s.busy == sameSession}
	if s.topo.daemons() || s.topo == embeddedDaemons {
		h := s.hosts[i]
		args = append(args, "socket="+h.socket, "bind="+net.JoinHostPort(h.addr, strconv.Itoa([2]int{port, clientPort}[i])), "daemon="+strconv.Itoa(h.pid))
	}
	if s.topo == embeddedDaemons {
		args = append(args, "embedded="+strconv.Itoa(s.tcpPort), "daemoncrc="+s.options.crc, "daemonspin="+s.spin.String())
	}
	if s.topo.model() {
		as.files = s.shared[min(i, len(s.shared)-1)].Files
		args = append(args, "spin="+s.spin.String(), "region="+strconv.Itoa(s.region()))
	}
	if s.calls {
		args = append(args, "calls=on")
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

// freePort returns a TCP port on which nobody listens now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
