package daemon

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/quota"
)

// errShutdown ends sessions, and requests in progress.
var errShutdown = errors.New("the daemon is shutting down")

// connection is one control connection, and whose it is.
type connection struct {
	*ipc.Conn
	id   ipc.Cred
	user quota.User
	role ipc.Role      // 0: has not said. Guarded by admission.mu
	once sync.Once     // for the goodbye, or the end without one
	over chan struct{} // closed when the connection is closed
	left bool          // the connection goes on in another daemon; before over
	nth  uint64        // in the order of arrival. Guarded by admission.mu
	name string        // of a client. It is set before the client is sent descriptors, see unreceived.listed

	unreceived *unreceived // of all connections

	request atomic.Uint32 // the ipc.Type of the last request
	answers atomic.Int32  // answers on their way that the session's goroutine does not wait for

	// For the recess. Guarded by admission.mu.
	deadline  time.Time               // of the next request; zero: none
	stands    bool                    // the session waits for the end of the recess
	handed    bool                    // the connection is part of a state that was written in this recess
	held      bool                    // and has ended, see ipc.Conn.Hold
	interrupt context.CancelCauseFunc // of the request in progress; nil: it has none

	// The session's, or whose who has it while it stands.
	now   context.Context // of the request in progress, which a recess may break off; nil: none is
	again *ipc.Message    // a request that was broken off, which comes before what is unread; nil: none was
}

func (d *Daemon) newConnection(c *ipc.Conn, id ipc.Cred) *connection {
	user := quota.Of(d.policy.Load(), id)
	c.CountFor(user.Account)
	return &connection{Conn: c, id: id, user: user, over: make(chan struct{}), unreceived: &d.unreceived}
}

// goodbye tells the process why its session ends, and closes the connection.
func (c *connection) goodbye(reason error) {
	c.once.Do(func() {
		_ = c.SendLast(&ipc.Goodbye{Text: reason.Error(), Ends: errors.Is(reason, errShutdown)})
		c.Close()
		close(c.over)
	})
}

// end closes the connection without a word.
func (c *connection) end() {
	c.once.Do(func() {
		c.Close()
		close(c.over)
	})
}

// fail answers request id with err. If err is that the daemon shuts down, there is no
// answer: the session ends. There is none either if the request was broken off.
func (c *connection) fail(id uint32, err error) error {
	if errors.Is(err, errReplaced) {
		return err
	}
	if errors.Is(err, errShutdown) {
		c.goodbye(err)
		return err
	}
	return c.SendErr(id, err)
}

// answer answers request id with ok, or with err if that is not nil.
func (c *connection) answer(id uint32, ok ipc.Response, err error) error {
	if err != nil {
		return c.fail(id, err)
	}
	return c.Send(id, ok)
}

// leave closes the daemon's descriptor of the connection. Another daemon goes on with it.
func (c *connection) leave() {
	c.once.Do(func() {
		c.left = true
		_ = c.Leave()
		close(c.over)
	})
}

// brokenOff is closed when the request in progress is broken off.
func (c *connection) brokenOff() <-chan struct{} {
	if c.now == nil {
		return nil
	}
	return c.now.Done()
}

// goesOn returns an error if the request in progress need not go on: net.ErrClosed if the process
// is gone, errReplaced if the request is broken off.
func (c *connection) goesOn() error {
	select {
	case <-c.brokenOff():
		return errReplaced
	case <-c.over:
		return net.ErrClosed
	default:
	}
	if c.HungUp() {
		return net.ErrClosed
	}
	return nil
}

// closed reports whether the connection is closed. It can have its descriptor still, see
// ipc.Conn.Received.
func (c *connection) closed() bool {
	select {
	case <-c.over:
		return true
	default:
		return c.FD() < 0
	}
}
