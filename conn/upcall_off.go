//go:build !upcalls

package conn

// upcalls checks calls from inside up-calls in a build with the tag upcalls. In
// this build it does nothing.
type upcalls struct{}

func (*upcalls) called(call) {}

func (*upcalls) host(h Host) Host { return h }

func (*upcalls) tcpHost(h TCPHost) TCPHost { return h }
