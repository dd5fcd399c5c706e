package rdstest_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

// Two daemons in this process, and a socket at each. A test would call
// [rdstest.StartDaemons] instead of Start, and have no errors to check.
func Example() {
	daemons, stop, err := rdstest.Start(2)
	check(err)
	defer stop()
	var sockets [2]*rds.Socket
	for i, d := range daemons {
		c, err := rds.Open(context.Background(), rds.Options{Socket: d.Socket()})
		check(err)
		defer c.Close()
		sockets[i], err = c.Bind(netip.AddrPortFrom(d.Addr(), 0))
		check(err)
	}

	_, err = sockets[0].SendTo([]byte("hello"), sockets[1].LocalAddrPort())
	check(err)
	buf := make([]byte, 100)
	n, from, err := sockets[1].RecvFrom(buf)
	check(err)
	fmt.Println(string(buf[:n]), from == sockets[0].LocalAddrPort())
	// Output:
	// hello true
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
