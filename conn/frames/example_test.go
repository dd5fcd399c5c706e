package frames_test

import (
	"fmt"

	"github.com/rdsd/rdsd/conn/frames"
)

// A host puts two datagrams into a run, and the one that receives the run takes them
// out again.
func Example() {
	run := make([]byte, frames.MaxLen)
	n := frames.Put(run, []byte("one"))
	n += frames.Put(run[n:], []byte("two"))
	run = run[:n]

	sum, ok := frames.Check(run, 2)
	fmt.Println(sum.Datagrams, "datagrams,", sum.Bytes, "bytes", ok)
	for len(run) > 0 {
		var p []byte
		p, run, _ = frames.Next(run)
		fmt.Printf("%s\n", p)
	}
	// Output:
	// 2 datagrams, 6 bytes true
	// one
	// two
}
