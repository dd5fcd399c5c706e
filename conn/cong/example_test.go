package cong_test

import (
	"fmt"

	"github.com/rdsd/rdsd/conn/cong"
)

// A host sends its map to a peer, which learns what has changed.
func Example() {
	var ours, theirs cong.Map
	theirs.Set(4000)
	ours.Set(5000)

	frame := make([]byte, cong.Len)
	ours.Put(frame)
	err := theirs.Load(frame, func(port uint16, congested bool) { fmt.Println("port", port, "congested", congested) })
	fmt.Println(err, theirs.Test(5000), theirs.Count())
	// Output:
	// port 4000 congested false
	// port 5000 congested true
	// <nil> true 1
}
