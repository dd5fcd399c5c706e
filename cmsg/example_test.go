package cmsg_test

import (
	"fmt"

	"github.com/rdsd/rdsd/cmsg"
)

// The control data for a sendmsg that writes to a peer's memory first, and the
// control data of the recvmsg that reports the outcome.
func Example() {
	send := cmsg.Send{Present: cmsg.Of(cmsg.TypeRDMAArgs), Args: cmsg.RDMAArgs{
		Cookie: 0x77, RemoteVec: cmsg.IOVec{Bytes: 4096}, LocalVecAddr: 0x7f0000001000, NrLocal: 1,
		Flags: cmsg.FlagReadWrite | cmsg.FlagNotifyMe, UserToken: 42,
	}}
	control, err := send.Append(nil)
	fmt.Println(len(control), "bytes for sendmsg", err)

	control = (&cmsg.Recv{Present: cmsg.Of(cmsg.TypeRDMAStatus), Status: []cmsg.Notify{{UserToken: 42, Status: cmsg.StatusSuccess}}}).Append(nil)
	var recv cmsg.Recv
	err = recv.Parse(control)
	fmt.Println(err, recv.Present.Has(cmsg.TypeRDMAStatus), recv.Status[0])
	// Output:
	// 72 bytes for sendmsg <nil>
	// <nil> true {42 0}
}
