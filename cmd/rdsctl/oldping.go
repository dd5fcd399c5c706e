package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/internal/rdsping"
	"github.com/rdsd/rdsd/rds"
)

// pingTimeout is how long rds-ping waits for a pong.
const pingTimeout = 5 * time.Second

// oldPing is the program under the name rds-ping, with its flags and lines. It sends the
// pings itself. The verb ping asks the daemon to send them, and has JSON.
func (a *app) oldPing(ctx context.Context, args []string) int {
	fs := flag.NewFlagSet("rds-ping", flag.ContinueOnError)
	fs.SetOutput(a.stderr)
	fs.Usage = func() {
		fmt.Fprint(a.stderr, "usage: rds-ping [-c count] [-i interval[ms|us]] [-I source] [-Q tos] [-socket path] dst\n")
	}
	o := newOptions()
	o.timeout = pingTimeout
	count := fs.Uint("c", 0, "")
	interval := fs.String("i", "1", "")
	source := fs.String("I", "", "")
	tos := fs.Uint("Q", 0, "")
	fs.StringVar(&o.socket, "socket", "", "")
	words, err := parseMixed(fs, args)
	if err != nil {
		return exitUsage // fs has printed why
	}
	every, err := rdsping.ParseInterval(*interval)
	if err != nil || len(words) != 1 || *tos > 255 {
		if err != nil {
			fmt.Fprintf(a.stderr, "rds-ping: -i: %v\n", err)
		}
		fs.Usage()
		return exitUsage
	}
	p := rdsping.Params{Lane: uint8(*tos), Count: int(*count), Interval: every, Timeout: o.timeout}
	from := netip.AddrPort{}
	if p.To, err = firstAddress(ctx, words[0]); err == nil && *source != "" {
		p.From, err = firstAddress(ctx, *source)
		from = netip.AddrPortFrom(p.From, 0)
	}
	b := &bencher{app: a, o: o}
	if err == nil {
		err = b.find(ctx, &from, p.To)
	}
	var c *rds.Client
	if err == nil {
		p.From = from.Addr()
		c, err = b.env.Open(ctx)
	}
	if err != nil {
		return a.fail(o, "", err)
	}
	defer c.Close()
	_, received, err := rdsping.Run(ctx, c, p, a.stdout)
	if err != nil {
		return a.fail(o, "", err)
	}
	if received == 0 {
		return exitFailed
	}
	return exitOK
}

// firstAddress is the first address of a name. An address is its own name.
func firstAddress(ctx context.Context, name string) (netip.Addr, error) {
	if a, err := netip.ParseAddr(name); err == nil {
		return a.Unmap(), nil
	}
	as, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return netip.Addr{}, err
	}
	return as[0].Unmap(), nil
}
