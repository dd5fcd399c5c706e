package abi_test

import (
	"fmt"

	"github.com/rdsd/rdsd/abi"
)

func Example() {
	for _, kind := range []abi.OpKind{abi.OpWrite, abi.OpFetchAdd} {
		fmt.Println(kind, kind.Atomic())
	}
	fmt.Println(abi.StatusDropped)
	// Output:
	// WRITE false
	// FETCH_ADD true
	// DROPPED
}
