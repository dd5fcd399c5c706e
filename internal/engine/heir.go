package engine

import "github.com/rdsd/rdsd/internal/ipc"

// Heir is what an engine that adopts has of the process around it.
type Heir interface {
	// Client returns the record of a client, made by NewClient and given its send windows
	// with Inherit. It returns nil if there is no such client.
	Client(number uint32) *Client
	// Buffer returns the memory of a client's buffer and what unmaps it. It returns nil if
	// there is no such buffer.
	Buffer(client, buffer uint32) (mem []byte, onFree func())
	// Later returns what answers a Free or Release that waits. It returns nil if there is no
	// such request.
	Later(client uint32, what Awaited) func(error)
}

// Awaited names what a Free or a Release waits for: the end of a buffer, or of a region. A
// client can have a buffer and a region of the same number.
type Awaited struct {
	Region bool // else a buffer
	Number uint32
}

// AwaitedBy returns what r waits for. r is a Free or a Release.
func AwaitedBy(r ipc.Request) (a Awaited) {
	switch r := r.(type) {
	case *ipc.Free:
		a.Number = r.Buffer
	case *ipc.Release:
		a = Awaited{true, r.Region}
	}
	return a
}

// later returns what answers a request that waits, of client c.
func (x *crossing) later(c *Client, what Awaited) func(error) {
	done := x.heir.Later(c.session, what)
	if done == nil {
		x.s.Fail("client %d has not asked for the end of %+v", c.session, what)
	}
	return done
}
