package sim_test

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/sim"
)

// once is a hook that orders act at the first passage of k.
func once(k sim.PointKind, act sim.Action) func(sim.Point) sim.Action {
	done := false
	return func(p sim.Point) sim.Action {
		if p.Kind != k || done {
			return sim.Pass
		}
		done = true
		return act
	}
}

// TestBreakPoints breaks the connection at each point of one request, posted
// with AckRemote, and checks what each side sees of it.
func TestBreakPoints(t *testing.T) {
	const n = 1000
	data := bytes.Repeat([]byte{0xa5}, n)
	type side struct {
		placed  bool // the data got there whole
		partial bool // ... or in part
		recv    verbs.WCStatus
	}
	flush, ok := verbs.WCWRFlushErr, verbs.WCSuccess
	for name, c := range map[string]struct {
		op   verbs.Opcode
		at   sim.PointKind
		want side
	}{
		"before a WRITE":        {verbs.OpRDMAWrite, sim.BeforeWrite, side{partial: true, recv: flush}},
		"after a WRITE":         {verbs.OpRDMAWrite, sim.AfterWritePlaced, side{placed: true, recv: flush}},
		"unknown to the writer": {verbs.OpRDMAWrite, sim.BeforeCompletion, side{placed: true, recv: flush}},
		"before a SEND":         {verbs.OpSend, sim.BeforeSendDelivered, side{recv: flush}},
		"after a SEND":          {verbs.OpSend, sim.AfterSendDelivered, side{placed: true, recv: ok}},
		"unknown to the sender": {verbs.OpSend, sim.BeforeCompletion, side{placed: true, recv: ok}},
		"before a READ":         {verbs.OpRDMARead, sim.BeforeReadSampled, side{recv: flush}},
		"after a READ":          {verbs.OpRDMARead, sim.AfterReadSampled, side{recv: flush}},
		"unknown to the reader": {verbs.OpRDMARead, sim.BeforeCompletion, side{placed: true, recv: flush}},
	} {
		t.Run(name, func(t *testing.T) {
			net := sim.NewNetwork(1)
			a, b := pair(t, net, verbs.AckRemote)
			src, dst := a, b
			if c.op == verbs.OpRDMARead {
				src, dst = b, a
			}
			copy(src.mem, data)
			b.recv(1, 0, n)
			net.Hook = once(c.at, sim.Break)
			a.post(verbs.SendWR{WRID: 1, Op: c.op, Flags: verbs.SendSignaled, SGL: a.sge(0, n), RKey: b.mr.RKey(), RemoteAddr: iova})
			a.post(verbs.SendWR{WRID: 2, Op: verbs.OpRDMAWrite})
			run(net, a, b)
			if got := status(a.sends); !slices.Equal(got, []verbs.WCStatus{verbs.WCRetryExcErr, flush}) {
				t.Errorf("requester saw %d, want RETRY_EXC and a flush", got)
			}
			if got := status(b.recvs); !slices.Equal(got, []verbs.WCStatus{c.want.recv}) {
				t.Errorf("responder's receive: %d, want %d", got, c.want.recv)
			}
			placed := bytes.Equal(dst.mem[:n], data)
			touched := !bytes.Equal(dst.mem[:n], make([]byte, n))
			if placed != c.want.placed || touched && !c.want.placed && !c.want.partial {
				t.Errorf("placed %v, touched %v; want %+v", placed, touched, c.want)
			}
			for _, e := range []*end{a, b} {
				if e.has(verbs.CMDisconnected) == nil || e.qp.State() != verbs.QPErr {
					t.Errorf("%v: state %d, events %v", e.dev.Addr(), e.qp.State(), e.events)
				}
			}
		})
	}
}

func TestHalfOpen(t *testing.T) {
	for _, act := range []sim.Action{sim.HalfOpen, sim.HalfOpenPeer} {
		net := sim.NewNetwork(2)
		a, b := pair(t, net, verbs.AckLocal)
		net.Hook = once(sim.AfterWritePlaced, act)
		start := net.Now()
		a.post(verbs.SendWR{WRID: 1, Op: verbs.OpRDMAWrite, SGL: a.sge(0, 8), RKey: b.mr.RKey(), RemoteAddr: iova})
		run(net, a, b)
		late, soon := a.diedAt-start, b.diedAt-start
		if act == sim.HalfOpenPeer {
			late, soon = soon, late
		}
		if soon > net.Timing.Learn.Max+1e6 || late < net.Timing.Late.Min {
			t.Errorf("action %d: the ends noticed after %d and %d ns", act, soon, late)
		}
	}
}

func TestBreakSetup(t *testing.T) {
	for name, c := range map[string]struct {
		at   sim.PointKind
		a, b verbs.CMEventType // last event at each end, 0: none
	}{
		"request": {sim.ConnectRequest, verbs.CMConnectError, 0},
		"reply":   {sim.ConnectReply, verbs.CMConnectError, verbs.CMConnectError},
		"ready":   {sim.ConnectReady, verbs.CMDisconnected, verbs.CMConnectError},
	} {
		t.Run(name, func(t *testing.T) {
			net := sim.NewNetwork(3)
			a, b := newEnd(t, net, hostA, verbs.AckLocal), newEnd(t, net, hostB, verbs.AckLocal)
			net.Hook = once(c.at, sim.Break)
			a.recv(1, 0, 8)
			a.dial(b)
			a.post(verbs.SendWR{WRID: 1, Op: verbs.OpSend, SGL: a.sge(0, 8)}, verbs.SendWR{WRID: 2, Op: verbs.OpRDMARead, Flags: verbs.SendSignaled})
			run(net, a, b)
			for _, x := range []struct {
				e    *end
				want verbs.CMEventType
			}{{a, c.a}, {b, c.b}} {
				var last verbs.CMEventType
				if n := len(x.e.events); n > 0 {
					last = x.e.events[n-1].Type
				}
				if last != x.want {
					t.Errorf("%v: last event %d, want %d", x.e.dev.Addr(), last, x.want)
				}
			}
			if len(a.recvs) != 1 || len(a.sends) == 0 || a.sends[len(a.sends)-1].Status == verbs.WCSuccess {
				t.Errorf("A: sends %v, receives %v", a.sends, a.recvs)
			}
		})
	}
}

func TestConnectFaults(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*sim.Network)
		want error
	}{
		"refused":     {func(n *sim.Network) { n.Faults.Refuse = 1e6 }, syscall.ECONNREFUSED},
		"unreachable": {func(n *sim.Network) { n.Faults.Unreachable = 1e6 }, syscall.EHOSTUNREACH},
		"lost":        {func(n *sim.Network) { n.Faults.Lost = 1e6 }, syscall.ETIMEDOUT},
		"host down":   {func(n *sim.Network) { n.Crash(hostB) }, syscall.ETIMEDOUT},
	} {
		t.Run(name, func(t *testing.T) {
			net := sim.NewNetwork(4)
			a, b := newEnd(t, net, hostA, verbs.AckLocal), newEnd(t, net, hostB, verbs.AckLocal)
			c.set(net)
			a.dial(b)
			run(net, a, b)
			if ev := a.has(verbs.CMUnreachable); ev == nil || !errors.Is(ev.Err, c.want) {
				t.Errorf("events %v, want Unreachable: %v", a.events, c.want)
			}
		})
	}
}

func TestPostFault(t *testing.T) {
	net := sim.NewNetwork(5)
	a, b := pair(t, net, verbs.AckLocal)
	net.Faults.PostFail = 500_000
	failed := 0
	for i := range 64 {
		b.recv(uint64(i), 0, 8)
	}
	for i := range 50 {
		n, err := a.qp.PostSend([]verbs.SendWR{{WRID: uint64(i), Op: verbs.OpSend, Flags: verbs.SendSignaled}})
		if (n == 1) != (err == nil) || err != nil && !errors.Is(err, syscall.ENOMEM) {
			t.Fatalf("PostSend: %d, %v", n, err)
		}
		failed += 1 - n
		run(net, a, b)
	}
	if failed == 0 || failed == 50 || len(b.recvs) != 50-failed || len(a.sends) != 50-failed {
		t.Errorf("%d of 50 posts failed, %d arrived, %d completed", failed, len(b.recvs), len(a.sends))
	}
}

func TestCrashAndRestart(t *testing.T) {
	for _, act := range []sim.Action{sim.CrashRequester, sim.CrashResponder} {
		net := sim.NewNetwork(6)
		a, b := pair(t, net, verbs.AckRemote)
		survivor, victim := b, a
		if act == sim.CrashResponder {
			survivor, victim = a, b
		}
		net.Hook = once(sim.AfterWritePlaced, act)
		a.recv(1, 0, 8)
		b.recv(1, 0, 8)
		a.post(verbs.SendWR{WRID: 1, Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: a.sge(0, 8), RKey: b.mr.RKey(), RemoteAddr: iova})
		run(net, a, b)
		if victim.dev.Alive() || len(victim.sends)+len(victim.recvs) != 0 || victim.has(verbs.CMDisconnected) != nil {
			t.Errorf("the crashed host: completions %v %v, events %v", victim.sends, victim.recvs, victim.events)
		}
		if _, err := victim.qp.PostSend([]verbs.SendWR{{Op: verbs.OpSend}}); !errors.Is(err, syscall.ENODEV) {
			t.Errorf("PostSend on a crashed host: %v, want ENODEV", err)
		}
		if survivor.has(verbs.CMDisconnected) == nil || len(survivor.recvs) != 1 || survivor.recvs[0].Status != verbs.WCWRFlushErr {
			t.Errorf("the survivor: events %v, receives %v", survivor.events, survivor.recvs)
		}
		oldKey := victim.mr.RKey()
		reborn := newEnd(t, net, victim.dev.Addr(), verbs.AckRemote)
		if reborn.dev == victim.dev {
			t.Fatal("the host came back with its old device")
		}
		survivor.newQP()
		survivor.sends, survivor.events = nil, nil
		survivor.dial(reborn)
		survivor.post(verbs.SendWR{WRID: 9, Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: survivor.sge(0, 8), RKey: oldKey, RemoteAddr: iova})
		run(net, survivor, reborn)
		if got := status(survivor.sends); !slices.Equal(got, []verbs.WCStatus{verbs.WCRemAccessErr}) {
			t.Errorf("a key of before the crash: %d, want REM_ACCESS_ERR", got)
		}
	}
}

func TestWithoutRNR(t *testing.T) {
	net := sim.NewNetwork(7)
	net.Attr.Caps &^= verbs.CapRNR
	a, b := pair(t, net, verbs.AckRemote)
	a.post(verbs.SendWR{WRID: 1, Op: verbs.OpSend, Flags: verbs.SendSignaled})
	run(net, a, b)
	if got := status(a.sends); !slices.Equal(got, []verbs.WCStatus{verbs.WCRNRRetryExcErr}) {
		t.Errorf("a SEND without a receive: %d, want RNR_RETRY_EXC", got)
	}
}

func TestCQOverrun(t *testing.T) {
	net := sim.NewNetwork(8)
	a, b := newEnd(t, net, hostA, verbs.AckLocal), newEnd(t, net, hostB, verbs.AckLocal)
	var err error
	if a.scq, err = a.dev.CreateCQ(2); err != nil {
		t.Fatal(err)
	}
	a.newQP()
	a.dial(b)
	run(net, a, b)
	for i := range 3 {
		a.post(verbs.SendWR{WRID: uint64(i), Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled})
	}
	for net.Step() { // without polling
	}
	run(net, a, b)
	if a.qp.State() != verbs.QPErr || b.qp.State() != verbs.QPErr || len(a.sends) != 2 || a.has(verbs.CMDisconnected) == nil {
		t.Errorf("states %d, %d, completions %v, events %v", a.qp.State(), b.qp.State(), a.sends, a.events)
	}
}

// TestLateDelivery: what a side transmitted before ToError may arrive after it,
// even after it connected again.
func TestLateDelivery(t *testing.T) {
	late := 0
	for seed := range uint64(50) {
		net := sim.NewNetwork(seed)
		a, b := pair(t, net, verbs.AckLocal)
		b.recv(1, 0, 8)
		a.post(verbs.SendWR{WRID: 1, Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: a.sge(0, 8)})
		for len(a.sends) == 0 {
			net.Step()
			a.poll()
		}
		a.qp.ToError()
		b.poll()
		before := len(b.recvs)
		run(net, a, b)
		if len(b.recvs) != 1 {
			t.Fatalf("seed %d: %d receives", seed, len(b.recvs))
		}
		if before == 0 && b.recvs[0].Status == verbs.WCSuccess {
			late++
		}
	}
	if late == 0 {
		t.Error("no message of 50 arrived after its sender's ToError")
	}
}

// TestDyingWindow: between ToError and the flush a READ may still land.
func TestDyingWindow(t *testing.T) {
	landed := 0
	for seed := range uint64(50) {
		net := sim.NewNetwork(seed)
		a, b := pair(t, net, verbs.AckLocal)
		b.mem[0] = 7
		read := false
		net.Hook = func(p sim.Point) sim.Action {
			read = read || p.Kind == sim.AfterReadSampled
			return sim.Pass
		}
		a.post(verbs.SendWR{WRID: 1, Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: a.sge(0, 8), RKey: b.mr.RKey(), RemoteAddr: iova})
		for !read {
			net.Step()
		}
		a.qp.ToError()
		for len(a.sends) == 0 {
			net.Step()
			a.poll()
		}
		if a.sends[0].Status != verbs.WCWRFlushErr {
			t.Fatalf("seed %d: status %d", seed, a.sends[0].Status)
		}
		if a.mem[0] == 7 {
			landed++
		}
		a.mem[0] = 9
		run(net, a, b)
		if a.mem[0] != 9 {
			t.Fatalf("seed %d: memory written after the flush", seed)
		}
	}
	if landed == 0 || landed == 50 {
		t.Errorf("%d of 50 READs landed before the flush", landed)
	}
}

func TestListenElsewhere(t *testing.T) {
	d := sim.NewNetwork(1).Device(hostA)
	if _, err := d.Listen(netip.AddrPortFrom(hostB, 1)); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("Listen on another host's address: %v, want EADDRNOTAVAIL", err)
	}
}
