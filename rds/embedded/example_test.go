package embedded_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rds/embedded"
)

// A program that sends itself a datagram, with nothing installed.
func Example() {
	d, err := embedded.Start(embedded.Options{Set: map[string]string{"port": "18639"}})
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	c, err := rds.Open(context.Background(), rds.Options{Daemon: d})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s, err := c.Bind(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := s.SendTo([]byte("hello"), s.LocalAddrPort()); err != nil {
		log.Fatal(err)
	}
	b := make([]byte, 16)
	n, _, err := s.RecvFrom(b)
	fmt.Println(string(b[:n]), err)
	// Output: hello <nil>
}
