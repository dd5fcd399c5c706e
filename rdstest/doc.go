// Package rdstest helps to test programs that use package rds.
//
// [StartDaemons] runs daemons in the test's own process, on loopback addresses
// and with short-lived control sockets, so that a test needs no installed rdsd,
// no privileges and no network:
//
//	func TestMine(t *testing.T) {
//		d := rdstest.StartDaemons(t, 2)
//		a := d[0].Bind(t, d[0].Open(t), 0)
//		b := d[1].Bind(t, d[1].Open(t), 0)
//		a.SendTo([]byte("hello"), b.LocalAddrPort())
//		...
//	}
//
// [TestPacketConn] checks that a net.PacketConn of whatever make behaves as
// one.
package rdstest
