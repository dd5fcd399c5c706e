package rds_test

import (
	"net"
	"testing"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

// TestPacketConn: a Socket is a net.PacketConn in everything a user can see,
// with and without spinning. (rdstest has it on real daemons.)
func TestPacketConn(t *testing.T) {
	for name, o := range map[string]rds.Options{"spin": {}, "block": {Spin: -1}} {
		t.Run(name, func(t *testing.T) {
			rdstest.TestPacketConn(t, func() (net.PacketConn, net.PacketConn, func(), error) {
				a, b, stop := rds.FakePair(t, o)
				return a, b, stop, nil
			})
		})
	}
}
