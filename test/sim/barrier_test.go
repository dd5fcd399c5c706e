package sim

import (
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs/sim"
)

// script is a run whose steps a test chooses. Sockets a and a2 of one host use a region of b on
// another host.
type script struct {
	*world
	t       *testing.T
	a, a2   *endpoint
	b       *endpoint
	r       *region
	ops     []*op
	point   sim.PointKind
	nth     int // passages of the point that are left until the action
	action  sim.Action
	isArmed bool
	hit     bool
}

func newScript(t *testing.T) *script { return newScriptWith(t, 1, func(*options) {}) }

func newScriptWith(t *testing.T, seed uint64, change func(*options)) *script {
	o := options{
		hosts: 2, clients: 1, sockets: 2, timing: sim.DefaultTiming(),
		maxSend: 32 << 10, sendBufs: 64, recvBufs: 256, credits: 64, hardCap: 4 << 20, overflow: 8 << 20,
		revokeTimeout: 5e9, settleTimeout: 30e9, sndBuf: 1 << 20, rcvBuf: 1 << 20,
		params: rds.Params{SubEntries: 4096, EventEntries: 4096, MaxMsgs: 16384, MaxRx: 4096, Slots: 64, Cells: 16,
			SendWindows: 1, RecvWindows: 1},
	}
	change(&o)
	s := &script{world: build(seed, &o), t: t}
	s.boot()
	s.a, s.a2, s.b = s.eps[0], s.eps[1], s.eps[2]
	s.r = s.b.register(200_000, rds.AllowRead|rds.AllowWrite)
	for _, e := range []*endpoint{s.a, s.a2} {
		s.r.offered[e.ap] = true
		s.b.send(e.ap, 20, extra{cookie: s.r.r.Cookie(), tells: s.r})
	}
	s.drain()
	s.net.Hook = s.strike
	return s
}

// arm places a fault at the nth passage of a point from now on. When the fault has struck, no
// host can connect until mend.
func (s *script) arm(k sim.PointKind, nth int, a sim.Action) {
	s.point, s.nth, s.action, s.isArmed, s.hit = k, nth, a, true, false
}

func (s *script) strike(p sim.Point) sim.Action {
	if !s.isArmed || p.Kind != s.point {
		return sim.Pass
	}
	if s.nth--; s.nth > 0 {
		return sim.Pass
	}
	s.isArmed, s.hit = false, true
	s.cut()
	return s.action
}

// cut keeps hosts from connecting. mend lets them connect again.
func (s *script) cut()  { s.net.Faults.Unreachable = 1e6 }
func (s *script) mend() { s.net.Faults.Unreachable = 0 }

// slow delays completions until after the event that reports a break.
func (s *script) slow() { s.net.Timing.Local = sim.Range{Min: 10e6, Max: 11e6} }

// run lets d nanoseconds pass.
func (s *script) run(d int64) {
	end := s.now() + d
	s.net.At(end, func() {})
	for s.now() < end && s.step() {
		s.bound()
	}
}

// issue sends k operations from e on the region.
func (s *script) issue(e *endpoint, k int, kind abi.OpKind, imm int, silent bool) {
	s.t.Helper()
	for range k {
		o := &op{w: s.world, token: uint64(len(s.world.ops) + 1), e: e, r: s.r, kind: kind, n: 60, off: s.r.next}
		if kind == abi.OpRead {
			o.off = 100
		}
		o.flags = rds.RDMA{Notify: true, Silent: silent}
		if !e.post(s.b.ap, imm, extra{ops: []*op{o}}) {
			s.t.Fatalf("operation refused: %v", s.sendErr)
		}
		s.ops = append(s.ops, o)
	}
}

func (s *script) mark(want int) {
	s.t.Helper()
	c := s.a.cell(s.b.ap.Addr())
	if got := int(s.a.s.HWM(c.to)); got != want {
		s.t.Errorf("mark is %d, want %d", got, want)
	}
}

// fates counts the operations by status.
func (s *script) fates() map[rds.Status]int {
	n := map[rds.Status]int{}
	for _, o := range s.ops {
		if o.fate != nil {
			n[o.fate.Status]++
		}
	}
	return n
}

func (s *script) want(st rds.Status, n int) {
	s.t.Helper()
	if got := s.fates(); got[st] != n || len(got) > 1 {
		s.t.Errorf("statuses %v, want %d %v and no other", got, n, st)
	}
}

// either checks that n operations have a status, each SUCCESS or DROPPED, and at least one
// DROPPED.
func (s *script) either(n int) {
	s.t.Helper()
	if got := s.fates(); got[rds.Success]+got[rds.Dropped] != n || got[rds.Dropped] == 0 {
		s.t.Errorf("statuses %v, want %d, some of them dropped", got, n)
	}
}
