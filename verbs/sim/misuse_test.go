package sim_test

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/sim"
)

func TestMisuse(t *testing.T) {
	net := sim.NewNetwork(1)
	a, b := newEnd(t, net, hostA, verbs.AckLocal), newEnd(t, net, hostB, verbs.AckLocal)
	idle := a.qp
	good := verbs.QPInitAttr{SendCQ: a.scq, RecvCQ: a.rcq}
	srq, err := b.pd.CreateSRQ(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	closed, _ := a.dev.AllocPD()
	if err := closed.Dealloc(); err != nil {
		t.Fatal(err)
	}
	remote := verbs.ConnectParam{Remote: netip.AddrPortFrom(hostB, port)}
	for name, c := range map[string]struct {
		call func() error
		want error
	}{
		"CQ of no entries":    {func() error { _, err := a.dev.CreateCQ(0); return err }, syscall.EINVAL},
		"SRQ of no receives":  {func() error { _, err := a.pd.CreateSRQ(0, 1); return err }, syscall.EINVAL},
		"SRQ of another host": {func() error { q := good; q.SRQ = srq; _, err := a.pd.CreateQP(q); return err }, syscall.EINVAL},
		"CQ of another host":  {func() error { q := good; q.SendCQ = b.scq; _, err := a.pd.CreateQP(q); return err }, syscall.EINVAL},
		"no CQ":               {func() error { _, err := a.pd.CreateQP(verbs.QPInitAttr{}); return err }, syscall.EINVAL},
		"negative capacity":   {func() error { q := good; q.Cap.ReadDepth = -1; _, err := a.pd.CreateQP(q); return err }, syscall.EINVAL},
		"closed PD":           {func() error { _, err := closed.RegMR(a.mem, 0, 0); return err }, syscall.EINVAL},
		"QP of another host":  {func() error { return b.dev.Connect(idle, remote) }, syscall.EINVAL},
		"foreign source":      {func() error { p := remote; p.Local = remote.Remote; return a.dev.Connect(idle, p) }, syscall.EADDRNOTAVAIL},
		"Dereg twice":         {func() error { m, _ := a.pd.RegMR(a.mem, 0, 0); m.Dereg(); return m.Dereg() }, syscall.EINVAL},
	} {
		if err := c.call(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	net.Crash(hostB)
	if _, err := b.dev.AllocPD(); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("device of a dead host: %v, want %v", err, syscall.ENODEV)
	}
	net.Crash(netip.MustParseAddr("10.9.9.9")) // unknown: nothing
}

func TestPending(t *testing.T) {
	net := sim.NewNetwork(1)
	a, b := pair(t, net, verbs.AckLocal)
	if a.dev.Pending() || b.dev.Pending() {
		t.Fatal("pending after everything was polled")
	}
	a.post(verbs.SendWR{Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled})
	for net.Step() {
	}
	if !a.dev.Pending() || b.dev.Pending() {
		t.Errorf("pending %v, %v after a WRITE; want true, false", a.dev.Pending(), b.dev.Pending())
	}
	b.qp.ToError()
	for net.Step() {
	}
	a.qp.Destroy()
	run(net, a, b)
	if a.dev.Pending() || a.has(verbs.CMDisconnected) != nil {
		t.Errorf("pending %v, events %v of a destroyed QP", a.dev.Pending(), a.events)
	}
}

// TestReadDepth: with depth 1 a READ is sampled only after the one before it
// has landed.
func TestReadDepth(t *testing.T) {
	net := sim.NewNetwork(1)
	a, b := newEnd(t, net, hostA, verbs.AckLocal), newEnd(t, net, hostB, verbs.AckLocal)
	qp, err := b.pd.CreateQP(verbs.QPInitAttr{SendCQ: b.scq, RecvCQ: b.rcq, Access: all, Cap: verbs.QPCap{ReadDepth: 1}})
	if err != nil {
		t.Fatal(err)
	}
	b.qp = qp.(*sim.QP)
	a.dial(b)
	run(net, a, b)
	flying := 0
	net.Hook = func(p sim.Point) sim.Action {
		switch p.Kind {
		case sim.BeforeReadSampled:
			if flying++; flying > 1 {
				t.Errorf("READ %d sampled with %d in flight", p.WRID, flying)
			}
		case sim.BeforeCompletion:
			flying--
		}
		return sim.Pass
	}
	for i := range 10 {
		a.post(verbs.SendWR{WRID: uint64(i), Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: a.sge(i*8, 8), RKey: b.mr.RKey(), RemoteAddr: iova})
	}
	run(net, a, b)
	if len(a.sends) != 10 || flying != 0 {
		t.Errorf("%d of 10 READs completed", len(a.sends))
	}
}

// TestDisconnectEarly: before the connection stands Disconnect is ToError.
func TestDisconnectEarly(t *testing.T) {
	net := sim.NewNetwork(1)
	a, b := newEnd(t, net, hostA, verbs.AckLocal), newEnd(t, net, hostB, verbs.AckLocal)
	a.recv(1, 0, 8)
	a.dial(b)
	a.qp.Disconnect()
	run(net, a, b)
	if len(a.recvs) != 1 || a.qp.State() != verbs.QPErr || a.has(verbs.CMEstablished) != nil {
		t.Errorf("receives %v, state %d, events %v", a.recvs, a.qp.State(), a.events)
	}
}
