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

// An RDMA WRITE, and a SEND behind it that tells the peer it is there.
func Example() {
	a, b := must(soft.New(soft.Options{})), must(soft.New(soft.Options{}))
	open := func(d *soft.Device) (verbs.PD, verbs.CQ, verbs.QP) {
		pd, cq := must(d.AllocPD()), must(d.CreateCQ(16))
		return pd, cq, must(pd.CreateQP(verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, Access: verbs.AccessRemoteWrite,
			Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxInline: 16, ReadDepth: 1}}))
	}
	_, _, aqp := open(a)
	pd, cq, bqp := open(b)
	mem := make([]byte, 4096)
	mr := must(pd.RegMR(mem, 0, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessZeroBased))
	until := func(done func() bool) {
		for !done() { // a program would block on FD instead of spinning
			a.Progress()
			b.Progress()
		}
	}
	l, ev := must(b.Listen(netip.MustParseAddrPort("127.0.0.1:0"))), make([]verbs.CMEvent, 1)
	must(0, a.Connect(aqp, verbs.ConnectParam{Remote: l.Addr()}))
	until(func() bool { return b.PollCM(ev) == 1 }) // CMConnectRequest
	must(0, b.Accept(ev[0].Req, bqp, nil))
	until(func() bool { return a.PollCM(ev) == 1 }) // CMEstablished
	must(bqp.PostRecv([]verbs.RecvWR{{WRID: 7}}))   // for a message of no bytes
	must(aqp.PostSend([]verbs.SendWR{
		{Op: verbs.OpRDMAWrite, Flags: verbs.SendInline, Inline: []byte("hello"), RKey: mr.RKey(), RemoteAddr: 100},
		{Op: verbs.OpSend},
	}))
	wc := make([]verbs.WC, 1)
	until(func() bool { return cq.Poll(wc) == 1 })
	fmt.Println(wc[0].WRID, wc[0].Status == verbs.WCSuccess, string(mem[100:105]))
	must(0, a.Close())
	must(0, b.Close())
	// Output:
	// 7 true hello
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestExampleInDocs: docs/verbs.md shows the example as it is here, and it is
// short.
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
	body, _, ok2 := strings.Cut(body, "\tmust(0, a.Close())\n")
	if !ok1 || !ok2 || !strings.Contains(string(doc), "```go\n"+body+"```\n") {
		t.Error("the example in docs/verbs.md is not the one in example_test.go")
	}
	if n := strings.Count(body, "\n"); n > 30 {
		t.Errorf("the example has %d lines", n)
	}
}
