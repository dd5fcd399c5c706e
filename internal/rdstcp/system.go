package rdstcp

import (
	"context"
	"net/netip"

	"golang.org/x/sys/unix"
)

// System is the TCP beneath a Net: the operating system's, or a simulated one. Its descriptors
// and events are those of an edge-triggered epoll. Its calls do not block.
type System interface {
	// FD becomes readable when Wait has something to return.
	FD() int
	// Wait returns how many events it wrote to evs. One of descriptor -1 says that Wake
	// was called.
	Wait(evs []unix.EpollEvent) int
	// Wake ends a wait. Any goroutine may call it.
	Wake()
	// Listen calls accepted for each connection that is made to addr, until Close. It may do
	// so on any goroutine. ctx ends before Close.
	Listen(ctx context.Context, addr netip.AddrPort, accepted func(Socket)) error
	// Dial begins an attempt to connect, which ends at the latest with ctx. done follows
	// once, on any goroutine.
	Dial(ctx context.Context, a Attempt, done func(Socket, error))
	// Add has Wait return the events of a connection: that it can be read, that it can be
	// written again, and that the peer has ended it.
	Add(fd int) error
	// Send writes the first of the pieces, which have want bytes. If it writes fewer, Wait
	// says later that there is room.
	Send(fd int, pieces [][]byte) (n, want int, err error)
	// Recv reads into a, then b. again is true if there is nothing to read now. n is 0 at the
	// end that the peer has sent.
	Recv(fd int, a, b []byte) (n int, again bool, err error)
	// Unacked returns how many bytes the peer's TCP has not acknowledged. An end that was
	// sent is one.
	Unacked(fd int) (int, error)
	// Unread returns how many bytes have arrived and can be read.
	Unread(fd int) (int, error)
	// Finish sends an end behind what was written. It fails if the connection was reset.
	Finish(fd int) error
	// End closes a connection, with a reset if abort is set.
	End(fd int, abort bool)
	// Close ends what Listen and Dial have begun. It is called last.
	Close()
}

// Socket is a connection that a System has made. Chosen is as that of Conn.
type Socket struct {
	FD            int
	Local, Remote netip.AddrPort
	Chosen        bool
}

// Attempt is what Net.Dial wants. Start says where the search for a source port begins.
type Attempt struct {
	Local  netip.Addr
	Remote netip.AddrPort
	Lane   int
	Must   bool
	Start  uint64
}
