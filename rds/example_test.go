package rds_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"

	"github.com/rdsd/rdsd/rds"
)

// One socket reaches every other.
func Example() {
	c, err := rds.Open(context.Background(), rds.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s, err := c.Bind(netip.MustParseAddrPort("10.0.0.1:4000"))
	if err != nil {
		log.Fatal(err)
	}
	for _, to := range []string{"10.0.0.2:4000", "10.0.0.3:4000"} {
		if _, err := s.SendTo([]byte("hello"), netip.MustParseAddrPort(to)); err != nil {
			log.Fatal(err)
		}
	}
	buf := make([]byte, 1500)
	for range 2 {
		n, from, err := s.RecvFrom(buf)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%v: %s\n", from, buf[:n])
	}
}

// The target registers memory and sends its cookie along with a request.
func ExampleSocket_Register() {
	var c *rds.Client // from Open
	var s *rds.Socket // from Bind
	server := netip.MustParseAddrPort("10.0.0.2:4000")

	buf, err := c.Alloc(1 << 20)
	if err != nil {
		log.Fatal(err)
	}
	region, err := s.Register(buf, 0, buf.Len(), rds.AllowWrite)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := s.SendMsg(&rds.Message{Payload: []byte("block 7, please"), Addr: server, Cookie: region.Cookie()}); err != nil {
		log.Fatal(err)
	}
	// When the answer is there, so is the data.
	answer := rds.Message{Payload: make([]byte, 100)}
	if err := s.RecvMsg(&answer); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %x...\n", answer.Payload[:answer.N], buf.Bytes()[:16])
	if err := region.Release(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// The initiator writes into the region a request came with, tells so with the
// same message, and waits until it may use its own memory again.
func ExampleSocket_SendMsg() {
	var s *rds.Socket     // from Bind
	var block *rds.Buffer // from Alloc
	request := rds.Message{Payload: make([]byte, 100)}
	if err := s.RecvMsg(&request); err != nil {
		log.Fatal(err)
	}
	id, err := s.SendMsg(&rds.Message{
		Payload: []byte("done"),
		Addr:    request.Addr,
		Op: &rds.RDMA{
			Kind:   rds.Write,
			Cookie: request.Cookie,
			Local:  []rds.Segment{{Buf: block, Off: 0, Len: block.Len()}},
			Notify: true,
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if _, err := s.Barrier(ctx, request.Addr.Addr(), id); err != nil {
		log.Fatal(err)
	}
	// block may be filled anew. Whether the write succeeded is another question:
	done, err := s.WaitOp(ctx, request.Addr.Addr(), id)
	if err != nil {
		log.Fatal(err)
	}
	if err := done.Err(); err != nil {
		log.Print(err)
	}
}
