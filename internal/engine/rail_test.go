package engine

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft"
)

// adapter stands for an RDMA device: TCP of another port, under another name.
type adapter struct{ *soft.Device }

func (a adapter) Attr() verbs.DeviceAttr {
	x := a.Device.Attr()
	x.Name = "fake0"
	return x
}

func shifted(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr(), a.Port()+1) }

func (a adapter) Listen(at netip.AddrPort) (verbs.Listener, error) {
	return a.Device.Listen(shifted(at))
}

func (a adapter) Connect(q verbs.QP, p verbs.ConnectParam) error {
	p.Remote = shifted(p.Remote)
	return a.Device.Connect(q, p)
}

// A host with an adapter and TCP, and one with either or both: which one their
// connection goes by, whoever begins it; messages and RDMA both ways on it.
func TestRails(t *testing.T) {
	both, softOnly := [2]bool{true, true}, [2]bool{false, true}
	for _, tc := range []struct {
		name  string
		on    [2]bool // what b has
		way   Way     // of a
		want  string
		falls bool // a, if it begins
	}{
		{"both have both", both, FirstElseSecond, "fake0", false},
		{"the other has TCP alone", softOnly, FirstElseSecond, "soft", true},
		{"TCP by the rule", both, SecondOnly, "soft", false},
		{"the adapter by the rule", both, FirstOnly, "fake0", false},
	} {
		for _, from := range []string{"a begins", "b begins"} {
			t.Run(tc.name+", "+from, func(t *testing.T) {
				fell := 0
				r := newRigOf(t, 2, func(t testing.TB, i int, addr netip.Addr, cfg Config, block *stats.Block) *Engine {
					if i == 1 && tc.on == softOnly {
						return newSoftEngine(t, i, addr, cfg, block)
					}
					cfg.Trace = func(_ Place, event string, err error) {
						if event == EventFellBack {
							fell++
							if !strings.Contains(err.Error(), "fake0") || !strings.Contains(err.Error(), "refused") {
								t.Errorf("%s: %v", event, err)
							}
						}
					}
					cfg.Way = func(_, _ netip.Addr) Way { return tc.way }
					return twoRails(t, addr, cfg, block, true, true)
				})
				a, b := r.hosts[0], r.hosts[1]
				if from == "b begins" {
					a, b = b, a
				}
				a.open(b)
				b.open(a)
				operate(t, r, a, b)
				operate(t, r, b, a)
				for _, h := range r.hosts {
					if p := h.e.peers.all[0]; len(h.e.devices.rails) == 2 && p.c.to.(*byQP).rail.attr.Name != tc.want {
						t.Errorf("%v goes by %s, want %s", h.addr, p.c.to.(*byQP).rail.attr.Name, tc.want)
					}
				}
				if falls := tc.falls && from == "a begins"; (fell > 0) != falls {
					t.Errorf("fell back %d times", fell)
				}
			})
		}
	}
}

func twoRails(t testing.TB, addr netip.Addr, cfg Config, block *stats.Block, first, second bool) *Engine {
	cfg.RecvBufs, cfg.CQE = 256, 4096
	e, err := New(adapter{softDevice(t)}, cfg, block)
	if err == nil {
		err = e.AddRail(softDevice(t), 256, 4096)
	}
	if err == nil {
		err = e.AddLocalOn(addr, first, second)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// operate has a send b messages, and write and read b's memory.
func operate(t *testing.T, r *rig, a, b *rigHost) {
	t.Helper()
	const n = 8 << 10
	call := func(h *rigHost, req ipc.Request) ipc.Response {
		t.Helper()
		resp, _, err := h.p.Call(req, nil)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	reg := call(b, &ipc.Register{Sock: b.sock, Buffer: call(b, &ipc.Alloc{Size: n}).(*ipc.AllocOK).Buffer, Len: n,
		Access: abi.RightWrite | abi.RightRead}).(*ipc.RegisterOK)
	local := call(a, &ipc.Alloc{Size: n}).(*ipc.AllocOK).Buffer
	a.put(0, 0)
	a.publish()
	got := b.got + 1
	r.until("a message", func() bool { return b.got == got })
	call(b, &ipc.Expose{Region: reg.Region, Addr: a.addr})
	b.put(0, 0)
	b.publish()
	got = a.got + 1
	r.until("the grant", func() bool { return a.got == got })
	want, good := a.statuses+2, a.good+2
	for _, kind := range []abi.OpKind{abi.OpWrite, abi.OpRead} {
		a.put(0, 0, &shm.SubOp{Op: kind, Flags: abi.FlagNotify, NSeg: 1, Region: local, Len: n, Cookie: reg.Cookie})
	}
	a.publish()
	r.until("statuses", func() bool { return a.statuses == want })
	if a.good != good {
		t.Errorf("%d of 2 operations succeeded", 2-(good-a.good))
	}
}

// Nobody comes by the way that is not allowed.
func TestRailRefused(t *testing.T) {
	refused := 0
	r := newRigOf(t, 2, func(t testing.TB, i int, addr netip.Addr, cfg Config, block *stats.Block) *Engine {
		if i == 1 {
			return newSoftEngine(t, i, addr, cfg, block)
		}
		cfg.Trace = func(_ Place, event string, err error) {
			if event == "connection refused" && err != nil && strings.Contains(err.Error(), "is reached by another transport") {
				refused++
			}
		}
		cfg.Way = func(_, _ netip.Addr) Way { return FirstOnly }
		return twoRails(t, addr, cfg, block, true, true)
	})
	b := r.hosts[1]
	b.open(r.hosts[0])
	b.put(0, 0)
	b.publish()
	r.until("refusals", func() bool { return refused > 2 })
	if r.hosts[0].got != 0 || len(r.hosts[0].e.peers.all) != 0 {
		t.Errorf("%d messages came, %d peers", r.hosts[0].got, len(r.hosts[0].e.peers.all))
	}
}

// A device that cannot take another's keys is no second one.
func TestAddRailErrors(t *testing.T) {
	r := newRig(t, 1)
	if err := r.hosts[0].e.AddRail(noKeys{softDevice(t)}, 256, 4096); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

type noKeys struct{ verbs.Device }

func (d noKeys) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	return struct{ verbs.PD }{pd}, err
}
