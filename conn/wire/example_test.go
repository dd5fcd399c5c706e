package wire_test

import (
	"fmt"

	"github.com/rdsd/rdsd/conn/wire"
)

// A frame is a header and the payload behind it.
func Example() {
	payload := []byte("hello")
	frame := make([]byte, wire.HeaderLen, wire.HeaderLen+len(payload))
	h := wire.Header{Seq: 7, Ack: 3, Len: uint32(len(payload)), SPort: 4000, DPort: 5000, SrcInc: 1, Flags: wire.FlagAckRequired}
	h.Put(frame)
	frame = append(frame, payload...)

	var got wire.Header
	err := wire.Parse(frame, &got)
	fmt.Println(err, got.Seq, got.SPort, got.DPort, string(frame[wire.HeaderLen:][:got.Len]))
	frame[0] ^= 1
	fmt.Println(wire.Parse(frame, &got))
	// Output:
	// <nil> 7 4000 5000 hello
	// wire: header checksum is wrong
}
