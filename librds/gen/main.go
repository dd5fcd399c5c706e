// Command gen writes what librds shares with the daemon, and its manual pages.
//
//	go run ./librds/gen > librds/src/proto.h
//	go run ./librds/gen kernel > preload/src/kernel.h
//	go run ./librds/gen man librds/include/rds bin/librds/man3
//
// The first form writes the layouts and numbers of docs/ipc.md as a C header. It takes them
// from the Go packages that the daemon uses, so there is one source. The second form writes
// the numbers and structures of AF_RDS for the preload library, from packages cmsg and afrds.
// The third form writes a page for each function that the headers declare.
package main

import (
	"fmt"
	"os"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 4 && os.Args[1] == "man":
		err = writePages(os.Args[2], os.Args[3])
	case len(os.Args) == 2 && os.Args[1] == "kernel":
		_, err = os.Stdout.Write(kernelHeader())
	default:
		_, err = os.Stdout.Write(header())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}
