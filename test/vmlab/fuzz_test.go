package vmlab

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

var (
	fuzzSeed   = flag.Uint64("siwfuzz.seed", 1, "TestSiwfuzz: the first seed")
	fuzzSeeds  = flag.Int("siwfuzz.seeds", 3, "TestSiwfuzz: connections per case, each with the next seed")
	fuzzRounds = flag.Int("siwfuzz.rounds", 20, "TestSiwfuzz: rounds per connection")
	fuzzBad    = flag.String("siwfuzz.bad", "", "TestSiwfuzz: also make requests that siw handles wrongly: inline, page, fenced-read, empty-read, both-read, separated by commas")
)

// errEnded means that the connection has ended or is about to end.
var errEnded = errors.New("the connection ended")

// fuzzCase is a kind of connection.
type fuzzCase struct {
	name         string
	siwInitiates bool
	crc          verbs.CRCMode
	ack          verbs.AckMode
}

// TestSiwfuzz runs siwfuzz in a machine against soft.
func TestSiwfuzz(t *testing.T) {
	dir := os.Getenv(dirVariable)
	if dir == "" {
		t.Skip("needs a virtual machine: make vm")
	}
	m := boot(t, dir)
	for _, c := range []fuzzCase{
		{"siw connects, CRC, AckLocal", true, verbs.CRCOn, verbs.AckLocal},
		{"siw connects, CRC, AckRemote", true, verbs.CRCOn, verbs.AckRemote},
		{"siw connects, no CRC, AckLocal", true, verbs.CRCOff, verbs.AckLocal},
		{"siw connects, no CRC, AckRemote", true, verbs.CRCOff, verbs.AckRemote},
		{"soft connects, CRC, AckLocal", false, verbs.CRCOn, verbs.AckLocal},
		{"soft connects, CRC, AckRemote", false, verbs.CRCOn, verbs.AckRemote},
		{"soft connects, no CRC, AckLocal", false, verbs.CRCOff, verbs.AckLocal},
		{"soft connects, no CRC, AckRemote", false, verbs.CRCOff, verbs.AckRemote},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range *fuzzSeeds {
				seed := *fuzzSeed + uint64(i)
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					siwfuzz(newLab(t, m, soft.Options{CRC: c.crc}), c, seed)
				})
			}
		})
	}
	for i := range *fuzzSeeds {
		t.Run(fmt.Sprintf("siw with itself/%d", *fuzzSeed+uint64(i)), func(t *testing.T) { siwfuzzAlone(t, m, *fuzzSeed+uint64(i)) })
	}
}

// siwfuzzAlone runs siwfuzz between siw and siw. A failure there is not due to soft.
func siwfuzzAlone(t *testing.T, m *machine, seed uint64) {
	m.begin(t)
	defer say(t, m, "kill")
	args, hexPort := "-p siw "+siwfuzzArgs(seed, min(*fuzzRounds, 10)), fmt.Sprintf("%04X", rpingPort)
	say(t, m, "spawn siwfuzz %s listen %d >/tmp/listens & until grep -q ':%s 00000000:0000 0A' /proc/net/tcp; do usleep 10000; done; usleep 10000; "+
		"siwfuzz %s connect %s %d; s=$?; wait; cat /tmp/listens; exit $s", args, rpingPort, hexPort, args, toGuest, rpingPort)
	if out := say(t, m, "wait"); !strings.HasPrefix(out, "0 ") || strings.Count(out, "requests verified") != 2 {
		t.Errorf("siw with itself: %s", strings.ReplaceAll(out, "|", "\n"))
	}
}

// siwfuzzArgs returns siwfuzz's arguments for the flags of the test.
func siwfuzzArgs(seed uint64, rounds int) string {
	args := fmt.Sprintf("-s %d -n %d", seed, rounds)
	for _, bad := range strings.FieldsFunc(*fuzzBad, func(r rune) bool { return r == ',' }) {
		args += " -b " + bad
	}
	return args
}

// siwfuzz runs one connection of siwfuzz.
func siwfuzz(l *lab, c fuzzCase, seed uint64) {
	f := newFuzzPeer(l, c.ack, seed, c.siwInitiates, strings.Contains(*fuzzBad, "page"))
	defer say(l.T, l.m, "kill")
	from := l.m.mark(l.T)
	err := f.join(siwfuzzArgs(seed, *fuzzRounds), c.siwInitiates)
	for ; err == nil && f.round < uint32(*fuzzRounds); f.round++ {
		err = f.runRound()
	}
	if c.crc == verbs.CRCOn {
		n := fpdusToGuest(l.T, l.m.since(l.T, from))
		l.Logf("%d FPDUs came to siw's machine, the CRC of %d in two TCP segments", n.all, n.cut)
		if n.all == 0 || n.bad > 0 {
			l.Errorf("the CRC of %d of %d FPDUs is wrong", n.bad, n.all)
		}
		if n.cut > 0 && errors.Is(err, errEnded) && f.crcRefused() {
			l.Logf("siw has taken a right CRC for a wrong one after %d rounds: %v", f.round, err)
			return
		}
	}
	if err != nil {
		l.qp.ToError() // siw's side ends, too
	}
	out := l.await(l.m.start("wait"))
	if err == nil && strings.HasPrefix(out.text, "0 ") {
		l.Logf("%d requests of both sides in %d rounds, all verified; %+v", f.requests, f.round, l.dev.Stats())
		return
	}
	l.Errorf("soft: %v\nsiw: %s", err, strings.ReplaceAll(out.text, "|", "\n"))
	for i, r := range f.mine.requests() {
		l.Logf("soft's %d: %+v", i, r)
	}
	l.Logf("again: make vm VM=./test/vmlab VMFLAGS='-run \"%s\"' VMARGS='-siwfuzz.seed=%d -siwfuzz.rounds=%d -siwfuzz.bad=%s'",
		l.Name(), seed, *fuzzRounds, *fuzzBad)
}

// crcRefused reports whether siw has ended the connection because of a CRC.
func (l *lab) crcRefused() bool {
	l.Helper()
	l.until("end of the connection", func() bool { return len(l.ev) > 0 })
	return errors.Is(l.ev[0].Err, iwarp.TermCRC)
}

// join starts siwfuzz and makes the connection.
func (f *fuzzPeer) join(args string, siwInitiates bool) error {
	if !siwInitiates {
		f.guest("spawn siwfuzz %s listen %d", args, rpingPort)
		f.guest("listening %d", rpingPort)
		remote := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(f.m.forward[rpingPort]))
		if err := f.dev.Connect(f.qp, verbs.ConnectParam{Remote: remote, Private: f.hello()}); err != nil {
			return err
		}
		return f.greeted(f.event(verbs.CMEstablished).Private)
	}
	ln, err := f.dev.Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		return err
	}
	defer ln.Close()
	f.guest("spawn siwfuzz %s connect %s %d", args, toHost, ln.Addr().Port())
	req := f.event(verbs.CMConnectRequest)
	if err := f.greeted(req.Private); err != nil {
		return err
	}
	if err := f.dev.Accept(req.Req, f.qp, f.hello()); err != nil {
		return err
	}
	f.event(verbs.CMEstablished)
	return nil
}
