package conformance

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// statement is one line of the list.
type statement struct {
	n     int
	kind  string // "k": as the kernel; "r": rdsd's own rule
	by    string // how it is proven: afrds, rds, peer, codec, test
	text  string
	check func(t *testing.T, e *env)
	later string // why it has no check
}

// The ways to prove a statement.
const (
	byCalls = "afrds" // the kernel's calls against a daemon
	byAPI   = "rds"   // package rds against a daemon
	byPeer  = "peer"  // a peer that speaks the wire format itself, connected to a daemon
	byCodec = "codec" // the encoder and the parser of the daemon
	byTest  = "test"  // a test in the package that decides it
)

// The reasons why a statement has no check yet.
const (
	laterVM     = "needs a kernel: make vm VM=./test/vmlab/rdstcp"
	laterIB     = "needs a kernel: make vm VM=./test/vmlab/rdsib"
	laterKernel = "needs a kernel peer or the kernel's tools: comes with kernel interoperation"
	laterHere   = "not proven by two daemons' sockets"
	laterTools  = "needs rds-tools: RDS_TOOLS=DIR make conformance"
)

// group is a chapter of the list, with the numbers that it must have.
type group struct {
	name        string
	title       string
	first, last int
	statements  []statement
}

func groups() []group {
	return []group{
		{"A", "Socket creation, bind, connect", 1, 18, groupA()},
		{"B", "sendmsg", 19, 36, groupB()},
		{"C", "recvmsg and poll", 37, 55, groupC()},
		{"D", "Options, ioctl, info", 56, 70, groupD()},
		{"E", "Control messages and RDMA", 71, 106, groupE()},
		{"F", "Barrier", 107, 119, groupF()},
		{"G", "Wire: header and extension headers", 120, 130, groupG()},
		{"H", "Wire: ping, handshake, acks", 131, 142, groupH()},
		{"I", "RDS/TCP", 143, 155, groupI()},
		{"J", "RDS/IB", 156, 169, groupJ()},
		{"K", "State machine and congestion", 170, 184, groupK()},
		{"L", "Tools and long runs", 185, 192, groupL()},
		{"M", "Runs of datagrams", 193, 204, groupM()},
		{"N", "Open keys", 205, 206, groupN()},
	}
}

// TestComplete checks the list: each number is there once, with a text, and with a check or a
// reason why it has none.
func TestComplete(t *testing.T) {
	next := 1
	for _, g := range groups() {
		if g.first != next || len(g.statements) != g.last-g.first+1 {
			t.Errorf("group %s: %d statements from %d, want %d to %d", g.name, len(g.statements), next, g.first, g.last)
		}
		for i, s := range g.statements {
			if s.n != g.first+i || s.kind != "k" && s.kind != "r" || s.text == "" || (s.check == nil) == (s.later == "") {
				t.Errorf("group %s: bad entry %d %q %q", g.name, s.n, s.kind, s.text)
			}
			if s.check != nil && s.by == "" {
				t.Errorf("statement %d does not say how it is proven", s.n)
			}
		}
		next = g.last + 1
	}
	if next != 207 {
		t.Errorf("the list ends at %d", next-1)
	}
}

// TestStatements runs the checks. Groups run at the same time.
func TestStatements(t *testing.T) {
	for _, g := range groups() {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			var e *env
			for _, s := range g.statements {
				if os.Getenv(envBin) != "" && s.check != nil && s.by != byCalls && s.by != byAPI {
					s.check, s.later = nil, laterHere
				}
				if s.check != nil && e == nil {
					e = newEnv(t)
				}
				if s.check == nil {
					s.record(t, "later", s.later)
					continue
				}
				ran := false
				ok := t.Run(fmt.Sprint(s.n, " ", s.text), func(t *testing.T) {
					ran = true
					s.check(t, e)
				})
				switch {
				case !ran: // -run did not select it
				case ok:
					s.record(t, "pass", "")
				default:
					s.record(t, "FAIL", "")
				}
			}
		})
	}
}

// record writes the line of the statement.
func (s *statement) record(t *testing.T, verdict, reason string) {
	line := strings.Join([]string{fmt.Sprint(s.n), s.kind, verdict, s.by, s.text, reason}, "\t")
	t.Log(line)
	path := os.Getenv(envLines)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	if _, err := f.WriteString(line + "\n"); err != nil {
		t.Error(err)
	}
}
