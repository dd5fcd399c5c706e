package daemon

import (
	"errors"
	"sync"

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
	role ipc.Role  // 0: has not said. Guarded by admission.mu
	once sync.Once // for the goodbye, or the end without one
}

// goodbye tells the process why its session ends, and closes the connection.
func (c *connection) goodbye(reason error) {
	c.once.Do(func() {
		_ = c.Send(0, &ipc.Goodbye{Text: reason.Error(), Ends: errors.Is(reason, errShutdown)})
		c.Close()
	})
}

// end closes the connection without a word.
func (c *connection) end() { c.once.Do(func() { c.Close() }) }

// fail answers request id with err. If err is that the daemon shuts down, there is no
// answer: the session ends.
func (c *connection) fail(id uint32, err error) error {
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
