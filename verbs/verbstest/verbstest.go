// Package verbstest checks that an RDMA provider keeps the rules of package verbs.
// The provider calls Run from its own tests. Each subtest is named after the
// statement that it checks, and says the statement in words: A63, A97, ... are about
// reliable connections, C numbers about package verbs. A provider that differs on
// purpose declares a Deviation, which is checked instead of the statement.
//
// Not covered by docs/stability.md: any release may change this package.
package verbstest

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/verbs"
)

// Env is a new pair of devices for one subtest. open releases it with t.Cleanup.
// Closing a device twice must be harmless, because some subtests close one
// themselves.
type Env struct {
	// A and B are two devices that can connect to each other.
	A, B verbs.Device
	// AddrA and AddrB are where they can listen; port 0 means any.
	AddrA, AddrB netip.AddrPort
	// Dead is an address of B where nobody listens: connecting is refused.
	Dead netip.AddrPort
	// Step lets both devices progress once. It returns false if there was nothing to
	// do, after waiting for at most a few milliseconds. In virtual time it does not
	// wait: it runs the next event.
	Step func() bool
	// Lose makes A hear nothing more of B, while B goes on. cut then breaks the
	// connection for both. It is nil if the provider cannot do that.
	Lose func() (cut func())
	// Habits says where the adapter differs in all subtests.
	Habits Habits
}

// Habits are differences of adapters, and of the soft ones of the kernel, that the
// provider cannot change. A difference that is not set is not tolerated. A subtest
// that met one counts as a deviation.
type Habits struct {
	LocalStatus verbs.WCStatus // has it for local errors, of sends and receives, in place of a more exact one; 0: no
	RecvStatus  verbs.WCStatus // ... of receives, if it is another
	Flushed     bool           // the requester learns of a refused request only that the connection has ended (or LocalStatus)
	NoSolicited bool           // a solicited message makes no event where one is asked for
	LateSink    bool           // a READ fails when its response comes, of a bad sink, too; what is behind it is done by then
	LateDereg   bool           // a response that has begun goes on into memory that is deregistered
	AnyRead     bool           // READs need no right, of the queue pair or of the region
	OwnAddress  bool           // a region has an address of its process: none at 0
	Silent      bool           // the responder of a refused request gets no asynchronous event
	Padded      bool           // private data arrive with zeros behind them
	Immediate   bool           // requests run at once, without Step
	PostAtomic  bool           // a misaligned atomic is refused by PostSend
	SRQOfQP     bool           // receives of an SRQ are checked against the queue pair's PD
	NoRNRCount  bool           // QPStats.RNR stays 0
}

// Deviation is what a provider does instead of a statement.
type Deviation struct {
	Why    string
	Assert func(p *Pair) // must fail if the provider does follow the statement
}

// Deviations are the deviations of a provider, by the statement and rule of the
// subtest as Run prints them ("A115 missing QP right: REM_INV_REQ").
type Deviations map[string]Deviation

// Run runs the suite. open makes the devices of one subtest. Every subtest runs with
// AckLocal, and with AckRemote if the device has CapRemoteAck.
func Run(t *testing.T, deviations Deviations, open func(t *testing.T) Env) {
	t.Helper()
	cases := slices.Concat(sendCases(), rdmaCases(), readCases(), listCases(), accountCases(), localErrorCases(),
		remoteErrorCases(), flushCases(), regionCases(), connectCases(), closeCases(), sharedCases(), atomicCases(), stateCases(), notifyCases(), windowCases(),
		resizeCases(), libertyCases(), ownerCases(), lostCases(), misuseCases())
	checkStatements(t, cases)
	rep := newReport()
	known := map[string]bool{}
	for _, c := range cases {
		if known[c.name] {
			t.Fatalf("two cases named %q", c.name)
		}
		known[c.name] = true
		if !t.Run(c.name, func(t *testing.T) { runCase(t, c, deviations, open, rep) }) {
			rep.add(c.name, failed, "the subtest "+c.name+" fails")
		}
	}
	rep.write(t)
	for name := range deviations {
		if !known[name] {
			t.Errorf("deviation %q names no case", name)
		}
	}
}

// testCase is one rule. need are capabilities without which it does not apply,
// lack one whose absence it is about.
type testCase struct {
	name       string
	need, lack verbs.Caps
	run        func(p *Pair)
}

func runCase(t *testing.T, c testCase, deviations Deviations, open func(t *testing.T) Env, rep *report) {
	t.Helper()
	modes := []verbs.AckMode{verbs.AckLocal, verbs.AckRemote}
	for _, mode := range modes {
		t.Run([...]string{"AckRemote", "AckLocal"}[mode], func(t *testing.T) {
			p := newPair(t, open(t), mode)
			rep.provider = p.A.Dev.Attr().Name
			caps := p.A.Dev.Attr().Caps & p.B.Dev.Attr().Caps
			switch {
			case mode == verbs.AckRemote && caps&verbs.CapRemoteAck == 0:
				p.notApplicable("no CapRemoteAck")
				rep.add(c.name, notApplicable, p.na)
			case caps&c.need != c.need || caps&c.lack != 0:
				p.notApplicable("the device has the capabilities %#x", uint(caps))
				rep.add(c.name, notApplicable, p.na)
			default:
				if d, ok := deviations[c.name]; ok {
					t.Log("deviation:", d.Why)
					d.Assert(p)
					rep.add(c.name, deviates, d.Why)
					return
				}
				c.run(p)
				if p.dev != "" {
					rep.add(c.name, deviates, p.dev)
				} else if p.na != "" {
					rep.add(c.name, notApplicable, p.na)
				} else {
					rep.add(c.name, passed, "")
				}
			}
		})
	}
}

// pattern fills b with bytes that depend on seed and position.
func pattern(b []byte, seed byte) {
	const period = 1 << 16
	for i := range min(len(b), period) {
		b[i] = seed ^ byte(i) ^ byte(i>>8)*31
	}
	for n := period; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// onlyByte reports whether b holds nothing but c.
func onlyByte(b []byte, c byte) bool { return bytes.Count(b, []byte{c}) == len(b) }

// fillByte fills b with c.
func fillByte(b []byte, c byte) {
	b[0] = c
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// patterned returns n bytes of pattern seed.
func patterned(n int, seed byte) []byte {
	b := make([]byte, n)
	pattern(b, seed)
	return b
}

func wcString(wc []verbs.WC) string {
	s := ""
	for i := range wc {
		s += fmt.Sprintf(" {id %d status %d op %d len %d}", wc[i].WRID, wc[i].Status, wc[i].Op, wc[i].ByteLen)
	}
	return s
}
