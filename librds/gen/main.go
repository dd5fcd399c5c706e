// Command gen writes the part of librds that it shares with the daemon: the layouts and
// numbers of docs/ipc.md as a C header. It takes them from the Go packages that the daemon
// uses, so there is one source.
//
//	go run ./librds/gen > librds/src/proto.h
package main

import "os"

func main() {
	if _, err := os.Stdout.Write(header()); err != nil {
		os.Exit(1)
	}
}
