// Package loopback gives out networks of 127/8. Programs on one machine that take their
// addresses from this package never use the same address, so the ports and restarts of one
// do not disturb another.
package loopback

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"
)

// Network is 254 addresses that only this program uses until Close or the program's end.
type Network struct {
	first netip.Addr // x.y.z.0
	lock  net.Listener
}

// Reserve takes a network that no other program has.
func Reserve() (*Network, error) {
	for {
		// 127.0.0.0/24 and the rest of 127.0 are left to everybody.
		a := netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(254)), byte(rand.IntN(256)), 0})
		// The name exists while the socket is open, and in this network namespace.
		l, err := net.Listen("unix", fmt.Sprintf("@rdsd-loopback-%v", a))
		if err == nil {
			return &Network{a, l}, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("reserve %v/24: %w", a, err)
		}
	}
}

// First is the address below the network's first: x.y.z.0.
func (n *Network) First() netip.Addr { return n.first }

// At is the address number i of the network, 1 to 254.
func (n *Network) At(i int) netip.Addr { return At(n.first, i) }

// At is the address number i, 1 to 254, of the network that begins at first. The last byte
// of first is 0.
func At(first netip.Addr, i int) netip.Addr {
	if i < 1 || i > 254 {
		panic(fmt.Sprintf("loopback: %v/24 has no address %d", first, i))
	}
	b := first.As4()
	b[3] = byte(i)
	return netip.AddrFrom4(b)
}

// Close gives the network back to other programs.
func (n *Network) Close() error { return n.lock.Close() }
