package main

import (
	"context"
	"fmt"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/rds"
)

// rdmaWindow is how many operations of all sockets are in progress at a time.
const rdmaWindow = 8

// rdmaTarget registers a region and sends its cookie to the sockets, as many as there are flows, that ask for it. Then it
// receives the messages that operations come with.
func rdmaTarget(e *end) (step, error) {
	n := e.Int("footprint") << 20
	buf, err := e.c.Alloc(n)
	if err != nil {
		return nil, err
	}
	fill(buf.Bytes())
	reg, err := e.s.Register(buf, 0, n, rds.AllowRead|rds.AllowWrite)
	if err != nil {
		return nil, err
	}
	ms := room(sendBatch, 8)
	for range max(e.Int("flows"), 1) {
		if err := e.s.Recv(context.Background(), &ms[0]); err != nil {
			return nil, err
		}
		if _, err := e.s.Send(context.Background(), &rds.Message{Addr: ms[0].Addr, Cookie: reg.Cookie()}); err != nil {
			return nil, err
		}
	}
	return func() (int, error) { return e.s.RecvBatch(context.Background(), ms) }, nil
}

func fill(b []byte) {
	for i := range b {
		b[i] = byte(i)
	}
}

// initiator returns an operation on the region of an rdmaTarget, with a region of its own.
func (e *end) initiator(kind abi.OpKind) (*rds.RDMA, error) {
	buf, err := e.c.Alloc(e.Int("footprint") << 20)
	if err != nil {
		return nil, err
	}
	fill(buf.Bytes())
	if _, err := e.s.SendTo(nil, e.to); err != nil {
		return nil, err
	}
	var hello rds.Received
	err = e.s.Recv(context.Background(), &hello)
	return &rds.RDMA{Write: kind == abi.OpWrite, Cookie: hello.Cookie, Local: []rds.Segment{{Buf: buf, Len: e.Int("size")}}, Notify: true}, err
}

// rdmaBulk walks through the regions at both ends with operations of size bytes. It counts
// operations with status SUCCESS: the peer has acknowledged them.
func rdmaBulk(kind abi.OpKind) func(*end) (step, error) {
	return func(e *end) (step, error) {
		op, err := e.initiator(kind)
		if err != nil {
			return nil, err
		}
		m := rds.Message{Addr: e.to, Op: op}
		done := make([]rds.Completion, rdmaWindow)
		seg := &op.Local[0]
		n := len(seg.Buf.Bytes())
		inFlight, window := 0, rdmaWindow/len(e.socks)
		return func() (int, error) {
			for ; inFlight < window; inFlight++ {
				op.RemoteOff = uint64(seg.Off)
				if _, err := e.s.Send(context.Background(), &m); err != nil {
					return 0, err
				}
				seg.Off = (seg.Off + seg.Len) % n
			}
			k, err := e.completions(done)
			inFlight -= k
			return k, err
		}, nil
	}
}

// rdmaFlows is rdmaBulk by each socket.
func rdmaFlows(kind abi.OpKind) func(*end) (step, error) {
	return func(e *end) (step, error) { return e.bySocket(rdmaBulk(kind)) }
}

// rdmaTrip runs one operation at a time, until its status is known. The operations are silent: no
// application at the target gets a message.
func rdmaTrip(kind abi.OpKind) func(*end) (step, error) {
	return func(e *end) (step, error) {
		op, err := e.initiator(kind)
		if err != nil {
			return nil, err
		}
		op.Silent = true
		m := rds.Message{Addr: e.to, Op: op}
		done := make([]rds.Completion, 1)
		return func() (int, error) {
			if _, err := e.s.Send(context.Background(), &m); err != nil {
				return 0, err
			}
			return e.completions(done)
		}, nil
	}
}

// completions waits for statuses of operations. A status other than SUCCESS is an error.
func (e *end) completions(done []rds.Completion) (int, error) {
	if _, err := e.s.Wait(context.Background(), rds.WaitSet{Completion: true}); err != nil {
		return 0, err
	}
	n := e.s.Completions(done)
	for _, c := range done[:n] {
		if err := c.Err(); err != nil {
			return 0, fmt.Errorf("operation %d: %w", c.ID, err)
		}
	}
	return n, nil
}

// flowCases are operations of several sockets, each by a path of its own.
func flowCases() (cs []testCase) {
	const flows = 4
	for _, v := range []struct{ name, doc, client string }{{"write", "writes", "rdma-writes"}, {"read", "reads", "rdma-reads"}} {
		c := testCase{name: "flows-" + v.name, doc: fmt.Sprintf("RDMA %s of 1 MiB, %d sockets by %d paths, 8 in flight", v.doc, flows, flows), topo: twoDaemons, metric: throughput,
			server: "rdma-target", serverArg: []string{fmt.Sprintf("flows=%d", flows)}, client: v.client, clientArg: []string{fmt.Sprintf("sockets=%d", flows)},
			size: rdmaSize, footprint: 1, paths: flows, peer: "rdma-" + v.name + "-1m"}
		cs = append(cs, c, c.with("flows-tls-"+v.name, c.doc+", TLS", func(c *testCase) { c.tls, c.peer = true, "tls-write" }))
	}
	return cs
}
