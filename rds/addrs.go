package rds

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/rdsd/rdsd/internal/ipc"
)

// Addrs returns the addresses of the daemon, at which Bind can bind sockets, in the
// order of the daemon's settings. They do not change while the daemon runs. It is a
// call to the daemon. The caller owns the slice.
//
// Errors: ErrDaemonGone, ErrSession, ErrClosed; EOPNOTSUPP if the daemon is of a
// version that does not tell its addresses.
func (c *Client) Addrs() ([]netip.Addr, error) {
	addrs, err := c.addrs()
	return addrs, opErr("addrs", netip.AddrPort{}, err)
}

func (c *Client) addrs() ([]netip.Addr, error) {
	var addrs []netip.Addr
	err := c.control(context.Background(), func() (err error) {
		addrs, err = c.addrsOnce()
		return err
	})
	return addrs, err
}

func (c *Client) addrsOnce() ([]netip.Addr, error) {
	if !c.tellsAddrs {
		return nil, errNoAddrs
	}
	resp, _, err := c.call(&ipc.Addrs{})
	if err != nil {
		return nil, err
	}
	ok, is := resp.(*ipc.AddrsOK)
	if !is {
		return nil, c.broken("answer %T to Addrs", resp)
	}
	return ok.Addrs, nil
}

// onlyAddr returns the one address that the daemon has of IPv4, or of IPv6.
func (c *Client) onlyAddr(is4 bool) (netip.Addr, error) {
	addrs, err := c.addrs()
	if err != nil {
		return netip.Addr{}, err
	}
	family := slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return a.Is4() != is4 })
	switch len(family) {
	case 1:
		return family[0], nil
	case 0:
		return netip.Addr{}, fmt.Errorf("the daemon has no address of this family, only %q: %w", addrs, syscall.EADDRNOTAVAIL)
	}
	words := make([]string, len(family))
	for i, a := range family {
		words[i] = a.String()
	}
	return netip.Addr{}, invalid("the daemon has several addresses: bind one of %s", strings.Join(words, ", "))
}
