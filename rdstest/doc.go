// Package rdstest runs rdsd inside a test process, to test programs that use package
// rds without an installed daemon, privileges or a network.
//
// [StartDaemons] starts daemons on loopback addresses with control sockets of their
// own:
//
//	func TestMine(t *testing.T) {
//		d := rdstest.StartDaemons(t, 2)
//		a := d[0].Bind(t, d[0].Open(t), 0)
//		b := d[1].Bind(t, d[1].Open(t), 0)
//		a.SendTo([]byte("hello"), b.LocalAddrPort())
//		...
//	}
//
// [TestPacketConn] checks that any net.PacketConn with reliable delivery behaves as
// one.
package rdstest
