package main

import (
	"context"
	"net"
	"strconv"
	"strings"
)

// besides are more applications that exchange messages while others are measured, in pairs. They
// use the daemons of the server and the client, or two of their own.
type besides struct {
	server, client string // they work until their input ends
	size           int
	args           []string
	apart          bool // with two daemons of their own, at other addresses
	pairs          int
}

// besidePort is the distance of their ports from those of the measured applications.
const besidePort = 1000

// startBeside starts s.beside. Its processes then wait for "go".
func (s *setup) startBeside(ctx context.Context) error {
	for pair := range s.beside.pairs {
		if err := s.startPair(ctx, besidePort+pair); err != nil {
			return err
		}
	}
	return nil
}

// startPair starts one pair, at ports that are apart from those of the measured applications.
func (s *setup) startPair(ctx context.Context, apart int) error {
	addr := ""
	for i, role := range []string{s.beside.server, s.beside.client} {
		h := s.hosts[i]
		if s.beside.apart {
			h = s.hosts[2+i]
		}
		at := [2]int{port, clientPort}[i] + apart
		args := append([]string{"size=" + strconv.Itoa(s.beside.size), "addr=" + addr, "appspin=" + s.appSpin.String(),
			"socket=" + h.socket, "bind=" + net.JoinHostPort(h.addr, strconv.Itoa(at))}, s.beside.args...)
		p, err := s.self(role, how{}, args...)
		if err != nil {
			return err
		}
		s.hogs = append(s.hogs, p)
		line, err := p.expect(ctx, "ready ")
		if err != nil {
			return err
		}
		addr = strings.TrimPrefix(line, "ready ")
	}
	return nil
}

// fairCases are round trips of a socket while another socket fills the same connection.
func fairCases() []testCase {
	rtt := trip("rds", 64)
	cs := []testCase{rtt.with("fair-quiet", rtt.doc+", nothing beside it", func(*testCase) {})}
	for _, v := range []struct {
		name, doc string
		beside    besides
	}{
		{"fair-flood", "another socket sends all it can", besides{"rds-sink-on", "rds-source", 64, nil, false, 1}},
		{"fair-flood-64k", "another socket sends all it can of 64 KiB", besides{"rds-sink-on", "rds-source", 64 << 10, nil, false, 1}},
		{"fair-apart", "another socket sends all it can, through daemons of its own", besides{"rds-sink-on", "rds-source", 64, nil, true, 1}},
		{"fair-reads", "another socket reads 1 MiB, 8 in flight, a fenced message behind each", besides{"rdma-target", "rdma-read-on", rdmaSize, []string{"footprint=1"}, false, 1}},
	} {
		cs = append(cs, rtt.with(v.name, rtt.doc+", beside it "+v.doc, func(c *testCase) { c.beside, c.peer = &v.beside, "fair-quiet" }))
	}
	return cs
}

// engineCases are a flow beside an equal one. Both go through the same two engines, or each
// through two of its own. An engine is a daemon here. Two engines in one process would share
// nothing on the path of messages.
func engineCases() []testCase {
	flow := flow("rds", 64)
	cs := []testCase{flow.with("engines-alone", flow.doc+", nothing beside it", func(*testCase) {})}
	for _, v := range []struct {
		name, doc string
		apart     bool
	}{
		{"engines-shared", "an equal flow through the same daemons", false},
		{"engines-apart", "an equal flow through two other daemons", true},
	} {
		cs = append(cs, flow.with(v.name, flow.doc+", beside it "+v.doc, func(c *testCase) {
			c.beside, c.peer = &besides{"rds-sink-on", "rds-source", 64, nil, v.apart, 1}, "engines-alone"
		}))
	}
	return cs
}
