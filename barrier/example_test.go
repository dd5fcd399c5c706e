package barrier_test

import (
	"fmt"

	"github.com/rdsd/rdsd/barrier"
)

// Two operations complete in another order than they were issued. The mark rises
// when the first of them has completed, over both.
func Example() {
	var mark barrier.Mark
	var first, second barrier.Op
	fmt.Println(mark.Issue(&first, 1), mark.Issue(&second, 2))

	raised, _ := mark.Complete(&second)
	fmt.Println("mark", mark.HWM(), "raised", raised, "second's buffers are free", mark.Reached(2))
	raised, _ = mark.Complete(&first)
	fmt.Println("mark", mark.HWM(), "raised", raised, "second's buffers are free", mark.Reached(2))
	// Output:
	// <nil> <nil>
	// mark 0 raised false second's buffers are free false
	// mark 2 raised true second's buffers are free true
}
