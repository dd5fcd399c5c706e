package verbstest

import (
	"fmt"
	"testing"

	"github.com/rdsd/rdsd/verbs"
)

const (
	// ArenaSize is the length of each side's memory.
	ArenaSize = 4 << 20
	arenaIOVA = 0x7_5555_0000 // of A; nothing like a pointer
	arenaGap  = 1 << 32       // from A's to B's: no address is both's
	page      = 4096
	// lowIOVA is for small regions. Below 64 KiB nothing can be mapped, which
	// siw's driver wants (verbs/ibv).
	lowIOVA = 0x3_0000

	// idleLimit idle steps in a row end a wait as failed: about ten seconds
	// of a provider in real time.
	idleLimit = 2000
	// settleSteps idle steps in a row are taken for "nothing more comes".
	settleSteps = 10
)

// Pair is the two sides of a subtest. Attr of each side may be changed until Connect
// or NewQP.
type Pair struct {
	*testing.T
	na   string // why the rule does not apply here
	dev  string // which habit of the device was met
	Env  Env
	Mode verbs.AckMode
	A, B *Side
}

func newPair(t *testing.T, env Env, mode verbs.AckMode) *Pair {
	t.Helper()
	p := &Pair{T: t, Env: env, Mode: mode}
	p.A = p.newSide("A", env.A, arenaIOVA)
	p.B = p.newSide("B", env.B, arenaIOVA+arenaGap)
	return p
}

// notApplicable notes that the rule cannot be shown here.
func (p *Pair) notApplicable(format string, args ...any) {
	p.na = fmt.Sprintf(format, args...)
	p.Log("not applicable:", p.na)
}

// Memory, if set, gives the memory that is registered, page-aligned and zero:
// adapters want mapped memory. Its owner takes it back when the subtest ends.
var Memory func(n int) []byte

// habit notes that the device does otherwise.
func (p *Pair) habit(format string, args ...any) {
	p.dev = fmt.Sprintf(format, args...)
	p.Log("deviation:", p.dev)
}

// local are the statuses allowed for a local error.
func (p *Pair) local(exact verbs.WCStatus) []verbs.WCStatus {
	if other := p.Env.Habits.LocalStatus; other != 0 {
		return []verbs.WCStatus{exact, other}
	}
	return []verbs.WCStatus{exact}
}

// localRecv are the statuses allowed for a local error of a receive.
func (p *Pair) localRecv(exact verbs.WCStatus) []verbs.WCStatus {
	if other := p.Env.Habits.RecvStatus; other != 0 {
		return []verbs.WCStatus{exact, other}
	}
	return p.local(exact)
}

// remote are the statuses allowed for a request that the peer refused.
func (p *Pair) remote(exact verbs.WCStatus) []verbs.WCStatus {
	if p.Env.Habits.Flushed {
		return []verbs.WCStatus{exact, verbs.WCWRFlushErr, p.local(exact)[1]}
	}
	return []verbs.WCStatus{exact}
}

// inexact notes that an error had another status.
func (p *Pair) inexact(wc verbs.WC, exact verbs.WCStatus) {
	if wc.Status != exact && wc.Status != verbs.WCSuccess {
		p.habit("status %d in place of %d", wc.Status, exact)
	}
}

// Step lets both sides progress once.
func (p *Pair) Step() bool {
	any := p.Env.Step()
	a := p.A.Poll()
	b := p.B.Poll()
	return any || a || b
}

// Until steps until cond holds. It fails the test if cond never does.
func (p *Pair) Until(what string, cond func() bool) {
	p.Helper()
	for idle := 0; !cond(); {
		if p.Step() {
			idle = 0
		} else if idle++; idle > idleLimit {
			p.Fatalf("never came: %s\nA: state %d sends%s recvs%s events %v\nB: state %d sends%s recvs%s events %v", what,
				state(p.A.QP), wcString(p.A.Sends), wcString(p.A.Recvs), p.A.eventTexts(),
				state(p.B.QP), wcString(p.B.Sends), wcString(p.B.Recvs), p.B.eventTexts())
		}
	}
}

func state(qp verbs.QP) verbs.QPState {
	if qp == nil {
		return verbs.QPReset
	}
	return qp.State()
}

// Settle steps until nothing more happens.
func (p *Pair) Settle() {
	for idle := 0; idle < settleSteps; idle++ {
		if p.Step() {
			idle = 0
		}
	}
}

func toBytes(st []verbs.WCStatus) []byte {
	b := make([]byte, len(st))
	for i, s := range st {
		b[i] = byte(s)
	}
	return b
}

// Connect makes both QPs and connects A to B.
func (p *Pair) Connect() {
	p.Helper()
	p.A.QP, p.B.QP = p.A.NewQP(), p.B.NewQP()
	p.Join(p.A.QP, p.B.QP, p.B.Listen())
}

// Join connects a, a QP of A, to b, a QP of B, which listens on l.
func (p *Pair) Join(a, b verbs.QP, l verbs.Listener) {
	p.Helper()
	p.Dial(a, l)
	req := p.B.Request()
	if err := p.B.Dev.Accept(req.Req, b, nil); err != nil {
		p.Fatalf("Accept: %v", err)
	}
	p.A.Event(a, verbs.CMEstablished)
	p.B.Event(b, verbs.CMEstablished)
}

// Dial starts to connect a, a QP of A, to l.
func (p *Pair) Dial(a verbs.QP, l verbs.Listener) {
	p.Helper()
	if err := p.A.Dev.Connect(a, verbs.ConnectParam{Local: p.Env.AddrA, Remote: l.Addr()}); err != nil {
		p.Fatalf("Connect: %v", err)
	}
}
