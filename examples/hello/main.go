// Command hello sends a word to another hello, or prints what others send. Nothing has to be
// installed: rdsd runs within the program.
//
//	hello 127.0.0.1:4000                        # prints
//	hello 127.0.0.2:4000 127.0.0.1:4000 hello   # sends
package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rds/embedded"
)

func main() {
	ctx, me := context.Background(), netip.MustParseAddrPort(os.Args[1])
	d := must(embedded.Start(embedded.Options{Listen: []netip.Addr{me.Addr()}})) // rdsd, within this program
	c := must(rds.Open(ctx, rds.Options{Daemon: d}))
	s := must(c.Bind(me))
	if len(os.Args) > 3 {
		must(s.SendTo([]byte(os.Args[3]), netip.MustParseAddrPort(os.Args[2])))
		must(0, s.CloseWait(ctx)) // waits for the other host; the error says what was not delivered
		return
	}
	for m, err := range s.Messages(ctx) {
		fmt.Printf("%v: %s\n", must(m, err).Addr, m.Payload)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, "hello:", err)
		os.Exit(1)
	}
	return v
}
