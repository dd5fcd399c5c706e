package rds_test

import (
	"context"
	"log"
	"net/netip"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

// host is a client at a daemon of its own: what a process on a host has after
//
//	c, err := rds.Open(ctx, rds.Options{})
type host struct {
	*rds.Client
	Addr netip.Addr
	Down func() error // ends the daemon
}

// hosts makes n of them, on loopback addresses, for the examples.
func hosts(n int) ([]host, func()) {
	ds, stop, err := rdstest.Start(n)
	check(err)
	hs := make([]host, n)
	for i, d := range ds {
		c, err := rds.Open(context.Background(), rds.Options{Socket: d.Socket()})
		check(err)
		hs[i] = host{c, d.Addr(), d.Stop}
	}
	return hs, func() {
		for _, h := range hs {
			check(h.Close())
		}
		check(stop())
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
