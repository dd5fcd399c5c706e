package rdmaop_test

import (
	"fmt"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
)

// An operation from the grant that allows it to its status.
func Example() {
	// The peer has granted 4096 bytes of its memory to our socket at port 5000.
	const rkey = 0x77
	grants := rdmaop.NewGrants(100)
	err := grants.Add(rdmaop.Grant{Cookie: rdmaop.MakeCookie(rkey, 0), Len: 4096, Rights: abi.RightWrite, Port: 5000})
	fmt.Println("granted:", err)

	op := rdmaop.Op{Kind: abi.OpWrite, Cookie: rdmaop.MakeCookie(rkey, 0), RemoteOff: 1024, Len: 3000,
		Segs: []rdmaop.Seg{{LKey: 1, Addr: 0, Len: 1000}, {LKey: 1, Addr: 8192, Len: 2000}}}
	fmt.Println("well formed:", op.Validate() == 0, "port 5000 may:", grants.Check(&op, 5000) == 0, "port 5001 may:", grants.Check(&op, 5001) == 0)

	// It becomes work requests for a queue pair. This device takes one piece each.
	var pieces []verbs.SGE
	for _, wr := range op.AppendWRs(nil, &pieces, &verbs.DeviceAttr{MaxSGE: 1, MaxReadSGE: 1, MaxMsg: 1 << 20}) {
		fmt.Println(wr.Op, wr.SGL[0].Length, "bytes to", wr.RemoteAddr)
	}

	// Its owner reports what happens to it, and does what Step returns.
	for _, ev := range []rdmaop.EventType{rdmaop.EvQueue, rdmaop.EvPost, rdmaop.EvLocal, rdmaop.EvAck} {
		effect, err := op.Step(rdmaop.Event{Type: ev})
		fmt.Println(ev, "makes it", op.State(), "raise mark:", effect&rdmaop.RaiseLocal != 0, "report:", effect&rdmaop.Report != 0, err)
	}
	fmt.Println(op.Status())
	// Output:
	// granted: <nil>
	// well formed: true port 5000 may: true port 5001 may: false
	// RDMA_WRITE 1000 bytes to 1024
	// RDMA_WRITE 2000 bytes to 2024
	// Queue makes it Queued raise mark: false report: false <nil>
	// Post makes it Posted raise mark: false report: false <nil>
	// Local makes it Local raise mark: true report: false <nil>
	// Ack makes it Settled raise mark: false report: true <nil>
	// SUCCESS
}
