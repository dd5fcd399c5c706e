package soft_test

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft"
)

// side is a device with a queue pair and a page of memory that the peer may
// write, at the address 1<<20 of work requests.
type side struct {
	dev *soft.Device
	cq  verbs.CQ
	mr  verbs.MR
	qp  verbs.QP
	mem []byte
}

// An RDMA WRITE, and a SEND behind it that tells the peer it is there.
func Example() {
	open := func() *side {
		s := &side{dev: must(soft.New(soft.Options{})), mem: make([]byte, 4096)}
		pd := must(s.dev.AllocPD())
		s.cq = must(s.dev.CreateCQ(16))
		s.mr = must(pd.RegMR(s.mem, 1<<20, verbs.AccessLocalWrite|verbs.AccessRemoteWrite))
		s.qp = must(pd.CreateQP(verbs.QPInitAttr{SendCQ: s.cq, RecvCQ: s.cq, Access: verbs.AccessRemoteWrite,
			Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, ReadDepth: 1}}))
		return s
	}
	a, b := open(), open()
	event := func(s *side) verbs.CMEvent { // a program would block on FD instead of spinning
		for ev := make([]verbs.CMEvent, 1); ; a.dev.Progress() {
			if b.dev.Progress(); s.dev.PollCM(ev) == 1 {
				return ev[0]
			}
		}
	}
	l := must(b.dev.Listen(netip.MustParseAddrPort("127.0.0.1:0")))
	must(0, a.dev.Connect(a.qp, verbs.ConnectParam{Remote: l.Addr()}))
	must(0, b.dev.Accept(event(b).Req, b.qp, nil))
	fmt.Println(event(a).Type == verbs.CMEstablished, event(b).Type == verbs.CMEstablished)

	must(b.qp.PostRecv([]verbs.RecvWR{{WRID: 7}})) // for a message of no bytes
	n := copy(a.mem, "hello")
	must(a.qp.PostSend([]verbs.SendWR{
		{Op: verbs.OpRDMAWrite, RKey: b.mr.RKey(), RemoteAddr: 1<<20 + 100,
			SGL: []verbs.SGE{{Addr: 1 << 20, Length: uint32(n), LKey: a.mr.LKey()}}},
		{WRID: 8, Op: verbs.OpSend, Flags: verbs.SendSignaled},
	}))
	for _, s := range []*side{b, a} {
		wc := make([]verbs.WC, 1)
		for s.cq.Poll(wc) == 0 {
			a.dev.Progress()
			b.dev.Progress()
		}
		fmt.Println(wc[0].WRID, wc[0].Status == verbs.WCSuccess, string(b.mem[100:100+n]))
	}
	must(0, a.dev.Close())
	must(0, b.dev.Close())
	// Output:
	// true true
	// 7 true hello
	// 8 true hello
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestExampleInDocs: docs/verbs.md shows the example as it is here.
func TestExampleInDocs(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/verbs.md")
	if err != nil {
		t.Fatal(err)
	}
	_, body, ok1 := strings.Cut(string(source), "func Example() {\n")
	body, _, ok2 := strings.Cut(body, "\tmust(0, a.dev.Close())\n")
	if !ok1 || !ok2 || !strings.Contains(string(doc), "```go\n"+body+"```\n") {
		t.Error("the example in docs/verbs.md is not the one in example_test.go")
	}
}
