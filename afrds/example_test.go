package afrds_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"syscall"

	"github.com/rdsd/rdsd/afrds"
	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

// The calls of a program for the kernel's sockets: socket, bind, sendmsg, recvmsg.
func Example() {
	daemons, stop, err := rdstest.Start(1) // a daemon for this example; a program uses its host's
	check(err)
	defer stop()
	c, err := rds.Open(context.Background(), rds.Options{Socket: daemons[0].Socket()})
	check(err)
	defer c.Close()

	k := afrds.New(c)
	s, err := k.Socket(cmsg.AFRDS, syscall.SOCK_SEQPACKET, 0)
	check(err)
	addr := netip.AddrPortFrom(daemons[0].Addr(), 4000)
	check(s.Bind(afrds.Sockaddr(addr)))

	_, err = s.Sendmsg([]byte("hello"), afrds.Sockaddr(addr), nil, 0) // to itself
	check(err)
	payload, name := make([]byte, 100), make([]byte, 28)
	got, err := s.Recvmsg(payload, name, nil, 0)
	check(err)
	from, err := afrds.ParseSockaddr(name[:got.NameLen])
	check(err)
	fmt.Println(string(payload[:got.N]), from == addr)

	_, err = s.Recvmsg(payload, nil, nil, syscall.MSG_DONTWAIT)
	fmt.Println(err == error(syscall.EAGAIN))
	// Output:
	// hello true
	// true
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
